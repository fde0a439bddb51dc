"""The tiles of a shape, against a brute-force oracle."""

import pytest
from hypothesis import given, settings
from support.shape_oracle import find_tiles, shapes

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BBox, Shape, TileCoverage, shape_tiles
from tileferry.domain.tiles.shape_tiles import compute_shape_ranges


def list_tiles(shape: Shape, zoom: int) -> list[tuple[int, int]]:
    return [
        (tile.x, tile.y) for part in compute_shape_ranges(shape, zoom) for tile in part.tiles("x")
    ]


@settings(max_examples=max(200, settings().max_examples))
@given(shapes())
def test_tiles_of_shape_are_those_of_the_oracle(given: tuple[Shape, int]) -> None:
    shape, zoom = given
    found = list_tiles(shape, zoom)
    assert found == sorted(set(found))
    assert set(found) == find_tiles(shape, zoom)


SQUARE = [(-10.0, -10.0), (10.0, -10.0), (10.0, 10.0), (-10.0, 10.0)]


@pytest.mark.parametrize("zoom", [0, 1, 5, 9])
def test_rectangle_has_the_tiles_of_its_box(zoom: int) -> None:
    shape = Shape.from_degrees(polygons=[[SQUARE]])
    box = TileCoverage(bbox=BBox(west=-10, south=-10, east=10, north=10), zoom_levels=[zoom])
    assert compute_shape_ranges(shape, zoom) == box.ranges


def test_polygon_does_not_have_the_tiles_that_it_only_touches() -> None:
    quarter = Shape.from_degrees(polygons=[[[(0, 0), (90, 0), (90, -60), (0, -60)]]])
    assert list_tiles(quarter, 2) == [(2, 2)]
    assert list_tiles(quarter, 1) == [(1, 1)]


def test_line_has_the_tiles_on_both_sides_of_an_edge() -> None:
    equator = Shape.from_degrees(lines=[[(10, 0), (80, 0)]])
    assert list_tiles(equator, 2) == [(2, 1), (2, 2)]
    meridian = Shape.from_degrees(lines=[[(90, 10), (90, 20)]])
    assert list_tiles(meridian, 2) == [(2, 1), (3, 1)]
    seam = Shape.from_degrees(lines=[[(180, 10), (180, 20)], [(-180, 10), (-180, 20)]])
    assert list_tiles(seam, 2) == [(0, 1), (3, 1)]


def test_hole_has_no_tiles_and_overlapping_polygons_add_up() -> None:
    hole = [(lon / 2, lat / 2) for lon, lat in SQUARE]
    ring, whole = (Shape.from_degrees(polygons=[p]) for p in ([SQUARE, hole], [SQUARE]))
    inside = set(list_tiles(whole, 9)) - set(list_tiles(ring, 9))
    assert inside
    assert inside < set(list_tiles(Shape.from_degrees(polygons=[[hole]]), 9))
    assert list_tiles(ring, 9) == sorted(list_tiles(ring, 9))
    both = Shape.from_degrees(polygons=[[SQUARE, hole], [hole]])
    assert list_tiles(both, 9) == list_tiles(whole, 9)
    beside = [(lon + 7, lat + 5) for lon, lat in SQUARE]
    overlapping = Shape.from_degrees(polygons=[[SQUARE], [beside]])
    alone = Shape.from_degrees(polygons=[[beside]])
    assert list_tiles(overlapping, 8) == sorted({*list_tiles(whole, 8), *list_tiles(alone, 8)})


def test_shape_beyond_web_mercator_is_cut_off() -> None:
    pole = Shape.from_degrees(
        polygons=[[[(0, 80), (10, 80), (5, 90)]]], lines=[[(-9, -90), (-9, 0)]]
    )
    columns = {x for x, _ in list_tiles(pole, 8)}
    rows = [y for _, y in list_tiles(pole, 8)]
    assert (min(rows), max(rows)) == (0, 255)
    assert columns == {121, 128, 129, 130, 131, 132, 133, 134, 135}
    over = Shape.from_degrees(lines=[[(0, 80), (40, 89), (80, 80)]])
    assert {x for x, _ in list_tiles(over, 8)} == {*range(127, 144), *range(168, 185)}


def test_outline_that_crosses_too_many_columns_is_rejected() -> None:
    points = [(n % 2 * 100.0, n / 100) for n in range(40)]
    zigzag = Shape.from_degrees(lines=[points])
    assert list_tiles(zigzag, 3)
    with pytest.raises(InvalidValueError, match=r"its edges cross .* columns of tiles"):
        compute_shape_ranges(zigzag, 21)


def test_outline_with_too_many_ranges_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_tiles, "AREA_RANGES_MAX", 100)
    diagonal = Shape.from_degrees(lines=[[(0, 0), (10, 10)]])
    assert len(TileCoverage.from_place(diagonal, [10]).ranges) < 100
    with pytest.raises(InvalidValueError, match=r"more than 100 ranges of tiles .got .zoom 12"):
        compute_shape_ranges(diagonal, 12)
    with pytest.raises(InvalidValueError, match=r"more than 100 ranges of tiles .got .zoom 11"):
        TileCoverage.from_place(diagonal, [9, 10, 11])
