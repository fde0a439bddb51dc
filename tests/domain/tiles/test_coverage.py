"""Areas: which tiles they consist of, counted and listed, each once."""

import math
from itertools import islice
from typing import Any

import mercantile
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    ZOOM_MAX,
    BBox,
    TileCoverage,
    TileId,
    TileRange,
    compute_tile_ranges,
    tile_at,
    tile_bounds,
)

NEAR = 1e-9
TILES_MAX = 150

zooms = st.integers(0, ZOOM_MAX)


@st.composite
def boxes(draw: st.DrawFn) -> BBox:
    """Boxes of every size, many of them across the antimeridian or a pole."""
    width = draw(st.sampled_from([1e-4, 0.01, 1.0, 30.0, 179.0]))
    west = draw(st.floats(-180, 180))
    east = west + width
    south = draw(st.floats(-89.9, 84.9))
    north = min(90.0, south + draw(st.sampled_from([1e-4, 0.01, 1.0, 30.0])))
    assume(north > -85.0)
    return BBox(west=west, south=south, east=east - 360 if east > 180 else east, north=north)


@st.composite
def small_areas(draw: st.DrawFn) -> tuple[BBox, int]:
    """A box, and a level at which its tiles can be listed."""
    box = draw(boxes())
    deepest = int(math.log2(360 / max(box.width, box.north - box.south))) + 2
    zoom = draw(st.integers(0, min(deepest, ZOOM_MAX)))
    assume(TileCoverage(bbox=box, zoom_levels=[zoom]).count <= TILES_MAX)
    return box, zoom


def mercantile_tiles(box: BBox, zoom: int) -> set[tuple[int, int]]:
    found = mercantile.tiles(box.west, box.south, box.east, box.north, [zoom])
    return {(tile.x, tile.y) for tile in found}


def is_on_edge(box: BBox, zoom: int) -> bool:
    """Tell whether rounding may decide about a whole row or column.

    Also where mercantile counts a side of no width at the antimeridian, and we do not.
    """
    if box.crosses_antimeridian and (box.west > 180 - NEAR or box.east < NEAR - 180):
        return True

    def index(lon: float, lat: float) -> tuple[int, int]:
        held = min(max(lon, -180.0), 180.0), min(max(lat, -90.0), 90.0)
        return tile_at(*held, zoom)

    return any(
        index(lon - NEAR, lat - NEAR) != index(lon + NEAR, lat + NEAR)
        for lon, lat in ((box.west, box.north), (box.east, box.south))
    )


@given(small_areas())
def test_area_tiles_match_mercantile(wanted: tuple[BBox, int]) -> None:
    box, zoom = wanted
    area = TileCoverage(bbox=box, zoom_levels=[zoom])
    assume(not is_on_edge(box, zoom))
    assert {(tile.x, tile.y) for tile in area.tiles("sat")} == mercantile_tiles(box, zoom)


@given(small_areas())
def test_tiles_are_unique_sorted_and_counted(wanted: tuple[BBox, int]) -> None:
    box, zoom = wanted
    levels = [zoom, zoom // 2, zoom]
    area = TileCoverage(bbox=box, zoom_levels=levels)
    tiles = list(area.tiles("sat"))
    assert tiles == sorted(set(tiles))
    assert len(tiles) == area.count
    assert all(area.contains(tile) for tile in tiles)


@given(boxes(), zooms, st.floats(0.001, 0.999), st.floats(0.001, 0.999))
def test_every_point_of_bbox_lies_in_exactly_one_range(
    box: BBox, zoom: int, right: float, up: float
) -> None:
    lon = box.west + right * box.width
    lat = box.south + up * (box.north - box.south)
    x, y = tile_at(lon - 360 if lon > 180 else lon, lat, zoom)
    tile = TileId(source="sat", zoom=zoom, x=x, y=y)
    assert sum(part.contains(tile) for part in compute_tile_ranges(box, zoom)) == 1


@given(boxes(), st.integers(0, ZOOM_MAX - 1))
def test_level_has_one_or_two_ranges_refined_by_next_level(box: BBox, zoom: int) -> None:
    parents = compute_tile_ranges(box, zoom)
    assert 1 <= len(parents) <= (2 if box.crosses_antimeridian else 1)
    assert [part.x_min for part in parents] == sorted(part.x_min for part in parents)
    for part in compute_tile_ranges(box, zoom + 1):
        for x, y in ((part.x_min, part.y_min), (part.x_max, part.y_max)):
            parent = TileId(source="sat", zoom=zoom, x=x // 2, y=y // 2)
            assert any(above.contains(parent) for above in parents)


@given(st.integers(1, ZOOM_MAX), st.data())
def test_edges_on_tile_boundary_add_no_tiles(zoom: int, data: st.DataObject) -> None:
    last = 2**zoom - 1
    x_min, x_max = sorted((data.draw(st.integers(0, last)), data.draw(st.integers(0, last))))
    y_min, y_max = sorted((data.draw(st.integers(0, last)), data.draw(st.integers(0, last))))
    first = tile_bounds(TileId(source="sat", zoom=zoom, x=x_min, y=y_min))
    final = tile_bounds(TileId(source="sat", zoom=zoom, x=x_max, y=y_max))
    box = BBox(west=first.west, south=final.south, east=final.east, north=first.north)
    assert compute_tile_ranges(box, zoom) == (
        TileRange(zoom=zoom, x_min=x_min, x_max=x_max, y_min=y_min, y_max=y_max),
    )


@given(zooms)
def test_whole_world_has_every_tile_of_level(zoom: int) -> None:
    world = BBox.parse("-180,-90,180,90")
    assert TileCoverage(bbox=world, zoom_levels=[zoom]).count == 4**zoom


def test_antimeridian_bbox_has_two_ranges_unless_adjacent() -> None:
    box = BBox.parse("170,-10,-170,10")
    assert compute_tile_ranges(box, 0) == (TileRange(zoom=0, x_min=0, x_max=0, y_min=0, y_max=0),)
    assert compute_tile_ranges(box, 1) == (TileRange(zoom=1, x_min=0, x_max=1, y_min=0, y_max=1),)
    assert compute_tile_ranges(box, 2) == (
        TileRange(zoom=2, x_min=0, x_max=0, y_min=1, y_max=2),
        TileRange(zoom=2, x_min=3, x_max=3, y_min=1, y_max=2),
    )
    assert TileCoverage(bbox=box, zoom_levels=[0, 1, 2]).count == 1 + 4 + 4


def test_side_touching_antimeridian_has_no_tiles() -> None:
    (left,) = compute_tile_ranges(BBox.parse("170,0,-180,10"), 4)
    assert (left.x_min, left.x_max) == (15, 15)
    (right,) = compute_tile_ranges(BBox.parse("180,0,-170,10"), 4)
    assert (right.x_min, right.x_max) == (0, 0)


def test_bbox_smaller_than_rounding_has_one_tile() -> None:
    box = BBox(west=0.0, south=-1e-13, east=1e-13, north=0.0)
    (part,) = compute_tile_ranges(box, 10)
    assert list(part.tiles("sat")) == [TileId(source="sat", zoom=10, x=512, y=512)]


def test_bbox_over_pole_ends_in_outer_row() -> None:
    (north,) = compute_tile_ranges(BBox.parse("10,85,11,90"), 8)
    (south,) = compute_tile_ranges(BBox.parse("10,-90,11,-85"), 8)
    assert (north.y_min, south.y_max) == (0, 255)


def test_listing_is_lazy() -> None:
    world = TileCoverage(bbox=BBox.parse("-180,-90,180,90"), zoom_levels=range(22))
    first = [str(tile) for tile in islice(world.tiles("sat"), 3)]
    assert first == ["sat/0/0/0", "sat/1/0/0", "sat/1/0/1"]
    assert world.count == sum(4**zoom for zoom in range(22))


def test_tile_of_other_zoom_level_is_outside() -> None:
    area = TileCoverage(bbox=BBox.parse("-180,-90,180,90"), zoom_levels=[3])
    assert area.contains(TileId(source="any", zoom=3, x=7, y=7))
    assert not area.contains(TileId(source="any", zoom=2, x=0, y=0))


@given(
    st.integers(0, 7), st.integers(0, 7), st.integers(0, 7), st.integers(0, 7), st.integers(0, 7)
)
def test_range_contains_exactly_its_listed_tiles(
    x1: int, x2: int, y1: int, y2: int, row: int
) -> None:
    part = TileRange(
        zoom=3, x_min=min(x1, x2), x_max=max(x1, x2), y_min=min(y1, y2), y_max=max(y1, y2)
    )
    listed = set(part.tiles("sat"))
    assert len(listed) == part.count
    for column in range(8):
        tile = TileId(source="sat", zoom=3, x=column, y=row)
        assert part.contains(tile) == (tile in listed)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("zoom", 22),
        ("x_min", -1),
        ("x_min", 3),
        ("x_max", 4),
        ("x_max", True),
        ("y_min", 1.0),
        ("y_max", 4),
        ("y_min", None),
    ],
)
def test_invalid_range_is_rejected(field: str, value: Any) -> None:
    fields: dict[str, Any] = {"zoom": 2, "x_min": 1, "x_max": 2, "y_min": 1, "y_max": 2}
    with pytest.raises(InvalidValueError, match=f"TileRange.{field}"):
        TileRange(**{**fields, field: value})


@pytest.mark.parametrize("levels", [[], [22], [-1], [True], [3, "4"], [1.0]])
def test_invalid_zoom_levels_are_rejected(levels: Any) -> None:
    with pytest.raises(InvalidValueError, match="zoom_levels"):
        TileCoverage(bbox=BBox.parse("1,1,2,2"), zoom_levels=levels)


def test_bbox_as_text_is_rejected() -> None:
    text: Any = "1,2,3,4"
    with pytest.raises(InvalidValueError, match="bbox: must be a BBox"):
        TileCoverage(bbox=text, zoom_levels=[12])
