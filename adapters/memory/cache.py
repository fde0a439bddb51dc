"""In-memory cache lock, cache id, cache binding and space accounting."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from attrs import define, field

from tileferry.adapters.memory.flights import MemoryFlightBook
from tileferry.adapters.memory.tiles import MemoryTileMetadataStore
from tileferry.application.ports.inventory import CacheUsage
from tileferry.domain.errors import CacheLockError
from tileferry.domain.tiles import (
    KEPT_STATUSES,
    CachedTile,
    PrunedTiles,
    PruneRule,
    TileId,
    TileMetadata,
)
from tileferry.domain.tiles.cache_binding import CacheBinding, CacheId


@define(kw_only=True, eq=False)
class MemoryCacheLock:
    """Locks with the same ``holders`` and ``name`` lock the same cache."""

    name: str = "memory"
    holders: dict[str, str] = field(factory=dict, repr=False)
    """The owner of each locked cache."""
    owner: str = "this process"
    _held: bool = field(default=False, init=False)

    def acquire(self) -> None:
        """Take the lock without waiting; raise if it is held, even by this object."""
        if self.name in self.holders:
            raise CacheLockError(
                path=self.name,
                problem=f"{self.holders[self.name]} holds it already",
                remedy="release it first",
            )
        self.holders[self.name] = self.owner
        self._held = True

    def release(self) -> None:
        """Release the lock; do nothing if this object does not hold it."""
        if self._held:
            del self.holders[self.name]
            self._held = False

    def check_held(self) -> None:
        """Raise unless the lock is held in this process."""
        if self.holders.get(self.name) != self.owner:
            raise CacheLockError(
                path=self.name,
                problem="this process does not hold the cache's lock",
                remedy="acquire it before starting the tile manager",
            )


@define
class MemoryCacheMark:
    """The id of an in-memory cache."""

    cache_id: CacheId | None = None

    def read(self) -> CacheId | None:
        return self.cache_id

    def write(self, cache_id: CacheId) -> None:
        self.cache_id = cache_id


@define
class MemoryCacheBindings:
    """The cache that the tile metadata refers to."""

    cache: CacheBinding | None = None

    def find_bound(self) -> CacheBinding | None:
        """Return the bound cache, or ``None`` if no cache is bound yet."""
        return self.cache

    def bind(self, cache: CacheBinding, *, instead_of: CacheId | None) -> bool:
        """Bind ``cache``, unless a cache other than ``instead_of`` is bound; return success."""
        if self.cache is not None and self.cache.cache_id != instead_of:
            return False
        self.cache = cache
        return True


@define(kw_only=True)
class MemoryCacheLedger:
    """Space accounting for an in-memory store. Reservations end with the process."""

    tiles: MemoryTileMetadataStore
    flights: MemoryFlightBook | None = None
    """Without it, no flight is pinned."""
    _reservations: dict[str, int] = field(factory=dict, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    @contextmanager
    def begin_transaction(self) -> Iterator["MemoryLedgerTransaction"]:
        """Start one decision about space; other threads wait until it ends."""
        with self._lock:
            books = MemoryLedgerTransaction(self)
            yield books
            self.tiles.forget(books.removed)
            self._reservations |= books.reserved

    def release(self, reservation_id: str) -> None:
        """Delete a reservation."""
        self._reservations.pop(reservation_id, None)

    def sum_used_bytes(self) -> int:
        """Return the total size of the visible tiles."""
        return sum(size for _, size in self.tiles.sum_live_bytes())

    def sum_reserved_bytes(self) -> int:
        """Return the total of the reservations."""
        return sum(self._reservations.values())

    def measure_usage(self) -> CacheUsage:
        """Return the visible tiles and the reservations."""
        return CacheUsage(
            tiles=self.tiles.count(),
            used_bytes=self.sum_used_bytes(),
            reserved_bytes=self.sum_reserved_bytes(),
        )

    def get_reservations(self) -> dict[str, int]:
        """Return the bytes of each reservation."""
        return dict(self._reservations)

    def is_protected(self, tile: TileMetadata) -> bool:
        """Return whether a tile must stay: not uploaded yet, or of a pinned flight."""
        return tile.voting_status in KEPT_STATUSES or (
            self.flights is not None and self.flights.protects(tile)
        )


@define
class MemoryLedgerTransaction:
    """A decision about space; its changes take effect when it is committed."""

    ledger: MemoryCacheLedger
    removed: list[TileId] = field(factory=list, init=False)
    reserved: dict[str, int] = field(factory=dict, init=False)

    def sum_used_bytes(self) -> int:
        """Return the total size of the visible tiles."""
        return sum(tile.blob.length for tile in self._list_tiles())

    def sum_reserved_bytes(self) -> int:
        """Return the total of the reservations."""
        return sum((self.ledger.get_reservations() | self.reserved).values())

    def iter_candidates(self) -> Iterator[CachedTile]:
        """Yield the tiles, least recently used first, then by id."""
        for tile in sorted(self._list_tiles(), key=_get_use):
            yield CachedTile(
                tile_id=tile.tile_id,
                size_bytes=tile.blob.length,
                last_used_at=tile.last_used_at,
                pinned=self.ledger.is_protected(tile),
            )

    def evict(self, tile_ids: Sequence[TileId]) -> None:
        self.removed.extend(tile_ids)

    def measure_prunable(self, rule: PruneRule) -> PrunedTiles:
        """Return what ``prune`` would remove."""
        found = self._find_prunable(rule)
        return PrunedTiles(tiles=len(found), size_bytes=sum(tile.blob.length for tile in found))

    def prune(self, rule: PruneRule) -> PrunedTiles:
        """Make the tiles of a rule invisible, except protected ones."""
        removed = self.measure_prunable(rule)
        self.evict([tile.tile_id for tile in self._find_prunable(rule)])
        return removed

    def reserve(self, reservation_id: str, reserved_bytes: int) -> None:
        """Reserve space; a second reservation with the same id adds to the first."""
        known = self.ledger.get_reservations() | self.reserved
        self.reserved[reservation_id] = known.get(reservation_id, 0) + reserved_bytes

    def _find_prunable(self, rule: PruneRule) -> list[TileMetadata]:
        flights = self.ledger.flights
        return [
            tile
            for tile in self._list_tiles()
            if not self.ledger.is_protected(tile)
            and rule.matches(tile, is_owned=flights is not None and flights.contains(tile))
        ]

    def _list_tiles(self) -> list[TileMetadata]:
        return [tile for tile in self.ledger.tiles.all_tiles() if tile.tile_id not in self.removed]


def _get_use(tile: TileMetadata) -> tuple[datetime, TileId]:
    return tile.last_used_at, tile.tile_id
