"""Progress on the terminal: listeners that keep the state of work, and the view that draws it."""

import math
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

from attrs import define, field, frozen
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tileferry.application.ports.progress import (
    DatabaseAwaited,
    DownloadFinished,
    ItemsProcessed,
    PaceChanged,
    ProgressEvent,
    RequestHeld,
    RetryScheduled,
    Task,
)
from tileferry.domain.retry import Pace
from tileferry.domain.text import printable
from tileferry.entrypoints.cli.consoles import stderr
from tileferry.entrypoints.cli.signals import StopSignals

SILENT_S = 1.0
"""Shorter work shows no bar."""
LINE_EVERY_S = 10.0
REFRESH_PER_S = 4


_CAUSE_CHARS_MAX = 40
_TIMED_OUT = "no response in time"
_STATUS = re.compile(r"\bHTTP (\d{3})\b")


@frozen(kw_only=True)
class RetryWait:
    """A wait before the next attempt."""

    reason: str
    until_s: float
    details: str = ""

    def format_line(self, now_s: float) -> str:
        """Return the reason, the seconds left and the details."""
        left_s = max(0.0, self.until_s - now_s)
        return f"{self.reason}{math.ceil(left_s)} s{self.details}"


@define(eq=False)
class ProgressState(ABC):
    """A listener that keeps the state of some work for drawing, including its longest wait.

    A signal can stop the work at each event, except at events of other threads.
    """

    stop: StopSignals | None = None
    clock_s: Callable[[], float] = time.monotonic
    pace: Pace | None = field(default=None, init=False)
    """The last pace that was reported."""
    _wait: RetryWait | None = field(default=None, init=False)
    _guard: threading.Lock = field(factory=threading.Lock, init=False)

    def __call__(self, event: ProgressEvent, /) -> None:
        """Record an event, then stop the work if a signal arrived."""
        match event:  # the first four may come from any thread
            case RetryScheduled():
                self.note_wait(event)
            case RequestHeld():
                self._note_wait(f"{event.rule.label}: waiting ", event.delay_s)
            case PaceChanged():
                self.pace = event.pace
            case DatabaseAwaited():
                self.replace_wait("database not reachable; waiting ", event.delay_s, "")
            case _:
                self.update(event)
                if self.stop is not None and not isinstance(event, DownloadFinished):
                    self.stop.check()

    @abstractmethod
    def update(self, event: ProgressEvent) -> None:
        """Record an event of the working thread."""

    @property
    @abstractmethod
    def total(self) -> int | None:
        """How many tiles or items there are, if known."""

    @property
    @abstractmethod
    def done(self) -> int:
        """How many of them are done."""

    @abstractmethod
    def describe_progress(self, now_s: float) -> str:
        """Return how far the work is."""

    def describe_outcomes(self) -> str:
        """Return the outcomes of the tiles."""
        return ""

    def describe_wait(self, now_s: float) -> str:
        """Return the reason for the current wait, or an empty text."""
        if self.stop is not None and self.stop.asked:
            return "stopping: saving what was done; press Ctrl-C again to stop at once"
        wait = self._wait
        return wait.format_line(now_s) if wait is not None and wait.until_s > now_s else ""

    def note_wait(self, event: RetryScheduled) -> None:
        """Record a wait before a retry."""
        self._note_wait(_describe_retry(event), event.delay_s)

    def describe_pace(self) -> str:
        """Return the pace of requests and its cause, or an empty text at full speed."""
        pace = self.pace
        if pace is None or pace.is_full:
            return ""
        requests = f"{pace.concurrency} of {pace.concurrency_max} requests at a time"
        apart = f", {pace.spacing_s:.1f} s apart" if pace.spacing_s else ""
        return f"{requests}{apart}: {pace.cause}"

    def replace_wait(self, reason: str, delay_s: float, details: str) -> None:
        """Record a wait of all work, whatever single calls waited for."""
        until_s = self.clock_s() + delay_s
        with self._guard:
            self._wait = RetryWait(reason=reason, until_s=until_s, details=details)

    def _note_wait(self, reason: str, delay_s: float) -> None:
        wait = RetryWait(reason=reason, until_s=self.clock_s() + delay_s)
        with self._guard:
            if self._wait is None or wait.until_s > self._wait.until_s:
                self._wait = wait


_TASKS = {
    Task.INGEST: ("Ingesting", "files"),
    Task.IMPORT: ("Importing", "tiles"),
    Task.EXPORT: ("Exporting", "tiles"),
    Task.VERIFY_CACHE: ("Verifying", "tiles"),
    Task.CHECK_READINESS: ("Checking", "tiles"),
    Task.READ_AUDIT: ("Reading the audit log", "entries"),
    Task.CREATE_BACKUP: ("Copying", "files"),
    Task.VERIFY_BACKUP: ("Verifying", "files"),
    Task.RESTORE_BACKUP: ("Restoring", "files"),
}


@define(eq=False)
class ItemProgress(ProgressState):
    """Counts the items of a task: an import, an export, a verification, reading the audit log."""

    task: Task | None = field(default=None, init=False)
    total: int | None = field(default=None, init=False)
    done: int = field(default=0, init=False)

    def update(self, event: ProgressEvent) -> None:
        if isinstance(event, ItemsProcessed):
            if event.task is not self.task:
                self.done = 0
            self.task, self.total = event.task, event.total
            self.done += event.items

    def describe_progress(self, now_s: float) -> str:  # noqa: ARG002  # signature of the base class
        """Return the task and its count."""
        if self.task is None:
            return ""
        verb, items = _TASKS[self.task]
        of_all = "" if self.total is None else f" of {self.total:,}"
        return f"{verb}: {self.done:,}{of_all} {items}"


@frozen
class WaitPrinter:
    """A listener that prints one line per wait, for commands without a progress display."""

    console: Console

    def __call__(self, event: ProgressEvent, /) -> None:
        if isinstance(event, RetryScheduled):
            wait = RetryWait(reason=_describe_retry(event), until_s=event.delay_s)
            self.console.print(wait.format_line(0))


def _describe_retry(event: RetryScheduled) -> str:
    """Return why the next attempt waits: the failure, and the rule that set the delay."""
    if event.is_rate_limited:
        return f"rate limited ({event.rule.label}); waiting "
    status = _STATUS.search(event.reason)
    cause = status[1] if status else _shorten_cause(event.reason)
    attempts = f"attempt {event.attempt} of {event.max_attempts}"
    return f"{cause}, {attempts} ({event.rule.label}), again in "


def _shorten_cause(message: str) -> str:
    cause = message.removeprefix("provider: ").partition(", ")[0]
    if cause.startswith(_TIMED_OUT):
        cause = _TIMED_OUT  # the library's message would not fit on a line
    if len(cause) > _CAUSE_CHARS_MAX:
        cause = cause.partition(": ")[0]  # without the details of a library
    return printable(cause, limit=_CAUSE_CHARS_MAX)


@define(eq=False)
class ProgressView:
    """Draws a listener's state in a thread for the duration of a block, then removes the bar.

    Without a terminal it prints a line at intervals instead; for counted items it prints nothing.
    """

    progress: ProgressState
    console: Console = stderr
    silent_s: float = SILENT_S
    line_every_s: float = LINE_EVERY_S
    _ended: threading.Event = field(factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        draw = self._draw_bar if self.console.is_terminal else self._print_lines
        if not self.console.is_terminal and isinstance(self.progress, ItemProgress):
            return self
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
            parts = (
                self.progress.describe_progress(now_s),
                self.progress.describe_pace(),
                self.progress.describe_wait(now_s),
            )
            self.console.print("; ".join(filter(None, parts)))

    def render(self) -> Table:
        progress = self.progress
        now_s = progress.clock_s()
        bar = ProgressBar(pulse=True)
        if progress.total is not None:
            bar = ProgressBar(total=progress.total, completed=progress.done)
        table = Table.grid(expand=True)
        table.add_column(no_wrap=True, overflow="ellipsis")  # wrapped lines would not be erased
        table.add_row(bar)
        width = self.console.width
        table.add_row(Text(fit_line(progress.describe_progress(now_s), width)))
        table.add_row(Text(fit_line(progress.describe_outcomes(), width)))
        table.add_row(Text(fit_line(progress.describe_pace(), width)))
        table.add_row(Text(fit_line(progress.describe_wait(now_s), width), style="yellow"))
        return table


def fit_line(line: str, width: int) -> str:
    """Return a line without its last parts, separated by commas, that do not fit."""
    while len(line) > width and ", " in line:
        line = line.rpartition(", ")[0]
    return line
