"""What a cache holds."""

from datetime import UTC, datetime

import pytest

from tileferry.adapters.memory import (
    ManualClock,
    MemoryCacheLedger,
    MemoryFlightBook,
    MemoryTileMetadataStore,
)
from tileferry.application import CacheBudget
from tileferry.application.cache.flights import FlightRegister
from tileferry.application.cache.inventory import CacheInventory, CacheStats
from tileferry.application.ports.inventory import TileGroup, TileKey
from tileferry.domain.tiles import BlobRef, NewTile, OperatorNote, SectorClass, TileId


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
    book = MemoryFlightBook(tiles=tiles, clock=ManualClock())
    book.pin_flight("F2", OperatorNote(by="ann"))
    flights = FlightRegister(book=book, tiles=tiles, clock=ManualClock())
    ledger = MemoryCacheLedger(tiles=tiles)
    budget = CacheBudget(
        ledger=ledger,
        disk=FakeDisk(),
        find_reservation_id=lambda: "test",
        budget_bytes=1_000,
        free_space_reserve_bytes=100,
        reclaim=lambda: None,
    )
    budget.reserve_headroom(7)
    return CacheInventory(
        tiles=tiles,
        usage=ledger,
        flights=flights,
        disk=FakeDisk(),
        budget_bytes=lambda: 1_000,
        free_space_reserve_bytes=lambda: 100,
    )


def test_stats_show_contents_beside_limits(inventory: CacheInventory) -> None:
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


def test_tiles_are_counted_by_source_and_by_flight(inventory: CacheInventory) -> None:
    assert inventory.count_by(TileKey.SOURCE) == [TileGroup(name="s", tiles=3, size_bytes=30)]
    assert inventory.count_by_flight() == [TileGroup(name="F2", tiles=1, size_bytes=10)]
