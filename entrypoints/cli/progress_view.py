"""Showing how a transfer gets on: a bar on a terminal, a line now and then anywhere else."""

import math
import re
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from attrs import define, field, frozen
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tileferry.domain.audit import AuditEvent, RetryAttempted
from tileferry.domain.retry import RateLimited
from tileferry.domain.text import printable
from tileferry.entrypoints.cli.signals import StopSignals

SILENT_S = 1.0
"""What takes no longer is not worth a bar."""
LINE_EVERY_S = 10.0
REFRESH_PER_S = 4


class TransferProgress(Protocol):
    """What can be shown."""

    @property
    def tiles(self) -> int | None:
        """How many there are, once that is known."""
        ...

    @property
    def done(self) -> int:
        """How many there is an answer for."""
        ...

    def clock_s(self) -> float:
        """Return the time it counts by."""
        ...

    def describe_progress(self, now_s: float) -> str:
        """Tell how far it is."""
        ...

    def describe_outcomes(self) -> str:
        """Tell what became of the tiles."""
        ...

    def describe_wait(self, now_s: float) -> str:
        """Tell what it waits for, if it does."""
        ...


@define(eq=False)
class ProgressView:
    """Draws in a thread of its own while the block lasts; nothing is left of a bar."""

    progress: TransferProgress
    console: Console
    silent_s: float = SILENT_S
    line_every_s: float = LINE_EVERY_S
    _ended: threading.Event = field(factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        draw = self._draw_bar if self.console.is_terminal else self._print_lines
        self._thread = threading.Thread(target=draw, name="tileferry-progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _draw_bar(self) -> None:
        if self._ended.wait(self.silent_s):
            return
        with Live(
            get_renderable=self.render,
            console=self.console,
            refresh_per_second=REFRESH_PER_S,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ):
            self._ended.wait()

    def _print_lines(self) -> None:
        while not self._ended.wait(self.line_every_s):
            now_s = self.progress.clock_s()
            parts = (self.progress.describe_progress(now_s), self.progress.describe_wait(now_s))
            self.console.print("; ".join(filter(None, parts)))

    def render(self) -> Table:
        """Return what the terminal shows now."""
        progress = self.progress
        now_s = progress.clock_s()
        bar = ProgressBar(pulse=True)
        if progress.tiles is not None:
            bar = ProgressBar(total=progress.tiles, completed=progress.done)
        table = Table.grid(expand=True)
        table.add_column(no_wrap=True, overflow="ellipsis")  # a picture that wraps leaves traces
        table.add_row(bar)
        table.add_row(Text(progress.describe_progress(now_s)))
        table.add_row(Text(progress.describe_outcomes()))
        table.add_row(Text(progress.describe_wait(now_s), style="yellow"))
        return table


_CAUSE_CHARS_MAX = 60
_TIMED_OUT = "no answer in time"
_STATUS = re.compile(r"\bHTTP (\d{3})\b")


@frozen(kw_only=True)
class RetryWait:
    """Something that is waited for, and until when."""

    reason: str
    until_s: float

    def format_line(self, now_s: float) -> str:
        """Count down."""
        left_s = max(0.0, self.until_s - now_s)
        return f"{self.reason}{math.ceil(left_s)} s"


@define(eq=False)
class WaitTracker:
    """A sink of retry events, in any thread; it remembers the longest wait.

    Whatever a command is told meanwhile is also where a signal may end it.
    """

    stop: StopSignals
    clock_s: Callable[[], float] = time.monotonic
    name: str = field(default="progress", init=False)
    _wait: RetryWait | None = field(default=None, init=False)
    _guard: threading.Lock = field(factory=threading.Lock, init=False)

    def emit(self, events: Sequence[AuditEvent]) -> None:
        """Note what is waited for, if it is the longest wait."""
        for event in events:
            if isinstance(event, RetryAttempted):
                wait = RetryWait(
                    reason=_describe_retry(event), until_s=self.clock_s() + event.delay_seconds
                )
                with self._guard:
                    if self._wait is None or wait.until_s > self._wait.until_s:
                        self._wait = wait

    def describe_wait(self, now_s: float) -> str:
        """Tell what it waits for, if it does."""
        if self.stop.asked:
            return "stopping: what was done is made safe; Ctrl-C again stops at once"
        wait = self._wait
        return wait.format_line(now_s) if wait is not None and wait.until_s > now_s else ""


@frozen
class WaitPrinter:
    """Tells each wait in a line of its own, for commands that show no progress."""

    console: Console
    name: str = "waits"

    def emit(self, events: Sequence[AuditEvent]) -> None:
        """Say what is waited for."""
        for event in events:
            if isinstance(event, RetryAttempted):
                self.console.print(
                    RetryWait(
                        reason=_describe_retry(event), until_s=event.delay_seconds
                    ).format_line(0)
                )


def _describe_retry(event: RetryAttempted) -> str:
    if isinstance(event.decision_record.failure.error, RateLimited):
        return "the provider asks for patience: "
    status = _STATUS.search(event.exception_message)
    cause = status[1] if status else _shorten_cause(event.exception_message)
    return f"{cause}, attempt {event.attempt_number} of {event.max_attempts}, again in "


def _shorten_cause(message: str) -> str:
    said = message.removeprefix("satellite-provider: ").partition(", ")[0]
    if said.startswith(_TIMED_OUT):
        said = _TIMED_OUT  # what follows are a library's words, longer than a line
    return printable(said, limit=_CAUSE_CHARS_MAX)
