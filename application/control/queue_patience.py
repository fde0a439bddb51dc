"""How a worker waits: for new runs, and for a database that is away."""

from collections.abc import Callable
from logging import Logger
from typing import TypeVar

from attrs import define

from tileferry.application.ports.clock import Clock
from tileferry.application.ports.progress import ProgressListener, QueueReached
from tileferry.application.ports.work import RunQueue
from tileferry.domain.errors import DatabaseError
from tileferry.domain.retry import RetryPolicy, compute_nominal_delay

_DATABASE_RETRY = RetryPolicy(max_attempts=2, base_delay=0.5, max_delay=30.0)
"""The delays while the database is unavailable; the number of attempts is not limited."""
STOP_CHECK_S = 0.5
Result = TypeVar("Result")


@define(kw_only=True)
class QueuePatience:
    """Waits in steps short enough to notice a stop request."""

    queue: RunQueue
    clock: Clock
    logger: Logger
    progress: ProgressListener
    is_stopping: Callable[[], bool]
    check_stop: Callable[[], None]
    """Raises ``KeyboardInterrupt`` when the current run has to stop as well."""
    stop_check_s: float = STOP_CHECK_S

    def call(self, call: Callable[[], Result]) -> Result:
        """Return the result of a call; while the database is away, wait and repeat the call.

        A call that lost its connection has changed nothing. A worker that is to stop goes on
        waiting for as long as its current run may take.
        """
        failures = 0
        while True:
            try:
                result = call()
            except DatabaseError as error:
                if not error.is_unreachable:
                    raise
                failures += 1
                self.wait_for_database(failures, error)
                if self.is_stopping():
                    self.queue.wait(STOP_CHECK_S)
                    self.check_stop()
            else:
                if failures:
                    self.progress(QueueReached(is_reached=True))
                return result

    def wait_for_database(self, failures: int, error: DatabaseError) -> None:
        """Wait longer after each failure in a row."""
        if failures == 1:
            self.progress(QueueReached(is_reached=False))
        delay_s = compute_nominal_delay(_DATABASE_RETRY, min(failures, 10))
        self.logger.warning(
            "the queue cannot be reached, looking again in %.1f s: %s",
            delay_s,
            error,
            extra={"kind": "worker.database_away", "failures": failures},
        )
        self.wait(delay_s)

    def wait(self, seconds: float) -> None:
        """Wait for new runs."""
        end_s = self.clock.monotonic() + seconds
        while (left_s := end_s - self.clock.monotonic()) > 0 and not self.is_stopping():
            if self.queue.wait(min(left_s, self.stop_check_s)):
                return
