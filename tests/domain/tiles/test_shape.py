"""Shapes: their canonical form, their box, and what is no shape."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.shape_oracle import shapes

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BBox, Shape
from tileferry.domain.tiles.shape import find_rectangle, shape_to_geojson

TRIANGLE = [(36.1, 49.9), (36.4, 49.9), (36.2, 50.1)]
HOLE = [(36.2, 49.95), (36.3, 49.95), (36.2, 50.0)]


def test_canonical_text_and_digest_do_not_change() -> None:
    shape = Shape.from_degrees(polygons=[[TRIANGLE, HOLE]], lines=[[(1, 2), (-1, 0.5)]])
    assert str(shape) == (
        "P 361000000 499000000 1000000 2000000 2000000 -2000000;"
        "362000000 499500000 0 500000 1000000 -500000|L -10000000 5000000 20000000 15000000"
    )
    assert shape.digest == "6abe932f677f077d"


def test_geojson_has_outer_rings_first_and_closed() -> None:
    hole = [(36.1, 49.9), (36.3, 49.95), (36.2, 50.0)]
    shape = Shape.from_degrees(polygons=[[hole, TRIANGLE]], lines=[[(1, 2), (3, 4)]])
    assert shape_to_geojson(shape) == {
        "type": "GeometryCollection",
        "geometries": [
            {
                "type": "MultiPolygon",
                "coordinates": [
                    [
                        [[36.1, 49.9], [36.2, 50.1], [36.4, 49.9], [36.1, 49.9]],
                        [[36.1, 49.9], [36.2, 50.0], [36.3, 49.95], [36.1, 49.9]],
                    ]
                ],
            },
            {"type": "MultiLineString", "coordinates": [[[1, 2], [3, 4]]]},
        ],
    }
    for alone in (Shape(polygons=shape.polygons), Shape(lines=shape.lines)):
        assert len(shape_to_geojson(alone)["geometries"]) == 1  # type: ignore[arg-type]


@given(shapes(), st.randoms(use_true_random=False))
def test_order_direction_and_duplicates_do_not_matter(
    given: tuple[Shape, int], random: Any
) -> None:
    shape, _ = given
    assert Shape.parse(str(shape)) == shape

    def turn(ring: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
        start = random.randrange(len(ring))
        turned = [*ring[start:], *ring[: start + 1]]
        return turned[:: random.choice([1, -1])]

    polygons = [[turn(ring) for ring in rings] for rings in [*shape.polygons, *shape.polygons]]
    lines = [line[:: random.choice([1, -1])] for line in shape.lines]
    for several in (polygons, lines):
        random.shuffle(several)
    other = Shape(polygons=polygons, lines=[[*line, line[-1]] for line in lines])
    assert other == shape
    assert (str(other), other.digest) == (str(shape), shape.digest)


@pytest.mark.parametrize(
    ("lines", "box"),
    [
        ([[(1, 2), (3, 4)]], "1.0,2.0,3.0,4.0"),
        ([[(1, 2), (1, 4)]], "0.9999999,2.0,1.0000001,4.0"),
        ([[(1, 2), (3, 2)]], "1.0,1.9999999,3.0,2.0000001"),
        ([[(180, 2), (180, 3)]], "179.9999999,2.0,180.0,3.0"),
        ([[(180, 2), (180, 3)], [(-180, 2), (-180, 3)]], "179.9999999,2.0,-179.9999999,3.0"),
        ([[(-180, 2), (180, 3)]], "-180.0,2.0,180.0,3.0"),
        ([[(179, 2), (180, 3)], [(-180, 3), (-179.5, 4)]], "179.0,2.0,-179.5,4.0"),
        ([[(-90, 2), (-80, 3)], [(80, 3), (90, 4)]], "-90.0,2.0,90.0,4.0"),
    ],
)
def test_box_is_around_the_shape(lines: Any, box: str) -> None:
    assert str(Shape.from_degrees(lines=lines).bbox) == box


def test_upright_rectangle_is_a_box() -> None:
    corners = [(36.1, 49.9), (36.4, 49.9), (36.4, 50.1), (36.1, 50.1), (36.1, 49.9)]
    box = BBox.parse("36.1,49.9,36.4,50.1")
    for ring in (corners, corners[::-1], [*corners[2:], *corners[1:3]]):
        assert find_rectangle(ring) == box
    for turn in (180, -180):
        crossing = [(lon - 36.25 + turn, lat) for lon, lat in corners]
        assert str(find_rectangle(crossing)).startswith("179.85,49.9,-179.85")


@pytest.mark.parametrize(
    "ring",
    [
        [*TRIANGLE, TRIANGLE[0]],
        [(0, 0), (2, 0), (2, 1), (1, 1), (1, 2), (0, 2), (0, 0)],
        [(0, 0), (2, 1), (2, 0), (0, 1), (0, 0)],
        [(0, 0), (2, 0), (2, 1), (0, 1)],
        [(0, 0), (2, 0), (2, 0), (2, 1), (0, 1), (0, 0)],
        [(0, 0), (1, 0), (2, 0), (2, 1), (0, 1), (0, 0)],
    ],
    ids=["triangle", "L", "bow tie", "open", "repeated", "with a vertex more"],
)
def test_other_ring_is_no_box(ring: list[tuple[float, float]]) -> None:
    assert find_rectangle(ring) is None


@pytest.mark.parametrize(
    ("polygons", "lines", "problem"),
    [
        ([], [], "has no polygon and no line"),
        ([[[]]], [], "a ring needs at least 3 different vertices"),
        ([[TRIANGLE[:2]]], [], "a ring needs at least 3 different vertices"),
        ([], [[(1, 2), (1, 2)]], "a line needs at least 2 different vertices"),
        ([], [[(1, 2), (181, 2)]], "is not on the globe"),
        ([], [[(1, 91), (2, 2)]], "is not on the globe"),
        ([], [[(math.nan, 1), (2, 2)]], "is not a pair of finite numbers"),
        ([], [[(0, 1), (2, math.inf)]], "is not a pair of finite numbers"),
        ([], [[(0, 86), (2, 87)]], "is entirely beyond"),
        ([], [[(n / 1e4, 1) for n in range(20_001)]], "has more than 20,000 vertices"),
    ],
)
def test_invalid_shape_is_rejected(polygons: Any, lines: Any, problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem):
        Shape.from_degrees(polygons=polygons, lines=lines)


def test_vertices_must_be_whole_numbers() -> None:
    with pytest.raises(InvalidValueError, match="is not on the globe"):
        Shape(lines=[[(1.5, 2), (3, 4)]])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is neither a polygon"),
        ("X 1 2 3 4", "is neither a polygon"),
        ("L 1 2 3", "is not a list of whole numbers in pairs"),
        ("L 1 2 3 x", "is not a list of whole numbers in pairs"),
        ("L 1 2 03 4", "is not a list of whole numbers in pairs"),
        ("L 1 2 3 \u0664", "is not a list of whole numbers in pairs"),
        ("L 1 2 99999999999 4", "is not a list of whole numbers in pairs"),
        ("L 1 2", "a line needs at least 2"),
        ("L 5 5 -4 -4", "is not in canonical form"),
        ("L " + "1" * 500_000, "must be text of at most"),
        (7, "must be text of at most"),
    ],
)
def test_other_text_is_rejected(text: Any, problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem):
        Shape.parse(text)
