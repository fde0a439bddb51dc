"""A clock whose waits can be ended."""

import threading
import time
from collections.abc import Callable

from attrs import define, field

from tileferry.adapters.system.clock import SystemClock

STEP_S = 0.2


def _nothing() -> None:
    """Let a wait go on."""


@define
class AttentiveClock(SystemClock):
    """The machine's clock; one thread that waits by it looks up now and then."""

    check: Callable[[], None] = _nothing
    """Ends the wait by raising."""
    thread: threading.Thread = field(factory=threading.main_thread)
    """Whose waits can be ended: others work for it."""

    def sleep(self, seconds: float) -> None:  # type: ignore[override]  # one of an object, not of the class
        """Wait, in short steps."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, STEP_S))
            if threading.current_thread() is self.thread:
                self.check()
