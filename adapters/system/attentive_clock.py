"""A clock whose waits can be ended."""

import threading
import time
from collections.abc import Callable

from attrs import define, field

from tileferry.adapters.system.clock import SystemClock
from tileferry.adapters.system.waiting import wait

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

    def sleep(self, seconds: float) -> None:
        """Wait, in short steps."""
        if threading.current_thread() is not self.thread:
            wait(seconds)
            return
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, STEP_S))
            self.check()
