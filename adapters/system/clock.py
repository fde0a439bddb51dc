"""System clock, and a variant whose sleeps can be interrupted."""

import asyncio
import threading
import time
from collections.abc import Callable

from attrs import define, field

from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):  # most commands never wait
    from tileferry.adapters.system.threads import wait


class SystemClock:
    """The system's clock and sleep."""

    __slots__ = ()

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(wait)
    sleep_async = staticmethod(asyncio.sleep)


STEP_S = 0.2


def _do_nothing() -> None:
    """Default check: never interrupt."""


@define
class InterruptibleClock(SystemClock):
    """System clock whose sleeps, in one thread, can be interrupted by ``check``."""

    check: Callable[[], None] = _do_nothing
    """Called during a sleep; raises to end it."""
    thread: threading.Thread = field(factory=threading.main_thread)
    """The thread whose sleeps can be interrupted; the other threads work for it."""

    def sleep(self, seconds: float) -> None:
        """Sleep in short steps, with a check after each."""
        if threading.current_thread() is not self.thread:
            wait(seconds)
            return
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, STEP_S))
            self.check()
