"""Making room for a batch before its first tile is fetched."""

from collections.abc import Callable

from attrs import define, field

from tileferry.application.ports.budget import CacheLedger, DiskSpace
from tileferry.domain.checks import integer, text
from tileferry.domain.tiles import CacheSpace, EvictionResult, plan_eviction


@define(kw_only=True)
class CacheBudget:
    """Reserves space within the budget and the disk, evicting the least recently used."""

    ledger: CacheLedger
    disk: DiskSpace
    reclaim: Callable[[], object]
    """Gives the bytes of evicted tiles back to the disk."""
    reservation_id: str = field(validator=text)
    """Names the promises of this process among those of others."""
    budget_bytes: int = field(validator=integer(0))
    free_space_reserve_bytes: int = field(validator=integer(0))

    def reserve_headroom(self, estimated_bytes: int) -> EvictionResult:
        """Promise space for a batch, evicting what must go; when it cannot fit, nothing changes."""
        with self.ledger.exclusively() as books:
            space = CacheSpace(
                budget_bytes=self.budget_bytes,
                used_bytes=books.used_bytes(),
                reserved_bytes=books.reserved_bytes(),
                free_disk_bytes=self.disk.free_bytes(),
                free_space_reserve_bytes=self.free_space_reserve_bytes,
            )
            result = plan_eviction(estimated_bytes, space, books.candidates())
            if not result.insufficient:
                books.evict(result.evicted)
                books.reserve(self.reservation_id, estimated_bytes)
        if result.evicted:
            self.reclaim()
        return result

    def release_headroom(self) -> None:
        """Give back what was promised to this process."""
        self.ledger.release(self.reservation_id)
