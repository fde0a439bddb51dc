"""Signal handling: the first signal stops a command in order, the second ends it immediately."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from attrs import define, field

from tileferry.adapters.system import InterruptibleClock
from tileferry.entrypoints.cli.exit_codes import ExitCode

GRACE_S = 10.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STOP_MESSAGE = b"\nStopped immediately. Stored data is safe; re-run to resume.\n"
_STDERR = 2
_LAST_RESORT_S = 10.0
"""How long returning the run to the queue may take after the drain time."""
_SHOW_CURSOR = b"\x1b[?25h"


@define(eq=False)
class StopSignals:
    """Turns SIGINT and SIGTERM into one ``KeyboardInterrupt`` at a safe point.

    Before ``defer`` is called, it is raised immediately, even during a wait. After that, it is
    raised where the command calls ``check``: an interrupt during a write would corrupt the store
    for the flush that follows. A command that exceeds the grace period, or receives a second
    signal, ends immediately; the stores tolerate that like any crash.
    """

    grace_s: float = GRACE_S
    asked: bool = field(default=False, init=False)
    _deferring: bool = field(default=False, init=False)
    _raised: bool = field(default=False, init=False)
    _timer: threading.Timer | None = field(default=None, init=False)
    _before: dict[signal.Signals, Any] = field(factory=dict, init=False)

    def defer(self) -> None:
        """From now on, raise the interrupt only in ``check``."""
        self._deferring = True

    def stop_deferring(self) -> None:
        """From now on, raise the interrupt immediately again, now if a signal arrived."""
        self._deferring = False
        self.check()

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` once if a signal arrived."""
        if self.asked and not self._raised:
            self._raised = True
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._timer is not None:
            self._timer.cancel()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            exit_immediately()
        self.asked = True
        self._timer = threading.Timer(self.grace_s, exit_immediately)
        self._timer.daemon = True
        self._timer.start()
        if not self._deferring:
            self.check()


class StoppableClock(InterruptibleClock):
    """A clock that notices a signal even if a driver swallowed its interrupt."""

    def __init__(self, stop: StopSignals) -> None:
        def check() -> None:
            if stop.asked:
                raise KeyboardInterrupt

        super().__init__(check)


@define
class Drain:
    """Drains a worker on a signal: it claims no more runs, and stops when the drain time ends."""

    stop: StopSignals
    drain_s: float
    on_drain: Callable[[], None]
    """Called once, when the first signal is noticed."""
    _since_s: float | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.stop.grace_s = self.drain_s + _LAST_RESORT_S
        self.stop.defer()

    def is_stopping(self) -> bool:
        """Return whether to stop claiming runs."""
        if self.stop.asked and self._since_s is None:
            self._since_s = time.monotonic()
            self.on_drain()
        return self.stop.asked

    def check(self) -> None:
        """Interrupt the current run when the drain time is over."""
        if self.is_stopping() and time.monotonic() - (self._since_s or 0.0) >= self.drain_s:
            raise KeyboardInterrupt


def exit_immediately() -> None:
    """End the process without cleanup: it waits for no lock and flushes nothing."""
    with contextlib.suppress(OSError):
        if os.isatty(_STDERR):
            os.write(_STDERR, _SHOW_CURSOR)  # a progress bar hides the cursor
        os.write(_STDERR, _STOP_MESSAGE)
    os._exit(ExitCode.INTERRUPTED)
