"""Showing how a transfer gets on: a bar on a terminal, a line now and then anywhere else."""

import threading
from types import TracebackType
from typing import Protocol, Self

from attrs import define, field
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

SILENT_S = 1.0
"""What takes no longer is not worth a bar."""
LINE_EVERY_S = 10.0
REFRESH_PER_S = 4


class Progress(Protocol):
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

    def headline(self, now_s: float) -> str:
        """Tell how far it is."""
        ...

    def outcomes(self) -> str:
        """Tell what became of the tiles."""
        ...

    def waiting(self, now_s: float) -> str:
        """Tell what it waits for, if it does."""
        ...


@define(eq=False)
class ProgressView:
    """Draws in a thread of its own while the block lasts; nothing is left of a bar."""

    progress: Progress
    console: Console
    silent_s: float = SILENT_S
    line_every_s: float = LINE_EVERY_S
    _ended: threading.Event = field(factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        draw = self._bar if self.console.is_terminal else self._lines
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

    def _bar(self) -> None:
        if self._ended.wait(self.silent_s):
            return
        with Live(
            get_renderable=self.picture,
            console=self.console,
            refresh_per_second=REFRESH_PER_S,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ):
            self._ended.wait()

    def _lines(self) -> None:
        while not self._ended.wait(self.line_every_s):
            now_s = self.progress.clock_s()
            parts = (self.progress.headline(now_s), self.progress.waiting(now_s))
            self.console.print("; ".join(filter(None, parts)))

    def picture(self) -> Table:
        """Return what the terminal shows now."""
        progress = self.progress
        now_s = progress.clock_s()
        bar = ProgressBar(pulse=True)
        if progress.tiles is not None:
            bar = ProgressBar(total=progress.tiles, completed=progress.done)
        table = Table.grid(expand=True)
        table.add_column(no_wrap=True, overflow="ellipsis")  # a picture that wraps leaves traces
        table.add_row(bar)
        table.add_row(Text(progress.headline(now_s)))
        table.add_row(Text(progress.outcomes()))
        table.add_row(Text(progress.waiting(now_s), style="yellow"))
        return table
