"""What every index of a map must do."""

from datetime import UTC, datetime, timedelta

import pytest
from attrs import frozen

from tileferry.adapters.memory import (
    ManualClock,
    MemoryFlightBook,
    MemoryMapIndex,
    MemoryTileMetadataStore,
)
from tileferry.adapters.postgres import (
    Database,
    PostgresFlightBook,
    PostgresMapIndex,
    PostgresTileMetadataStore,
)
from tileferry.application.ports import TileMetadataStore
from tileferry.application.ports.flights import FlightBook
from tileferry.application.ports.map_tiles import MapIndex
from tileferry.domain.tiles import (
    Area,
    BBox,
    BlobRef,
    FlightArea,
    NewTile,
    SectorClass,
    TileId,
    TileRange,
)

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


@frozen
class MapEnv:
    index: MapIndex
    store: TileMetadataStore
    flights: FlightBook

    def add(self, name: str, *, days_old: int = 1, at: int = 0) -> TileId:
        tile_id = TileId.parse(name)
        blob = BlobRef(location=(1, at), length=10, sha256=f"{at:064x}")
        tile = NewTile(
            tile_id=tile_id,
            flight_id="F1",
            produced_at=NOW - timedelta(days=days_old),
            resolution_m_per_px=0.6,
            sector_class=SectorClass.STABLE_REAR,
            blob=blob,
        )
        self.store.insert_metadata(tile)
        self.store.flush()
        return tile_id


@pytest.fixture(params=["memory", "postgres"])
def env(request: pytest.FixtureRequest) -> MapEnv:
    clock = ManualClock(NOW.timestamp())
    if request.param == "memory":
        store = MemoryTileMetadataStore(clock=clock)
        book = MemoryFlightBook(tiles=store, clock=clock)
        return MapEnv(MemoryMapIndex(tiles=store, flights=book), store, book)
    database: Database = request.getfixturevalue("database")
    return MapEnv(
        PostgresMapIndex(database=database),
        PostgresTileMetadataStore(database=database, clock=clock),
        PostgresFlightBook(database=database),
    )


def test_tile_of_a_source_is_found_with_its_blob_and_time(env: MapEnv) -> None:
    tile_id = env.add("sat/4/3/2", at=7)
    found = env.index.find_tile("sat", 4, 3, 2)
    assert found is not None
    assert (found.tile_id, found.blob.location, found.blob.sha256) == (tile_id, (1, 7), f"{7:064x}")
    assert found.produced_at == NOW - timedelta(days=1)
    assert env.index.find_tile("other", 4, 3, 2) is None
    assert env.index.find_tile("sat", 4, 2, 3) is None


def test_many_tiles_are_found_in_their_order(env: MapEnv) -> None:
    tiles = [env.add(f"{source}/4/3/{y}", at=y) for y, source in enumerate(("b", "a", "b"))]
    wanted = [tiles[2], TileId.parse("a/4/3/2"), tiles[0], tiles[2], tiles[1]]
    found = [None if one is None else one.tile_id for one in env.index.find_tiles(wanted)]
    assert found == [tiles[2], None, tiles[0], tiles[2], tiles[1]]
    assert list(env.index.find_tiles([])) == []
    (single,) = env.index.find_tiles(tiles[1:2])
    assert single == env.index.find_tile("a", 4, 3, 1)


def test_freshest_tile_of_any_source_is_found(env: MapEnv) -> None:
    env.add("a/4/3/2", days_old=3, at=1)
    freshest = env.add("b/4/3/2", days_old=1, at=2)
    env.add("c/4/3/2", days_old=2, at=3)
    found = env.index.find_tile(None, 4, 3, 2)
    assert found is not None
    assert found.tile_id == freshest
    assert env.index.find_tile(None, 4, 3, 3) is None


def test_versions_of_all_sources_are_found_freshest_first(env: MapEnv) -> None:
    for at, (source, days) in enumerate((("a", 3), ("c", 1), ("b", 1))):
        env.add(f"{source}/4/3/2", days_old=days, at=at)
    found = env.index.find_versions(None, 4, 3, 2)
    assert [tile.tile_id.source for tile in found] == ["b", "c", "a"]
    (only,) = env.index.find_versions("a", 4, 3, 2)
    assert (only.tile_id, only.flight_id) == (TileId.parse("a/4/3/2"), "F1")
    assert list(env.index.find_versions(None, 4, 2, 3)) == []


def test_of_equally_fresh_tiles_the_first_source_is_found(env: MapEnv) -> None:
    for at, source in enumerate(("c", "a", "b")):
        env.add(f"{source}/4/3/2", at=at)
    found = env.index.find_tile(None, 4, 3, 2)
    assert found is not None
    assert found.tile_id.source == "a"


def test_layers_are_listed_by_source_and_zoom(env: MapEnv) -> None:
    assert env.index.list_layers() == []
    for at, name in enumerate(("b/3/1/1", "a/5/9/4", "a/5/7/6", "a/4/3/2")):
        env.add(name, at=at)
    first, second = env.index.list_layers()
    assert (first.name, second.name) == ("a", "b")
    assert [(level.zoom, level.tiles) for level in first.levels] == [(4, 1), (5, 2)]
    assert first.levels[1].extent == TileRange(zoom=5, x_min=7, x_max=9, y_min=4, y_max=6)


def test_flights_are_found_by_place(env: MapEnv) -> None:
    box = BBox(west=36.0, south=50.0, east=36.1, north=50.1)
    area = Area(bbox=box, zoom_levels=[10], sector_class=SectorClass.STABLE_REAR)
    (tile, *_) = area.coverage.tiles("sat")
    for name in ("F2", "F1"):
        env.flights.add_area(name, FlightArea(source="sat", area=area, added_at=NOW))
        env.flights.add_area(name, FlightArea(source="other", area=area, added_at=NOW))
    assert list(env.index.find_flights("sat", 10, tile.x, tile.y)) == ["F1", "F2"]
    assert list(env.index.find_flights(None, 10, tile.x, tile.y)) == ["F1", "F2"]
    assert list(env.index.find_flights("none", 10, tile.x, tile.y)) == []
    assert list(env.index.find_flights("sat", 11, tile.x, tile.y)) == []
