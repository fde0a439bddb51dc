"""Room for what comes: looked for without taking it, and on a disk that nothing is evicted from."""

from datetime import UTC, datetime

from attrs import frozen

from tileferry.adapters.memory import ManualClock, MemoryCacheLedger, MemoryTileMetadataStore
from tileferry.application import CacheBudget
from tileferry.application.cache.budget import DiskBudget
from tileferry.domain.tiles import BlobRef, NewTile, SectorClass, TileId

OLD, NEW = (TileId(source="sat", zoom=15, x=x, y=1) for x in (1, 2))


@frozen
class FakeDisk:
    """Has so much free."""

    free: int = 10**9

    def free_bytes(self) -> int:
        return self.free

    def total_bytes(self) -> int:
        return 10**12


def ledger_with_two_tiles() -> MemoryCacheLedger:
    """Return the books of a cache with two tiles of 100 bytes each."""
    clock = ManualClock()
    rows = MemoryTileMetadataStore(clock=clock)
    for tile_id in (OLD, NEW):
        clock.advance(60)
        rows.insert_metadata(
            NewTile(
                tile_id=tile_id,
                flight_id="F1",
                produced_at=datetime(2025, 6, 1, tzinfo=UTC),
                resolution_m_per_px=0.6,
                sector_class=SectorClass.STABLE_REAR,
                blob=BlobRef(location=(1, tile_id.x * 100), length=100, sha256="ab" * 32),
            )
        )
        rows.flush()
    return MemoryCacheLedger(tiles=rows)


def test_headroom_preview_is_read_only_and_matches_reservation() -> None:
    ledger = ledger_with_two_tiles()
    reclaimed: list[int] = []
    budget = CacheBudget(
        ledger=ledger,
        disk=FakeDisk(),
        reclaim=lambda: reclaimed.append(ledger.sum_used_bytes()),
        budget_bytes=200,
        free_space_reserve_bytes=0,
        find_reservation_id=lambda: "me",
    )
    seen = budget.preview_headroom(50)
    assert (list(seen.evicted), seen.insufficient) == ([OLD], False)
    assert (ledger.sum_used_bytes(), ledger.sum_reserved_bytes(), reclaimed) == (200, 0, [])
    assert list(budget.preview_headroom(50, keep={OLD}).evicted) == [NEW]
    assert budget.reserve_headroom(50) == seen
    assert (ledger.sum_used_bytes(), ledger.sum_reserved_bytes(), reclaimed) == (100, 50, [100])
    budget.release_headroom()
    assert ledger.sum_reserved_bytes() == 0


def test_disk_budget_excludes_free_space_reserve() -> None:
    budget = DiskBudget(disk=FakeDisk(1_000), free_space_reserve_bytes=100)
    assert not budget.reserve_headroom(900).insufficient
    refused = budget.reserve_headroom(901)
    assert refused.insufficient
    assert "1000 B free, and 100 B must stay free" in str(refused.build_error())
    budget.release_headroom()
    assert not budget.reserve_headroom(900).insufficient
