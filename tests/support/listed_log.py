"""An audit log of given entries, and a reader of it."""

import logging
from collections.abc import Iterable, Iterator

from attrs import define, field

from tileferry.adapters.memory import ManualClock, MemoryAuditSink
from tileferry.application import AuditTrail, RetryManager
from tileferry.application.audit_reader import AuditReader, DecodedEntry
from tileferry.domain.audit import (
    GENESIS,
    AuditEvent,
    ChainEntry,
    ChainHead,
    build_next_entry,
)
from tileferry.domain.errors import DatabaseError

LOST = DatabaseError(problem="the connection was lost", remedy="run again")


@define
class ListedLog:
    """A log of whatever entries it is given; the next calls may fail."""

    listed: list[ChainEntry]
    claimed: ChainHead | None = None
    failures: list[Exception] = field(factory=list)
    calls: int = 0

    def read_head(self) -> ChainHead:
        self._fail()
        return self.claimed or (self.listed[-1].head if self.listed else GENESIS)

    def iter_entries(self, *, after: int = 0) -> Iterator[ChainEntry]:
        self._fail()
        return (entry for entry in self.listed if entry.sequence > after)

    def find_entries(self, subject: str) -> Iterator[ChainEntry]:
        self._fail()
        return (entry for entry in self.listed if subject.encode() in entry.body)

    def _fail(self) -> None:
        self.calls += 1
        if self.failures:
            raise self.failures.pop()


def make_log(*bodies: bytes | AuditEvent) -> ListedLog:
    entries: list[ChainEntry] = []
    for body in bodies:
        content = body if isinstance(body, bytes) else body.canonical_bytes()
        entries.append(build_next_entry(entries[-1].head if entries else GENESIS, content))
    return ListedLog(entries)


def make_reader(log: ListedLog, sink: MemoryAuditSink | None = None) -> AuditReader:
    clock = ManualClock()
    trail = AuditTrail(logger=logging.getLogger("test"), sinks=[sink] if sink else [])
    manager = RetryManager(clock=clock, new_id=lambda: "id", audit=trail, sleep=clock.sleep_async)
    return AuditReader(log=log, retries=manager)


def list_sequences(entries: Iterable[DecodedEntry]) -> list[int]:
    return [read.entry.sequence for read in entries]
