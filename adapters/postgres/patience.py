"""Waits for a database server that is away: it restarts, recovers, or the network is down."""

import logging
import threading
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from attrs import define, evolve, field

from tileferry.application.ports.clock import Clock
from tileferry.domain.errors import DatabaseError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.retry import DATABASE_POLICY, RetryPolicy

if TYPE_CHECKING:
    from tileferry.adapters.postgres.database import Database

with import_on_call(globals()):
    from tileferry.application.ports.progress import (
        NULL_LISTENER,
        DatabaseAwaited,
        ProgressListener,
    )

_LOGGER = logging.getLogger("tileferry.database")
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


@define(kw_only=True, eq=False)
class Patience:
    """How a process waits for a server that was reachable before.

    A call that loses its connection has changed nothing, so it is repeated, and charged nowhere.
    Any thread may wait.
    """

    clock: Clock
    policy: RetryPolicy = DATABASE_POLICY
    """Decides on each wait; its deadline counts from the beginning of the outage."""
    progress: ProgressListener = NULL_LISTENER
    revive: Callable[[], object] = lambda: None
    """Starts the server again, if that is our task."""
    has_connected: bool = field(default=False, init=False)
    """Whether the server was ever reachable. A wrong address is reported at once."""
    _is_away: bool = field(default=False, init=False)
    _guard: threading.Lock = field(factory=threading.Lock, init=False)

    def call(self, work: Callable[[], Result]) -> Result:
        """Return the result of a call; repeat it while the server is away."""
        attempt, started_s = 0, 0.0
        while True:
            try:
                result = work()
            except DatabaseError as error:
                # A method waits around the waits of its connections: give up once.
                if not (self.has_connected and error.is_unreachable) or error.was_awaited:
                    raise
                attempt += 1
                if attempt == 1:
                    started_s = self.clock.monotonic()
                self._wait(error, attempt, self.clock.monotonic() - started_s)
            else:
                if attempt:
                    self._notice(is_away=False, message="the database can be reached again")
                return result

    def _wait(self, error: DatabaseError, attempt: int, away_s: float) -> None:
        from tileferry.domain.retry import Failure, GiveUp, Retryable, decide  # noqa: PLC0415  # if it is away

        failure = Failure(
            key="database",
            attempt=min(attempt, self.policy.max_attempts - 1),  # only the deadline ends it
            error=Retryable(),
            elapsed_s=away_s,
        )
        decision = decide(self.policy, failure)
        limit_s = self.policy.deadline_s or 0.0
        if isinstance(decision, GiveUp):
            problem = f"{error.problem}; it did not return within {limit_s:.0f} s"
            raise evolve(error, problem=problem, was_awaited=True) from error
        left_s = max(0.0, limit_s - away_s)
        self._notice(
            is_away=True,
            message="the database cannot be reached; waiting for up to"
            f" {left_s:.0f} s: {error.problem}",
        )
        self.progress(DatabaseAwaited(delay_s=decision.delay_s, gives_up_in_s=left_s))
        self.clock.sleep(decision.delay_s)
        try:
            self.revive()
        except DatabaseError as failed:
            _LOGGER.info("%s", failed, extra={"kind": "database.not_started"})

    def _notice(self, *, is_away: bool, message: str) -> None:
        """Log the begin and the end of an outage once, however many threads wait."""
        with self._guard:
            changed, self._is_away = self._is_away != is_away, is_away
        if changed and is_away:
            _LOGGER.warning("%s", message, extra={"kind": "database.away"})
        elif changed:
            _LOGGER.info("%s", message, extra={"kind": "database.back"})


class _DatabaseUser(Protocol):
    @property
    def database(self) -> "Database": ...


User = TypeVar("User", bound=_DatabaseUser)


def repeat_when_lost(
    method: Callable[Concatenate[User, Arguments], Result],
) -> Callable[Concatenate[User, Arguments], Result]:
    """Repeat a method that is one transaction, if its connection is lost before the commit."""

    @wraps(method)
    def call(self: User, /, *args: Arguments.args, **named: Arguments.kwargs) -> Result:
        return self.database.wait_for_server(lambda: method(self, *args, **named))

    return call
