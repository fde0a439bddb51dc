"""Writes that name what they follow: the server takes each at most once."""

from collections.abc import Callable

from attrs import define, field

from tileferry.adapters.nats.connection import NatsConnection
from tileferry.domain.errors import MessagingError, RetryError
from tileferry.domain.retry import RetryCategory

CONFLICTS_MAX = 1_000
"""How often somebody else may be faster. Each time somebody got on, so it ends long before."""


@define(kw_only=True)
class GuardedWrite:
    """A write whose answer may get lost.

    Making it again is safe: it names the same state as before, so that the server refuses it if
    the first one arrived, be it as late as it may. What a refusal then means is found by looking.
    """

    connection: NatsConnection
    write: Callable[[], bool]
    """Tells whether it was taken; it is not when the state has changed."""
    landed: Callable[[], bool]
    """Tells whether what is there is what was written."""
    _is_in_doubt: bool = field(default=False, init=False)

    def carry_out(self, category: RetryCategory, operation: str) -> bool:
        """Write, and tell whether it counted; if not, somebody else was faster."""
        try:
            return self.connection.call(category, operation, self._attempt)
        except (MessagingError, RetryError) as error:
            if self._is_in_doubt:
                error.add_note("whether it was stored is not known; look before doing it again")
            raise

    def _attempt(self) -> bool:
        try:
            is_taken = self.write()
        except MessagingError:
            self._is_in_doubt = True
            raise
        return is_taken or (self._is_in_doubt and self.landed())


def too_many_conflicts(subject: str) -> MessagingError:
    """Return the error of a writer who was never fast enough."""
    return MessagingError(
        problem=f"{subject} was changed by others {CONFLICTS_MAX} times in a row",
        remedy="have fewer writers at it, or see what writes there",
    )
