"""Reserve space for a batch before its first tile is fetched."""

from collections.abc import Callable, Container, Iterator

from attrs import define, evolve, field, frozen

from tileferry.application.ports.cache import CacheLedger, DiskSpace, LedgerTransaction
from tileferry.domain.tiles import (
    CachedTile,
    CacheSpace,
    DiskRoom,
    EvictionResult,
    TileId,
    plan_eviction,
)
from tileferry.domain.validation import integer


@define(kw_only=True)
class CacheBudget:
    """Reserves space within the budget and the disk; evicts the least recently used tiles."""

    ledger: CacheLedger
    disk: DiskSpace
    reclaim: Callable[[], object]
    """Frees the disk space of evicted tiles."""
    before_eviction: Callable[[], object] = lambda: None
    """Called before tiles are evicted: completed downloads are no longer complete then."""
    find_reservation_id: Callable[[], str]
    """Returns the name of this cache's reservation; called while the cache is held."""
    budget_bytes: int = field(validator=integer(0))
    free_space_reserve_bytes: int = field(validator=integer(0))

    def reserve_headroom(
        self, estimated_bytes: int, *, keep: Container[TileId] = ()
    ) -> EvictionResult:
        """Reserve space for a batch, evicting tiles if needed; if it cannot fit, change nothing."""
        with self.ledger.begin_transaction() as books:
            result = self._plan(estimated_bytes, books, keep)
            if not result.insufficient:
                if result.evicted:
                    self.before_eviction()
                books.evict(result.evicted)
                books.reserve(self.find_reservation_id(), estimated_bytes)
        if result.evicted:
            self.reclaim()
        return result

    def preview_headroom(
        self, estimated_bytes: int, *, keep: Container[TileId] = ()
    ) -> EvictionResult:
        """Return what a reservation would evict; nothing is evicted or reserved."""
        with self.ledger.begin_transaction() as books:
            return self._plan(estimated_bytes, books, keep)

    def release_headroom(self) -> None:
        """Release the reservation of this cache."""
        self.ledger.release(self.find_reservation_id())

    def _plan(
        self, estimated_bytes: int, books: LedgerTransaction, keep: Container[TileId]
    ) -> EvictionResult:
        space = CacheSpace(
            budget_bytes=self.budget_bytes,
            used_bytes=books.sum_used_bytes(),
            reserved_bytes=books.sum_reserved_bytes(),
            free_disk_bytes=self.disk.free_bytes(),
            free_space_reserve_bytes=self.free_space_reserve_bytes,
        )
        return plan_eviction(estimated_bytes, space, _pin_kept(keep, books.iter_candidates()))


def _pin_kept(keep: Container[TileId], candidates: Iterator[CachedTile]) -> Iterator[CachedTile]:
    return (evolve(tile, pinned=True) if tile.tile_id in keep else tile for tile in candidates)


@frozen(kw_only=True)
class DiskBudget:
    """Checks batches against the free disk space minus a reserve; ignores other reservations."""

    disk: DiskSpace
    free_space_reserve_bytes: int = field(validator=integer(0))

    def reserve_headroom(
        self,
        estimated_bytes: int,
        *,
        keep: Container[TileId] = (),  # noqa: ARG002  # nothing is evicted
    ) -> EvictionResult:
        """Check whether a batch fits."""
        room = DiskRoom(
            free_bytes=self.disk.free_bytes(), reserve_bytes=self.free_space_reserve_bytes
        )
        return EvictionResult(
            requested_bytes=estimated_bytes, available_bytes=room.available_bytes, tight_disk=room
        )

    def release_headroom(self) -> None:
        """Do nothing: nothing was reserved."""
