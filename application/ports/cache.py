"""The cache's budget and ledger, its binding to a database, its disk and its lock."""

from collections.abc import Container, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):  # for annotations
    from tileferry.domain.tiles import (
        CachedTile,
        EvictionResult,
        PrunedTiles,
        PruneRule,
        TileId,
    )
    from tileferry.domain.tiles.cache_binding import CacheBinding, CacheId


@runtime_checkable
class CacheBudgetEnforcer(Protocol):
    """Reserves space before a batch begins, or reports how much is missing."""

    def reserve_headroom(
        self, estimated_bytes: int, *, keep: Container[TileId] = ()
    ) -> EvictionResult:
        """Reserve space for a batch, evicting tiles if needed; if it cannot fit, change nothing.

        Tiles in ``keep`` are not evicted: they belong to the batch and are already stored.
        """
        ...

    def release_headroom(self) -> None:
        """Release this enforcer's reservation after a batch; stored tiles count as used."""
        ...


class LedgerTransaction(Protocol):
    """The ledger, locked against other changes."""

    def sum_used_bytes(self) -> int:
        """Return the total size of the visible tiles."""
        ...

    def sum_reserved_bytes(self) -> int:
        """Return the total of the reservations that have not expired."""
        ...

    def iter_candidates(self) -> Iterator[CachedTile]:
        """Yield the tiles, least recently used first, then by id; protected ones are pinned."""
        ...

    def evict(self, tile_ids: Sequence[TileId]) -> None:
        """Make tiles invisible."""
        ...

    def measure_prunable(self, rule: PruneRule) -> PrunedTiles:
        """Return what ``prune`` would remove."""
        ...

    def prune(self, rule: PruneRule) -> PrunedTiles:
        """Make the tiles of a rule invisible, except protected ones."""
        ...

    def reserve(self, reservation_id: str, reserved_bytes: int) -> None:
        """Record a reservation; it expires if its process dies without releasing it."""
        ...


class CacheLedger(Protocol):
    """Stores space usage and reservations."""

    def begin_transaction(self) -> AbstractContextManager[LedgerTransaction]:
        """Open a transaction; it is committed when the block ends without an error."""
        ...

    def release(self, reservation_id: str) -> None:
        """Remove a reservation."""
        ...


class DiskSpace(Protocol):
    """The disk that holds the cache."""

    def free_bytes(self) -> int:
        """Return the number of bytes that this user can write."""
        ...

    def total_bytes(self) -> int:
        """Return the size of the disk."""
        ...


class CacheMark(Protocol):
    """The id of a cache, stored with its tiles: it moves with them and is lost with them."""

    def read(self) -> CacheId | None:
        """Return the cache's id, if it has one; change nothing."""
        ...

    def write(self, cache_id: CacheId) -> None:
        """Store the cache's id durably."""
        ...


class CacheBindings(Protocol):
    """Records which cache the database describes."""

    def find_bound(self) -> CacheBinding | None:
        """Return the bound cache, if any."""
        ...

    def bind(self, cache: CacheBinding, *, instead_of: CacheId | None) -> bool:
        """Bind a cache if ``instead_of`` is still the bound one; return whether it was."""
        ...


class CacheLock(Protocol):
    """The exclusive lock of a cache; it is released when its process ends."""

    def acquire(self) -> None:
        """Take the lock, or raise at once, naming the holder; the holder cannot take it again."""
        ...

    def release(self) -> None:
        """Release the lock; do nothing if it is not held."""
        ...

    def check_held(self) -> None:
        """Raise unless this process holds the lock, through this object or another."""
        ...
