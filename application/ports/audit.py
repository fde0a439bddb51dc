"""The audit log: where events go, and how they are read back."""

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from tileferry.domain.audit import AuditEvent, ChainEntry, ChainHead


@runtime_checkable
class AuditSink(Protocol):
    """Takes events in. Any thread may emit."""

    @property
    def name(self) -> str:
        """What logs and counters call it."""
        ...

    def emit(self, events: Sequence[AuditEvent]) -> None:
        """Take a group of events, all or none; they are as safe as this sink makes them."""
        ...


class AuditLog(Protocol):
    """An audit log that can be read: entries in the order of their sequence, each chained."""

    def read_head(self) -> ChainHead:
        """Return where the chain stands; ``GENESIS`` for an empty log."""
        ...

    def iter_entries(self, *, after: int = 0) -> Iterator[ChainEntry]:
        """Yield the entries beyond a sequence number, a page at a time, whatever is in them."""
        ...

    def find_entries(self, subject: str) -> Iterator[ChainEntry]:
        """Yield the entries that tell of a correlation id, an idempotency key or a subject."""
        ...
