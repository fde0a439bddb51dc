"""How many things were gone through, for whoever waits at a terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import evolve, frozen
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from tileferry.application.audit_reader import AuditReader
from tileferry.application.ports.audit import AuditLog
from tileferry.domain.audit import ChainEntry, ChainHead
from tileferry.entrypoints.cli.output import stderr

SILENT_S = 1.0
"""What takes no longer is not worth a word."""
_EVERY = 500
"""Looking at the clock for each tile would cost more than the tile."""


@contextmanager
def show_count(
    doing: str,
    things: str = "tiles",
    *,
    of: int | None = None,
    console: Console = stderr,
    clock_s: Callable[[], float] = time.monotonic,
) -> Iterator[Callable[[], None]]:
    """Return what is to be called for each thing; on a terminal it counts aloud.

    With a bar, where it is known how many there are; nothing of it is left at the end.
    """
    shown = Progress(*_build_columns(of), console=console, transient=True)
    task = shown.add_task(doing, total=of)
    begun_s, seen = clock_s(), 0

    def on_thing() -> None:
        nonlocal seen
        seen += 1
        if seen % _EVERY == 0 and console.is_terminal and clock_s() - begun_s > SILENT_S:
            shown.update(task, completed=seen, description=f"{doing}: {seen:,} {things}")
            shown.start()

    try:
        yield on_thing
    finally:
        if shown.live.is_started:  # else it would leave an empty line
            shown.stop()


def _build_columns(of: int | None) -> list[ProgressColumn]:
    told: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description}")]
    return told if of is None else [*told, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]


@contextmanager
def show_reading(
    reader: AuditReader,
    console: Console = stderr,
    clock_s: Callable[[], float] = time.monotonic,
) -> Iterator[AuditReader]:
    """Return the reader, which counts aloud on a terminal."""
    with show_count(
        "Reading the audit log", "entries", console=console, clock_s=clock_s
    ) as on_entry:
        yield evolve(reader, log=CountingLog(reader.log, on_entry))


@frozen
class CountingLog:
    """A log that tells of each entry that is read of it."""

    log: AuditLog
    on_entry: Callable[[], None]

    def read_head(self) -> ChainHead:
        """Return the log's own."""
        return self.log.read_head()

    def iter_entries(self, *, after: int = 0) -> Iterator[ChainEntry]:
        """Yield the log's own, counted."""
        return self._count_entries(self.log.iter_entries(after=after))

    def find_entries(self, subject: str) -> Iterator[ChainEntry]:
        """Yield the log's own, counted."""
        return self._count_entries(self.log.find_entries(subject))

    def _count_entries(self, entries: Iterator[ChainEntry]) -> Iterator[ChainEntry]:
        for entry in entries:
            self.on_entry()
            yield entry
