"""What a cache holds, and its pins."""

from datetime import UTC, datetime

import pytest

from tileferry.adapters.memory import ManualClock, MemoryTileMetadataStore
from tileferry.adapters.memory.cache import MemoryCacheLedger
from tileferry.application import CacheBudget
from tileferry.application.cache.inventory import CacheInventory, CacheStats
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BlobRef, NewTile, SectorClass, TileId


class FakeDisk:
    """A disk with room."""

    def free_bytes(self) -> int:
        return 5_000

    def total_bytes(self) -> int:
        raise AssertionError


@pytest.fixture
def inventory() -> CacheInventory:
    tiles = MemoryTileMetadataStore(clock=ManualClock())
    for x, flight in enumerate(["F1", "F1", "F2"]):
        tiles.insert_metadata(
            NewTile(
                tile_id=TileId(source="s", zoom=5, x=x, y=1),
                flight_id=flight,
                produced_at=datetime(1970, 1, 1, tzinfo=UTC),
                resolution_m_per_px=0.6,
                sector_class=SectorClass.STABLE_REAR,
                blob=BlobRef(location=(1, x), length=10, sha256="ab" * 32),
            )
        )
    tiles.flush()
    ledger = MemoryCacheLedger(tiles=tiles)
    budget = CacheBudget(
        ledger=ledger,
        disk=FakeDisk(),
        reservation_id="test",
        budget_bytes=1_000,
        free_space_reserve_bytes=100,
        reclaim=lambda: None,
    )
    budget.reserve_headroom(7)
    return CacheInventory(tiles=tiles, ledger=ledger, budget=lambda: budget, disk=FakeDisk())


def test_stats_show_contents_beside_limits(inventory: CacheInventory) -> None:
    inventory.pin("F2")
    assert inventory.compute_stats() == CacheStats(
        tiles=3,
        used_bytes=30,
        reserved_bytes=7,
        budget_bytes=1_000,
        free_disk_bytes=5_000,
        free_space_reserve_bytes=100,
        pinned_flights=("F2",),
    )
    assert inventory.sum_committed_bytes() == 37


def test_pin_and_unpin_report_the_flights_tiles(inventory: CacheInventory) -> None:
    pin = inventory.pin("F1")
    assert (pin.flight_id, pin.pinned, pin.tiles, pin.pinned_flights) == ("F1", True, 2, ("F1",))
    unpin = inventory.unpin("F1")
    assert (unpin.pinned, unpin.tiles, unpin.pinned_flights) == (False, 2, ())


def test_invalid_flight_is_not_pinned(inventory: CacheInventory) -> None:
    with pytest.raises(InvalidValueError, match="flight_id"):
        inventory.pin("no name")
