"""What the control plane asks of its books, tried again where that is worth it.

Each question has a category, whose policy says how often. A unit that failed has changed nothing,
so it can be done again as it is.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from attrs import frozen

from tileferry.application.retries.manager import RetryManager
from tileferry.domain.errors import DatabaseError, RetryError, TileManagerError
from tileferry.domain.retry import ErrorClass, Final, Retryable, RetryCategory

Result = TypeVar("Result")


class ControlCalls(Protocol):
    """Makes calls."""

    def __call__(
        self, category: RetryCategory, operation: str, call: Callable[[], Result], /
    ) -> Result:
        """Return what a call returns; what it raises in the end is what it raised."""
        ...


def call_once(_category: RetryCategory, _operation: str, call: Callable[[], Result], /) -> Result:
    """Make a call, and leave it at that."""
    return call()


@frozen
class RetryingCalls:
    """Tries again what failed for the database's sake."""

    retries: RetryManager

    def __call__(
        self, category: RetryCategory, operation: str, call: Callable[[], Result], /
    ) -> Result:
        """Make a call, by its category's policy; callers know the books' own errors."""
        try:
            answer = self.retries.execute_with_retry_sync(
                category, operation, lambda: _call_or_refuse(call), classifier=_classify_error
            )
        except RetryError as error:
            raise (error.__cause__ or error) from None
        if isinstance(answer, _Refusal):
            raise answer.error
        return answer


@frozen
class _Refusal:
    """The books are there and say no: an answer, and no failure that a retry could help."""

    error: TileManagerError


def _call_or_refuse(call: Callable[[], Result]) -> Result | _Refusal:
    try:
        return call()
    except DatabaseError:
        raise
    except TileManagerError as error:
        return _Refusal(error)


def _classify_error(error: BaseException) -> ErrorClass:
    return Retryable() if isinstance(error, DatabaseError) else Final()
