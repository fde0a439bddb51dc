"""How far the reading of a long audit log has come, for whoever waits at a terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import define, evolve, field
from rich.console import Console
from rich.status import Status

from tileferry.application.audit_reading import AuditReader
from tileferry.application.ports.audit import AuditLog
from tileferry.domain.audit import ChainEntry, ChainHead
from tileferry.entrypoints.cli.output import notes

SILENT_S = 1.0
"""What takes no longer is not worth a word."""
_EVERY = 500
"""Looking at the clock for each entry would cost more than the entry."""


@contextmanager
def showing(
    reader: AuditReader,
    console: Console = notes,
    clock_s: Callable[[], float] = time.monotonic,
) -> Iterator[AuditReader]:
    """Return the reader, which counts aloud on a terminal; nothing of it is left at the end."""
    if not console.is_terminal:
        yield reader
        return
    status = console.status("Reading the audit log.")
    try:
        yield evolve(reader, log=CountedLog(reader.log, status, clock_s))
    finally:
        status.stop()


@define
class CountedLog:
    """A log that tells how many entries were read of it, once that takes a while."""

    log: AuditLog
    status: Status
    clock_s: Callable[[], float]
    _read: int = field(default=0, init=False)
    _started_s: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._started_s = self.clock_s()

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
            self._read += 1
            if self._read % _EVERY == 0 and self.clock_s() - self._started_s > SILENT_S:
                self.status.update(f"Reading the audit log: {self._read:,} entries.")
                self.status.start()
            yield entry
