"""An audit log that is gone with its process."""

from collections.abc import Iterator, Sequence
from threading import Lock

from attrs import define, field

from tileferry.domain.audit import (
    GENESIS,
    AuditEvent,
    ChainEntry,
    ChainHead,
    next_entry,
    tells_of,
)


@define(kw_only=True, eq=False)
class MemoryAuditSink:
    """Keeps events and their chain; it is the sink and the log."""

    name: str = "memory"
    _events: list[AuditEvent] = field(factory=list, init=False)
    _entries: list[ChainEntry] = field(factory=list, init=False)
    _guard: Lock = field(factory=Lock, init=False)

    def emit(self, events: Sequence[AuditEvent]) -> None:
        """Append a group."""
        bodies = [event.canonical_bytes() for event in events]
        with self._guard:
            for event, body in zip(events, bodies, strict=True):
                self._entries.append(next_entry(self._head(), body))
                self._events.append(event)

    @property
    def events(self) -> Sequence[AuditEvent]:
        """What was emitted, in order."""
        with self._guard:
            return tuple(self._events)

    def head(self) -> ChainHead:
        """Return where the chain stands."""
        with self._guard:
            return self._head()

    def entries(self, *, after: int = 0) -> Iterator[ChainEntry]:
        """Yield what was there when the reading began."""
        with self._guard:
            return iter(self._entries[max(after, 0) :])

    def entries_about(self, subject: str) -> Iterator[ChainEntry]:
        """Yield the entries that tell of something."""
        return (entry for entry in self.entries() if tells_of(entry.body, subject))

    def _head(self) -> ChainHead:
        return self._entries[-1].head if self._entries else GENESIS
