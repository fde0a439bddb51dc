"""What every inventory of tiles must do."""

from datetime import UTC, datetime

import pytest

from tileferry.adapters.memory import ManualClock, MemoryTileMetadataStore
from tileferry.adapters.postgres import Database, PostgresTileMetadataStore, tile_inventory
from tileferry.application.ports.inventory import TileKey
from tileferry.domain.tiles import (
    BlobRef,
    NewTile,
    SectorClass,
    TileId,
    VotingStatus,
    build_capture_source,
)

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture(params=["memory", "postgres"])
def inventory(
    request: pytest.FixtureRequest,
) -> MemoryTileMetadataStore | PostgresTileMetadataStore:
    clock = ManualClock(NOW.timestamp())
    if request.param == "memory":
        return MemoryTileMetadataStore(clock=clock)
    database: Database = request.getfixturevalue("database")
    return PostgresTileMetadataStore(database=database, clock=clock)


def store_tile(
    store: MemoryTileMetadataStore | PostgresTileMetadataStore,
    flight: str,
    x: int,
    status: VotingStatus,
) -> TileId:
    tile_id = TileId(source=build_capture_source(flight), zoom=16, x=x, y=1)
    store.insert_metadata(
        NewTile(
            tile_id=tile_id,
            flight_id=flight,
            produced_at=NOW,
            resolution_m_per_px=0.6,
            sector_class=SectorClass.STABLE_REAR,
            blob=BlobRef(location=(1, x), length=10, sha256="ab" * 32),
            voting_status=VotingStatus.PENDING,
        )
    )
    store.flush()
    if status is not VotingStatus.PENDING:
        store.update_voting_status(tile_id, status)
    return tile_id


def test_tiles_are_counted_by_flight_and_status(
    inventory: MemoryTileMetadataStore | PostgresTileMetadataStore,
) -> None:
    assert (inventory.count(), inventory.count_captured("F1")) == (0, {})
    for x, status in enumerate([VotingStatus.PENDING] * 2 + [VotingStatus.UPLOADED]):
        store_tile(inventory, "F1", x, status)
    store_tile(inventory, "F2", 9, VotingStatus.PENDING)
    assert inventory.count() == 4
    assert inventory.count_pending("F1") == 2
    assert inventory.count_captured("F1") == {VotingStatus.PENDING: 2, VotingStatus.UPLOADED: 1}


def test_tiles_are_counted_by_source_and_zoom(
    inventory: MemoryTileMetadataStore | PostgresTileMetadataStore,
) -> None:
    assert inventory.count_by(TileKey.SOURCE) == []
    for flight, x in (("F1", 1), ("F1", 2), ("F2", 3)):
        store_tile(inventory, flight, x, VotingStatus.PENDING)
    by_source = {group.name: group.tiles for group in inventory.count_by(TileKey.SOURCE)}
    assert by_source == {build_capture_source("F1"): 2, build_capture_source("F2"): 1}
    (level,) = inventory.count_by(TileKey.ZOOM)
    assert (level.tiles, level.size_bytes > 0, level.name.isdecimal()) == (3, True, True)


def test_giveups_are_listed_by_flight(
    inventory: MemoryTileMetadataStore | PostgresTileMetadataStore,
) -> None:
    late = store_tile(inventory, "F2", 1, VotingStatus.UPLOAD_GIVEUP)
    early = store_tile(inventory, "F1", 2, VotingStatus.UPLOAD_GIVEUP)
    store_tile(inventory, "F1", 3, VotingStatus.PENDING)
    assert [tile.tile_id for tile in inventory.find_given_up()] == [early, late]
    assert [tile.tile_id for tile in inventory.find_given_up("F2")] == [late]


def test_giveups_are_listed_in_parts(
    inventory: MemoryTileMetadataStore | PostgresTileMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tile_inventory, "FIRST_ROWS", 1)
    monkeypatch.setattr(tile_inventory, "PAGE_ROWS", 2)
    stored = [
        (flight, store_tile(inventory, flight, x, VotingStatus.UPLOAD_GIVEUP))
        for x, flight in enumerate(("F1", "F1", "F1", "F2", "F2", "F2"), start=1)
    ]
    tiles = [tile for _, tile in stored]
    assert [tile.tile_id for tile in inventory.find_given_up()] == tiles
    for number, position in enumerate(stored, start=1):
        rest = inventory.find_given_up(after=position)
        assert [tile.tile_id for tile in rest] == tiles[number:]
    rest = inventory.find_given_up("F1", after=stored[1])
    assert [tile.tile_id for tile in rest] == [tiles[2]]
