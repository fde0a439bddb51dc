"""A clock that returns the time of the database."""

from collections.abc import Callable
from datetime import datetime

from attrs import define, field

from tileferry.application.ports.clock import Clock
from tileferry.domain.errors import DatabaseError

READ_INTERVAL_S = 60.0


@define(eq=False)
class ReferenceClock:
    """Returns the time of another clock, that of the database, and sleeps by the host's clock.

    Dates in the database are compared with this time, so a jump of the host's wall clock changes
    nothing. The reference is read once a minute; the monotonic clock counts in between.
    """

    clock: Clock
    read_time: Callable[[], datetime]
    _read_s: float | None = field(default=None, init=False)
    _ahead_s: float = field(default=0.0, init=False)
    """The reference time, minus the monotonic one."""

    def now(self) -> float:
        """Return the reference time; while it cannot be read, the monotonic clock continues it."""
        elapsed_s = self.clock.monotonic()
        if self._read_s is None or elapsed_s - self._read_s >= READ_INTERVAL_S:
            try:
                moment_s = self.read_time().timestamp()
            except DatabaseError:
                if self._read_s is None:
                    raise
            else:
                elapsed_s = self.clock.monotonic()
                self._ahead_s = moment_s - elapsed_s
            self._read_s = elapsed_s
        return elapsed_s + self._ahead_s

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)
