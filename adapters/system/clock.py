"""The machine's clock."""

import asyncio
import threading
import time
from collections.abc import Callable

from attrs import define, field

from tileferry.adapters.system.threads import wait


class SystemClock:
    """Real time and real waiting."""

    __slots__ = ()

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(wait)
    sleep_async = staticmethod(asyncio.sleep)


STEP_S = 0.2


def _do_nothing() -> None:
    """Let a wait go on."""


@define
class InterruptibleClock(SystemClock):
    """The machine's clock; one thread that waits by it looks up now and then."""

    check: Callable[[], None] = _do_nothing
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
