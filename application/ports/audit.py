"""The audit log: sinks that store events, their outboxes, and the log that is read back."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from attrs import frozen

from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):  # for annotations
    from tileferry.domain.audit import (
        AlertChanged,
        AuditEvent,
        ChainEntry,
        ChainHead,
        EventsLost,
    )


@runtime_checkable
class AuditSink(Protocol):
    """Stores events. Thread-safe."""

    @property
    def name(self) -> str:
        """The sink's name in logs and counters."""
        ...

    def emit(self, events: Sequence[AuditEvent]) -> None:
        """Store a group of events, all or none; durability depends on the sink."""
        ...


@frozen(kw_only=True)
class EventGroup:
    """Events that are stored together, with an id that stays the same when they are sent again."""

    group_id: str
    events: Sequence[AuditEvent]
    sent_at: datetime | None = None
    """When it was sent first, so that the sink may have stored it; ``None`` the first time."""


@runtime_checkable
class GroupSink(AuditSink, Protocol):
    """A sink that recognizes a group it has stored."""

    def emit_group(self, group: EventGroup) -> None:
        """Store a group of events, unless it is stored already.

        Raise ``InvalidValueError`` if it can never be stored; any other error means: later.
        """
        ...


@frozen(kw_only=True)
class OutboxStatus:
    """What waits in an outbox."""

    name: str
    events: int = 0
    damaged: int = 0
    """Unreadable records; they are reported as lost when the sink is available."""
    lost: EventsLost | None = None
    """A gap that is not in the log yet."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits for delivery."""
        return not (self.events or self.damaged or self.lost)

    def describe(self) -> str:
        """Return what waits, and for which sink."""
        parts = [f"{self.events} event{'' if self.events == 1 else 's'}"]
        if self.damaged:
            parts.append(f"{self.damaged} damaged")
        if self.lost is not None:
            parts.append(f"a gap of {self.lost.events}")
        return f"{self.name}: {', '.join(parts)}"


class AuditOutbox(Protocol):
    """The events of one sink that wait for delivery, in order. Durable; shared by processes."""

    def append(self, group: EventGroup) -> bool:
        """Add a group durably; return ``False`` if there is no room for it."""
        ...

    def record_loss(self, lost: EventsLost) -> None:
        """Add lost events to the gap that is delivered after all groups."""
        ...

    def deliver(self, send: Callable[[EventGroup], None], *, has_time: Callable[[], bool]) -> bool:
        """Send the groups in order, then the gap; remove each that was sent.

        Stop when there is no time, or with the first error of ``send``. Return whether nothing is
        left; ``False`` as well while another process or thread delivers.
        """
        ...

    def read_status(self) -> OutboxStatus:
        """Count what waits. Read-only."""
        ...


class AlertReceiver(Protocol):
    """Receives alerts outside of the installation, such as a webhook. Thread-safe."""

    def send(self, change: AlertChanged) -> None:
        """Deliver a change; raise ``AlertDeliveryError`` if it was not accepted."""
        ...


class AuditLog(Protocol):
    """A readable audit log: chained entries in the order of their sequence numbers."""

    def read_head(self) -> ChainHead:
        """Return the head of the chain; ``GENESIS`` for an empty log."""
        ...

    def iter_entries(self, *, after: int = 0) -> Iterator[ChainEntry]:
        """Yield the entries after a sequence number, a page at a time, without validating them."""
        ...

    def find_entries(self, subject: str) -> Iterator[ChainEntry]:
        """Yield the entries about a correlation id, an idempotency key or a subject."""
        ...
