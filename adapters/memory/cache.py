"""A lock between the parts of one process."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from attrs import define, field

from tileferry.adapters.memory.tiles import MemoryTileMetadataStore
from tileferry.domain.errors import CacheLockError
from tileferry.domain.tiles import KEPT_STATUSES, CachedTile, TileId
from tileferry.domain.tiles.cache_binding import CacheBinding, CacheId


@define(kw_only=True, eq=False)
class MemoryCacheLock:
    """Locks that share ``holders`` and a ``name`` are locks on one cache."""

    name: str = "memory"
    holders: dict[str, object] = field(factory=dict, repr=False)
    _mark: object | None = field(default=None, init=False)

    def acquire(self) -> None:
        """Take the lock, or refuse at once; who holds it is refused too."""
        mark = object()
        if self.holders.setdefault(self.name, mark) is not mark:
            raise CacheLockError(
                path=self.name,
                problem="this process holds it already",
                remedy="release it first: it is not taken twice",
            )
        self._mark = mark

    def release(self) -> None:
        """Give it back; without holding it, this does nothing."""
        if self._mark is not None:
            del self.holders[self.name]
            self._mark = None

    def check_held(self) -> None:
        """Refuse unless somebody in this process holds the lock."""
        if self.name not in self.holders:
            raise CacheLockError(
                path=self.name,
                problem="this process does not hold it",
                remedy="acquire it before starting the tile manager",
            )


@define
class MemoryCacheMark:
    """The id of a cache in memory."""

    cache_id: CacheId | None = None

    def read(self) -> CacheId | None:
        """Return the id, if the cache has one."""
        return self.cache_id

    def write(self, cache_id: CacheId) -> None:
        """Give the cache its id."""
        self.cache_id = cache_id


@define
class MemoryCacheBindings:
    """Remembers the one cache that the rows are about."""

    cache: CacheBinding | None = None

    def find_bound(self) -> CacheBinding | None:
        """Return the cache, if there is one yet."""
        return self.cache

    def bind(self, cache: CacheBinding, *, instead_of: CacheId | None) -> bool:
        """Remember a cache in the place of that one, and tell whether that was still so."""
        if self.cache is not None and self.cache.cache_id != instead_of:
            return False
        self.cache = cache
        return True


@define(kw_only=True)
class MemoryCacheLedger:
    """Keeps the books over a store in memory; its promises end with the process, as all of it."""

    tiles: MemoryTileMetadataStore
    _reservations: dict[str, int] = field(factory=dict, init=False)
    _pins: set[str] = field(factory=set, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    @contextmanager
    def begin_transaction(self) -> Iterator["MemoryCacheLedger"]:
        """Open the books for one decision."""
        with self._lock:
            yield self

    def sum_used_bytes(self) -> int:
        """Add up the visible tiles."""
        return sum(size for _, size in self.tiles.sum_live_bytes())

    def sum_reserved_bytes(self) -> int:
        """Add up what is promised."""
        return sum(self._reservations.values())

    def iter_candidates(self) -> Iterator[CachedTile]:
        """Yield the tiles, least recently used first."""
        for tile in sorted(self.tiles.all_tiles(), key=lambda tile: tile.last_used_at):
            yield CachedTile(
                tile_id=tile.tile_id,
                size_bytes=tile.blob.length,
                last_used_at=tile.last_used_at,
                pinned=tile.voting_status in KEPT_STATUSES or tile.flight_id in self._pins,
            )

    def evict(self, tile_ids: Sequence[TileId]) -> None:
        """Make tiles invisible."""
        self.tiles.forget(tile_ids)

    def reserve(self, reservation_id: str, reserved_bytes: int) -> None:
        """Note a promise."""
        promised = self._reservations.get(reservation_id, 0)
        self._reservations[reservation_id] = promised + reserved_bytes

    def release(self, reservation_id: str) -> None:
        """Take a promise back."""
        self._reservations.pop(reservation_id, None)

    def pin_flight(self, flight_id: str) -> None:
        """Keep a flight's tiles from being evicted."""
        self._pins.add(flight_id)

    def unpin_flight(self, flight_id: str) -> None:
        """Let them be evicted again."""
        self._pins.discard(flight_id)

    def list_pinned_flights(self) -> Sequence[str]:
        """Return the flights that are pinned, in order."""
        return sorted(self._pins)
