"""What a command waits for: told by the audit trail's retries, counted down for people."""

import math
import re
import threading
import time
from collections.abc import Callable, Sequence

from attrs import define, field, frozen
from rich.console import Console

from tileferry.domain.audit import AuditEvent, RetryAttempted
from tileferry.domain.retry import RateLimited
from tileferry.domain.text import printable
from tileferry.entrypoints.cli.signals import StopSignals

_CAUSE_CHARS_MAX = 60
_IN_TIME = "no answer in time"
_STATUS = re.compile(r"\bHTTP (\d{3})\b")


@frozen(kw_only=True)
class Wait:
    """Something that is waited for, and until when."""

    reason: str
    until_s: float

    def line(self, now_s: float) -> str:
        """Count down."""
        left_s = max(0.0, self.until_s - now_s)
        return f"{self.reason}{math.ceil(left_s)} s"


@define(eq=False)
class Waits:
    """A sink of retry events, in any thread; it remembers the longest wait.

    Whatever a command is told meanwhile is also where a signal may end it.
    """

    stop: StopSignals
    clock_s: Callable[[], float] = time.monotonic
    name: str = field(default="progress", init=False)
    _wait: Wait | None = field(default=None, init=False)
    _guard: threading.Lock = field(factory=threading.Lock, init=False)

    def emit(self, events: Sequence[AuditEvent]) -> None:
        """Note what is waited for, if it is the longest wait."""
        for event in events:
            if isinstance(event, RetryAttempted):
                wait = Wait(reason=_reason(event), until_s=self.clock_s() + event.delay_seconds)
                with self._guard:
                    if self._wait is None or wait.until_s > self._wait.until_s:
                        self._wait = wait

    def waiting(self, now_s: float) -> str:
        """Tell what it waits for, if it does."""
        if self.stop.asked:
            return "stopping: what was done is made safe; Ctrl-C again stops at once"
        wait = self._wait
        return wait.line(now_s) if wait is not None and wait.until_s > now_s else ""


@frozen
class WaitLines:
    """Tells each wait in a line of its own, for commands that show no progress."""

    console: Console
    name: str = "waits"

    def emit(self, events: Sequence[AuditEvent]) -> None:
        """Say what is waited for."""
        for event in events:
            if isinstance(event, RetryAttempted):
                self.console.print(Wait(reason=_reason(event), until_s=event.delay_seconds).line(0))


def _reason(event: RetryAttempted) -> str:
    if isinstance(event.decision_record.failure.error, RateLimited):
        return "the provider asks for patience: "
    status = _STATUS.search(event.exception_message)
    cause = status[1] if status else _cause(event.exception_message)
    return f"{cause}, attempt {event.attempt_number} of {event.max_attempts}, again in "


def _cause(message: str) -> str:
    said = message.removeprefix("satellite-provider: ").partition(", ")[0]
    if said.startswith(_IN_TIME):
        said = _IN_TIME  # what follows are a library's words, longer than a line
    return printable(said, limit=_CAUSE_CHARS_MAX)
