"""Making room for a batch before its first tile is fetched."""

from collections.abc import Callable, Container, Iterator

from attrs import define, evolve, field

from tileferry.application.ports.budget import CacheBooks, CacheLedger, DiskSpace
from tileferry.domain.checks import integer, text
from tileferry.domain.tiles import CachedTile, CacheSpace, EvictionResult, TileId, plan_eviction


@define(kw_only=True)
class CacheBudget:
    """Reserves space within the budget and the disk, evicting the least recently used."""

    ledger: CacheLedger
    disk: DiskSpace
    reclaim: Callable[[], object]
    """Gives the bytes of evicted tiles back to the disk."""
    before_eviction: Callable[[], object] = lambda: None
    """Is told that tiles are about to go: a finished download must not be believed any more."""
    reservation_id: str = field(validator=text)
    """Names the promises of this process among those of others."""
    budget_bytes: int = field(validator=integer(0))
    free_space_reserve_bytes: int = field(validator=integer(0))

    def reserve_headroom(
        self, estimated_bytes: int, *, keep: Container[TileId] = ()
    ) -> EvictionResult:
        """Promise space for a batch, evicting what must go; when it cannot fit, nothing changes."""
        with self.ledger.exclusively() as books:
            result = self._planned(estimated_bytes, books, keep)
            if not result.insufficient:
                if result.evicted:
                    self.before_eviction()
                books.evict(result.evicted)
                books.reserve(self.reservation_id, estimated_bytes)
        if result.evicted:
            self.reclaim()
        return result

    def preview_headroom(
        self, estimated_bytes: int, *, keep: Container[TileId] = ()
    ) -> EvictionResult:
        """Say what reserving would come to; nothing is evicted, and nothing promised."""
        with self.ledger.exclusively() as books:
            return self._planned(estimated_bytes, books, keep)

    def release_headroom(self) -> None:
        """Give back what was promised to this process."""
        self.ledger.release(self.reservation_id)

    def _planned(
        self, estimated_bytes: int, books: CacheBooks, keep: Container[TileId]
    ) -> EvictionResult:
        space = CacheSpace(
            budget_bytes=self.budget_bytes,
            used_bytes=books.used_bytes(),
            reserved_bytes=books.reserved_bytes(),
            free_disk_bytes=self.disk.free_bytes(),
            free_space_reserve_bytes=self.free_space_reserve_bytes,
        )
        return plan_eviction(estimated_bytes, space, _but(keep, books.candidates()))


def _but(keep: Container[TileId], candidates: Iterator[CachedTile]) -> Iterator[CachedTile]:
    return (evolve(tile, pinned=True) if tile.tile_id in keep else tile for tile in candidates)
