"""Figures of an installation for monitoring: its database and its storage."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from attrs import field, frozen

COUNT_MAX = 100_000
"""Queues and uploads are counted up to this number, so that reading stays cheap."""


@frozen(kw_only=True)
class QueueFigures:
    """The runs of one source that are not done, and what limits them."""

    source: str
    ready: int
    waiting: int
    """Runs that wait until their retry is due."""
    leased: int
    oldest_ready_at: datetime | None
    retry_tokens: float
    closed_until: datetime | None
    """When the source accepts requests again; ``None`` if it does now."""


@frozen(kw_only=True)
class DatabaseFigures:
    """The state of the database. Counts of large tables are estimates from a sample."""

    now: datetime
    latency_s: float
    """The time of one short query."""
    schema_revision: str | None
    runs: Mapping[str, int]
    """By status."""
    partitions: Mapping[str, int]
    queues: Sequence[QueueFigures]
    workers: int
    """Workers that hold a lease."""
    expired_leases: int
    """Leases that no worker has renewed in time; their runs are to be rescued."""
    tiles: int
    tile_bytes: int
    pending_uploads: int
    giveups: int
    audit_sequence: int
    audit_at: datetime | None
    """When the newest audit event occurred."""
    verdict_at: datetime | None
    """When the validator judged last."""


@frozen(kw_only=True)
class StorageFigures:
    """The state of the cache's folder and its disk."""

    cache_bytes: int
    budget_bytes: int
    free_bytes: int
    reserve_bytes: int
    outbox_bytes: Mapping[str, int] = field(factory=dict)
    """Audit events that wait for a sink, by sink."""


class FigureReader(Protocol):
    """Reads the figures of the database in bounded time."""

    def read(self) -> DatabaseFigures:
        """Return the current figures; raise ``DatabaseError`` if the server does not answer."""
        ...
