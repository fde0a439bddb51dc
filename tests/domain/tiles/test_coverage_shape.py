"""The tiles of a shape at several zoom levels: counted, listed, found, and joined to blocks."""

import pytest
from hypothesis import given
from support.shape_oracle import shapes

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BBox, Shape, TileCoverage, TileId, TileRange, TileSet
from tileferry.domain.tiles.coverage import BLOCK_TILES

ROUTE = Shape.from_degrees(lines=[[(36, 50), (36.7, 50.5)], [(36.1, 50.4), (36.2, 50.3)]])
AREA = TileCoverage.from_place(ROUTE, [13, 9, 16])


def test_tiles_are_counted_listed_and_found() -> None:
    tiles = list(AREA.tiles("x"))
    assert tiles == sorted(set(tiles))
    assert len(tiles) == AREA.count == AREA.starts[-1]
    for start in (0, 1, 57, AREA.count - 1, AREA.count, AREA.count + 9):
        assert list(AREA.tiles("x", start=start)) == tiles[start:]
    known, seen = set(tiles), TileSet(AREA)
    box = TileCoverage(bbox=AREA.bbox, zoom_levels=[8, 9, 13])
    for tile in box.tiles("x"):
        assert AREA.contains(tile) == seen.add(tile) == (tile in known)
    assert len(seen) == len([tile for tile in tiles if tile.zoom < 16])
    assert all(seen.add(tile) for tile in tiles)
    assert list(seen.iter_missing("x")) == []


@given(shapes())
def test_blocks_contain_every_tile_once(given: tuple[Shape, int]) -> None:
    shape, zoom = given
    area = TileCoverage.from_place(shape, [zoom])
    blocks = list(area.iter_blocks())
    inside = [tile for block in blocks for tile in block.tiles("x") if area.contains(tile)]
    assert inside == list(area.tiles("x"))


def test_blocks_are_few_and_little_of_them_is_outside() -> None:
    band = Shape.from_degrees(polygons=[[[(36, 50), (36.1, 50), (37, 51), (36.9, 51)]]])
    area = TileCoverage.from_place(band, [15, 18])
    blocks = list(area.iter_blocks())
    assert 2 < len(blocks) < 100
    for block in blocks:
        inside = sum(area.contains(tile) for tile in block.tiles("x"))
        assert block.count <= max(BLOCK_TILES, 2 * inside)
    assert {block.zoom for block in blocks} == {15, 18}
    box = TileCoverage(bbox=area.bbox, zoom_levels=[15])
    assert tuple(box.iter_blocks()) == box.ranges


def test_included_rectangles() -> None:
    square = Shape.from_degrees(polygons=[[[(-9, -9), (9, -9), (20, 0), (9, 9), (-9, 9)]]])
    area = TileCoverage.from_place(square, [8])
    assert len(area.ranges) > 1
    assert all(map(area.includes, area.ranges))
    first = area.ranges[0]
    wide = TileRange(zoom=8, x_min=first.x_min, x_max=first.x_max + 2, y_min=127, y_max=128)
    assert area.includes(wide)
    for outside in (
        TileRange(zoom=8, x_min=0, x_max=first.x_max, y_min=127, y_max=128),
        TileRange(zoom=8, x_min=first.x_min, x_max=255, y_min=127, y_max=128),
        TileRange(zoom=8, x_min=first.x_min, x_max=first.x_min, y_min=127, y_max=255),
        TileRange(zoom=7, x_min=63, x_max=63, y_min=63, y_max=63),
        TileRange(zoom=9, x_min=255, x_max=255, y_min=255, y_max=255),
    ):
        assert not area.includes(outside)
    assert not area.contains(TileId(source="x", zoom=0, x=0, y=0))


def test_place_is_the_shape_or_the_box() -> None:
    assert AREA.place is ROUTE
    box = TileCoverage.from_place(AREA.bbox, [9])
    assert (box.place, box.shape) == (AREA.bbox, None)
    with pytest.raises(InvalidValueError, match="is not the box of the shape"):
        TileCoverage(bbox=BBox.parse("1,2,3,4"), zoom_levels=[3], shape=ROUTE)
