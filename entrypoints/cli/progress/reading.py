"""How far the reading of a long audit log has come, for whoever waits at a terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import evolve, frozen
from rich.console import Console

from tileferry.application.audit_reading import AuditReader
from tileferry.application.ports.audit import AuditLog
from tileferry.domain.audit import ChainEntry, ChainHead
from tileferry.entrypoints.cli.output import notes
from tileferry.entrypoints.cli.progress.counting import counting


@contextmanager
def showing(
    reader: AuditReader,
    console: Console = notes,
    clock_s: Callable[[], float] = time.monotonic,
) -> Iterator[AuditReader]:
    """Return the reader, which counts aloud on a terminal."""
    with counting("Reading the audit log", "entries", console=console, clock_s=clock_s) as on_entry:
        yield evolve(reader, log=CountedLog(reader.log, on_entry))


@frozen
class CountedLog:
    """A log that tells of each entry that is read of it."""

    log: AuditLog
    on_entry: Callable[[], None]

    def head(self) -> ChainHead:
        """Return the log's own."""
        return self.log.head()

    def entries(self, *, after: int = 0) -> Iterator[ChainEntry]:
        """Yield the log's own, counted."""
        return self._counted(self.log.entries(after=after))

    def entries_about(self, subject: str) -> Iterator[ChainEntry]:
        """Yield the log's own, counted."""
        return self._counted(self.log.entries_about(subject))

    def _counted(self, entries: Iterator[ChainEntry]) -> Iterator[ChainEntry]:
        for entry in entries:
            self.on_entry()
            yield entry
