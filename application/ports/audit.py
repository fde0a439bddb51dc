"""The audit log: sinks that store events, and the log that is read back."""

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from tileferry.domain.audit import AlertChanged, AuditEvent, ChainEntry, ChainHead


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
