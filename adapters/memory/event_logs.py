"""In-memory audit log with its outbox, and flight data recorder."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock

from attrs import define, field

from tileferry.application.ports import Clock
from tileferry.application.ports.audit import EventGroup, OutboxStatus
from tileferry.application.ports.fdr import FdrRecord
from tileferry.domain.audit import (
    GENESIS,
    AuditEvent,
    ChainEntry,
    ChainHead,
    EventsLost,
    build_next_entry,
    is_about,
)
from tileferry.domain.canonical import JsonValue


@define(kw_only=True, eq=False)
class MemoryAuditSink:
    """Audit sink and hash-chained log in one."""

    name: str = "memory"
    _events: list[AuditEvent] = field(factory=list, init=False)
    _entries: list[ChainEntry] = field(factory=list, init=False)
    _group_ids: set[str] = field(factory=set, init=False)
    _guard: Lock = field(factory=Lock, init=False)

    def emit(self, events: Sequence[AuditEvent]) -> None:
        """Append a group of events."""
        with self._guard:
            self._append(events)

    def emit_group(self, group: EventGroup) -> None:
        """Append a group of events, unless it is there already."""
        with self._guard:
            if group.group_id not in self._group_ids:
                self._append(group.events)
                self._group_ids.add(group.group_id)

    def _append(self, events: Sequence[AuditEvent]) -> None:
        bodies = [event.canonical_bytes() for event in events]
        for event, body in zip(events, bodies, strict=True):
            self._entries.append(build_next_entry(self._head(), body))
            self._events.append(event)

    @property
    def events(self) -> Sequence[AuditEvent]:
        """The emitted events, in order."""
        with self._guard:
            return tuple(self._events)

    def read_head(self) -> ChainHead:
        """Return the last sequence number and hash of the chain."""
        with self._guard:
            return self._head()

    def iter_entries(self, *, after: int = 0) -> Iterator[ChainEntry]:
        """Yield the entries after a sequence number that exist when the read starts."""
        with self._guard:
            return iter(self._entries[max(after, 0) :])

    def find_entries(self, subject: str) -> Iterator[ChainEntry]:
        """Yield the entries about ``subject``."""
        return (entry for entry in self.iter_entries() if is_about(entry.body, subject))

    def _head(self) -> ChainHead:
        return self._entries[-1].head if self._entries else GENESIS


@define(kw_only=True, eq=False)
class MemoryAuditOutbox:
    """The outbox of one sink, for at most ``events_max`` events."""

    name: str = "memory"
    events_max: int = 10_000
    _groups: deque[EventGroup] = field(factory=deque, init=False)
    _lost: EventsLost | None = field(default=None, init=False)
    _gaps: int = field(default=0, init=False)
    _guard: Lock = field(factory=Lock, init=False)
    _delivering: Lock = field(factory=Lock, init=False)

    def append(self, group: EventGroup) -> bool:
        """Add a group; return ``False`` if there is no room for it."""
        with self._guard:
            if self._count_events() + len(group.events) > self.events_max:
                return False
            self._groups.append(group)
        return True

    def record_loss(self, lost: EventsLost) -> None:
        """Add lost events to the gap."""
        with self._guard:
            self._lost = lost if self._lost is None else self._lost.merge(lost)

    def deliver(self, send: Callable[[EventGroup], None], *, has_time: Callable[[], bool]) -> bool:
        """Send the groups in order, then the gap; remove each that was sent."""
        if not self._delivering.acquire(blocking=False):
            return False
        try:
            while self._groups:
                if not has_time():
                    return False
                send(self._groups[0])
                self._groups.popleft()
            lost, self._lost = self._lost, None
            if lost is not None:
                self._send_gap(lost, send)
        finally:
            self._delivering.release()
        return True

    def read_status(self) -> OutboxStatus:
        """Count what waits."""
        with self._guard:
            return OutboxStatus(name=self.name, events=self._count_events(), lost=self._lost)

    def _send_gap(self, lost: EventsLost, send: Callable[[EventGroup], None]) -> None:
        try:
            send(
                EventGroup(
                    group_id=f"gap-{id(self)}-{self._gaps}", events=[lost], sent_at=lost.timestamp
                )
            )
        except BaseException:
            self.record_loss(lost)
            raise
        self._gaps += 1

    def _count_events(self) -> int:
        return sum(len(group.events) for group in self._groups)


@define(kw_only=True, eq=False)
class MemoryFdrClient:
    """Flight data recorder that keeps the last ``records_max`` events."""

    clock: Clock
    records_max: int = 10_000
    _records: deque[FdrRecord] = field(init=False)
    _sequence: int = field(default=0, init=False)
    _durable: int = field(default=0, init=False)
    _guard: Lock = field(factory=Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._records = deque(maxlen=self.records_max)

    def record(self, kind: str, payload: Mapping[str, JsonValue], *, durable: bool = False) -> None:
        """Record an event; with ``durable``, it and all before it survive ``lose_power``."""
        with self._guard:
            record = FdrRecord(
                sequence=self._sequence + 1,
                recorded_at_s=self.clock.now(),
                kind=kind,
                payload=payload,
            )
            self._records.append(record)
            self._sequence = record.sequence
            if durable:
                self._durable = record.sequence

    def lose_power(self, random: Callable[[], float]) -> None:
        """Lose the last records, as many as ``random`` (0 to 1) says; not the durable ones."""
        with self._guard:
            kept = self._durable + int(random() * (self._sequence - self._durable + 1))
            while self._records and self._records[-1].sequence > kept:
                self._records.pop()
            self._sequence = self._durable = kept

    def records(self) -> Iterator[FdrRecord]:
        """Return the kept records, oldest first."""
        with self._guard:
            return iter(tuple(self._records))
