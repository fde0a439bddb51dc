"""What every memory of refused tiles must do."""

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from tileferry.adapters.memory import MemoryRefusedTiles
from tileferry.adapters.postgres import Database, PostgresRefusedTiles, refused_tiles
from tileferry.application.ports import RefusedTiles
from tileferry.domain.tiles import BBox, SectorClass, Shape, TileCoverage, TileId
from tileferry.domain.tiles.refusal import Gate, Refusal

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
AREA = TileCoverage(bbox=BBox(west=36.0, south=50.0, east=36.3, north=50.2), zoom_levels=[12, 14])
TILES = list(AREA.tiles("sat"))
REAR, CONFLICT = SectorClass.STABLE_REAR, SectorClass.ACTIVE_CONFLICT


def refuse(tile: TileId, gate: Gate = Gate.FRESHNESS, sector: SectorClass = CONFLICT) -> Refusal:
    return Refusal(
        tile_id=tile,
        gate=gate,
        sector_class=sector,
        produced_at=NOW - timedelta(days=400),
        resolution_m_per_px=0.6,
        refused_at=NOW,
    )


@pytest.fixture(params=["memory", "postgres"])
def refused(request: pytest.FixtureRequest) -> RefusedTiles:
    if request.param == "memory":
        return MemoryRefusedTiles()
    database: Database = request.getfixturevalue("database")
    return PostgresRefusedTiles(database=database)


def test_last_refusal_of_each_sector_is_found(refused: RefusedTiles) -> None:
    first, rear = refuse(TILES[0]), refuse(TILES[0], Gate.RESOLUTION, REAR)
    last = evolve(first, refused_at=NOW + timedelta(days=1), resolution_m_per_px=0.7)
    refused.record_refused([first, rear, refuse(TILES[2])])
    refused.record_refused([evolve(last, resolution_m_per_px=0.8), last])
    assert refused.find_refused([*TILES[:2], TILES[5]]) == [last, rear]


def test_nothing_is_found_or_recorded_without_tiles(refused: RefusedTiles) -> None:
    refused.record_refused([])
    assert refused.find_refused([]) == []


def test_area_is_queried_by_source_and_sector(
    refused: RefusedTiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_tiles, "PAGE_ROWS", 3)
    by_age = [refuse(tile) for tile in TILES[:7]]
    by_resolution = [refuse(tile, Gate.RESOLUTION, REAR) for tile in TILES[2:4]]
    outside = refuse(TileId(source="sat", zoom=14, x=1, y=1))
    other = refuse(evolve(TILES[0], source="other"))
    refused.record_refused([*by_age, *by_resolution, outside, other])
    found = list(refused.query_refused(AREA, source="sat", sector=CONFLICT))
    assert len(found) == 9
    assert {*found} == {*by_age, *by_resolution}
    assert list(refused.query_refused(AREA, source="sat", sector=REAR)) == by_resolution
    assert list(refused.query_refused(AREA, source="none", sector=REAR)) == []


def test_only_the_refusals_of_a_shape_are_queried(refused: RefusedTiles) -> None:
    shape = Shape.from_degrees(lines=[[(36.0, 50.0), (36.3, 50.2)]])
    area = TileCoverage.from_place(shape, [12, 14])
    refused.record_refused([refuse(tile) for tile in TILES])
    found = [one.tile_id for one in refused.query_refused(area, source="sat", sector=CONFLICT)]
    assert found == [tile for tile in TILES if area.contains(tile)]
    assert 0 < len(found) < len(TILES) / 3
