"""What every memory of absent tiles must do."""

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from tileferry.adapters.memory import MemoryAbsentTiles
from tileferry.adapters.postgres import Database, PostgresAbsentTiles, absent_tiles
from tileferry.application.ports import AbsentTiles
from tileferry.domain.tiles import BBox, Shape, TileCoverage, TileId

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
AREA = TileCoverage(bbox=BBox(west=36.0, south=50.0, east=36.3, north=50.2), zoom_levels=[12, 14])
TILES = list(AREA.tiles("sat"))


@pytest.fixture(params=["memory", "postgres"])
def absent(request: pytest.FixtureRequest) -> AbsentTiles:
    if request.param == "memory":
        return MemoryAbsentTiles()
    database: Database = request.getfixturevalue("database")
    return PostgresAbsentTiles(database=database)


def test_recorded_tiles_are_found_with_their_time(absent: AbsentTiles) -> None:
    absent.record_absent(TILES[:3], at=NOW)
    absent.record_absent([*TILES[2:4], TILES[3]], at=NOW + timedelta(days=1))
    assert absent.find_absent(TILES[1:6]) == {
        TILES[1]: NOW,
        TILES[2]: NOW + timedelta(days=1),
        TILES[3]: NOW + timedelta(days=1),
    }


def test_forgotten_tiles_are_not_found(absent: AbsentTiles) -> None:
    absent.record_absent(TILES[:3], at=NOW)
    absent.forget_absent([TILES[1], TILES[7]])
    assert absent.find_absent(TILES) == {TILES[0]: NOW, TILES[2]: NOW}


def test_nothing_is_found_recorded_or_forgotten_without_tiles(absent: AbsentTiles) -> None:
    absent.record_absent([], at=NOW)
    absent.forget_absent([])
    assert absent.find_absent([]) == {}


def test_area_is_queried_by_source(absent: AbsentTiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absent_tiles, "PAGE_ROWS", 3)
    outside = TileId(source="sat", zoom=14, x=1, y=1)
    other = evolve(TILES[0], source="other")
    absent.record_absent([*TILES[:7], outside, other], at=NOW)
    found = list(absent.query_absent(AREA, source="sat"))
    assert sorted(found) == [(tile, NOW) for tile in TILES[:7]]
    assert list(absent.query_absent(AREA, source="none")) == []


def test_only_the_tiles_of_a_shape_are_queried(absent: AbsentTiles) -> None:
    shape = Shape.from_degrees(lines=[[(36.0, 50.0), (36.3, 50.2)]])
    area = TileCoverage.from_place(shape, [12, 14])
    absent.record_absent(TILES, at=NOW)
    found = [tile for tile, _ in absent.query_absent(area, source="sat")]
    assert found == [tile for tile in TILES if area.contains(tile)]
    assert 0 < len(found) < len(TILES) / 3
