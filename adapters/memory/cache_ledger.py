"""The cache's books in memory."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from attrs import define, field

from tileferry.adapters.memory.tile_metadata import MemoryTileMetadataStore
from tileferry.domain.tiles import KEPT_STATUSES, CachedTile, TileId


@define(kw_only=True)
class MemoryCacheLedger:
    """Keeps the books over a store in memory; its promises end with the process, as all of it."""

    tiles: MemoryTileMetadataStore
    _reservations: dict[str, int] = field(factory=dict, init=False)
    _pins: set[str] = field(factory=set, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    @contextmanager
    def exclusively(self) -> Iterator["MemoryCacheLedger"]:
        """Open the books for one decision."""
        with self._lock:
            yield self

    def used_bytes(self) -> int:
        """Add up the visible tiles."""
        return sum(size for _, size in self.tiles.live_bytes())

    def reserved_bytes(self) -> int:
        """Add up what is promised."""
        return sum(self._reservations.values())

    def candidates(self) -> Iterator[CachedTile]:
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

    def pinned_flights(self) -> Sequence[str]:
        """Return the flights that are pinned, in order."""
        return sorted(self._pins)
