"""The flaws of a shape: only its tiles count, and the map leaves out what is outside."""

import pytest

from tileferry.domain.tiles import Flaw, ReadinessMap, Shape, TileCoverage, TileId
from tileferry.domain.tiles.readiness_map import Outside

ROUTE = Shape.from_degrees(lines=[[(36.0, 50.0), (37.5, 50.9)]])
CROSSING = Shape.from_degrees(lines=[[(178.0, 1.0), (180.0, 2.0)], [(-180.0, 2.0), (-178.5, 1.5)]])


def list_tiles(area: TileCoverage, zoom: int) -> list[TileId]:
    return [tile for tile in area.tiles("sat") if tile.zoom == zoom]


@pytest.mark.parametrize("shape", [ROUTE, CROSSING])
def test_marks_and_regions_are_those_of_the_tiles(shape: Shape) -> None:
    area = TileCoverage.from_place(shape, [8, 13, 15])
    marks = ReadinessMap(area)
    assert [count.tiles for count in marks.count_by_zoom().values()] == [
        len(list_tiles(area, zoom)) for zoom in (8, 13, 15)
    ]
    box = TileCoverage(bbox=shape.bbox, zoom_levels=[13])
    stale = list_tiles(area, 13)[3:9]
    for tile in box.tiles("sat"):
        assert marks.mark(tile, [Flaw.STALE] * (tile in stale)) == area.contains(tile)
    for tile in list_tiles(area, 15)[::2]:
        assert marks.mark_absent(tile)
        assert not marks.mark_absent(tile)
    assert not marks.mark_absent(TileId(source="sat", zoom=13, x=0, y=0))
    regions = marks.find_regions(13, Flaw.STALE, limit=1_000)
    assert all(region.is_exact for region in regions)
    assert sorted(tile for region in regions for tile in region.tiles.tiles("sat")) == stale
    counts = marks.count_by_zoom()
    assert counts[13].flaws[Flaw.HOLE] == 0
    assert counts[15].flaws[Flaw.ABSENT] == len(list_tiles(area, 15)[::2])


@pytest.mark.parametrize("shape", [ROUTE, CROSSING])
@pytest.mark.parametrize("limit", [2, 3, 10])
def test_regions_of_many_blocks_are_limited(shape: Shape, limit: int) -> None:
    area = TileCoverage.from_place(shape, [17])
    assert len(list(area.iter_blocks())) > 10
    regions = ReadinessMap(area).find_regions(17, Flaw.HOLE, limit=limit)
    assert len(regions) <= limit
    assert sum(region.flawed for region in regions) == area.count
    for tile in area.tiles("sat"):
        assert any(region.tiles.contains(tile) for region in regions)
    assert all(region.tiles.x_max - region.tiles.x_min < 2_000 for region in regions)


@pytest.mark.parametrize("shape", [ROUTE, CROSSING])
@pytest.mark.parametrize(("columns_max", "rows_max"), [(200, 200), (20, 9), (3, 2)])
@pytest.mark.parametrize("zoom", [0, 11, 14])
def test_picture_shows_the_shape(shape: Shape, columns_max: int, rows_max: int, zoom: int) -> None:
    area = TileCoverage.from_place(shape, [zoom])
    marks = ReadinessMap(area)
    tiles = list(area.tiles("sat"))
    for tile in tiles[::3]:
        marks.mark(tile, [Flaw.STALE] * (tile == tiles[0]))
    picture = marks.draw_preview(zoom, columns_max=columns_max, rows_max=rows_max)
    assert len(picture.rows) <= rows_max
    assert all(len(row) <= columns_max for row in picture.rows)
    north = min(tile.y for tile in tiles)
    halves = [tiles]
    if shape is CROSSING and zoom:
        half = 1 << zoom >> 1
        halves = [[t for t in tiles if t.x >= half], [t for t in tiles if t.x < half]]
    expected: dict[tuple[int, int], set[Flaw | None]] = {}
    offset = 0
    for part in halves:
        west = min(tile.x for tile in part)
        for tile in part:
            cell = offset + (tile.x - west) // picture.side, (tile.y - north) // picture.side
            flaw = Flaw.STALE if tile == tiles[0] else None if tile in tiles[::3] else Flaw.HOLE
            expected.setdefault(cell, set()).add(flaw)
        offset = max(x for x, _ in expected) + 1
    for y, row in enumerate(picture.rows):
        for x, shown in enumerate(row):
            flaws = expected.get((x, y), {Outside.OUTSIDE})
            assert shown in flaws
            assert (shown is None) <= (flaws == {None})
