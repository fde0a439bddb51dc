"""Shapes from drawings: rectangles, the antimeridian, invalid outlines, and corridors."""

import math
from itertools import pairwise

import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from tileferry.adapters.geodata.drawing import Drawing
from tileferry.adapters.geodata.geometry import build_area, build_corridor, unwrap
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BBox, Shape, TileCoverage, tile_bounds

Ring = list[tuple[float, float]]
TRIANGLE: Ring = [(36.1, 49.9), (36.4, 49.9), (36.2, 50.1), (36.1, 49.9)]


def draw(polygons: list[list[Ring]] | None = None, lines: list[Ring] | None = None) -> Drawing:
    drawing = Drawing(name="x.geojson")
    for number, rings in enumerate(polygons or (), start=1):
        drawing.add_polygon(f"polygon {number}", rings)
    for number, line in enumerate(lines or (), start=1):
        drawing.add_line(f"line {number}", line)
    return drawing


def ring(west: float, south: float, east: float, north: float) -> Ring:
    return [(west, south), (east, south), (east, north), (west, north), (west, south)]


def test_upright_rectangle_is_a_box() -> None:
    assert build_area(draw([[ring(36.1, 49.9, 36.4, 50.1)]])) == BBox.parse("36.1,49.9,36.4,50.1")
    assert build_area(draw([[ring(-180, -80, 180, 80)]])) == BBox.parse("-180,-80,180,80")


@pytest.mark.parametrize("turned", [False, True])
def test_rectangle_across_the_antimeridian_is_a_crossing_box(*, turned: bool) -> None:
    box = ring(179.5, -17, -179.75, -16)
    drawn = [*box[2:], *box[1:3]] if turned else box
    assert build_area(draw([[drawn]])) == BBox.parse("179.5,-17,-179.75,-16")


def test_shape_across_the_antimeridian_is_cut() -> None:
    hole: Ring = [(-179.9, -16.8), (-179.8, -16.8), (-179.9, -16.7), (-179.9, -16.8)]
    crossing: Ring = [(179.5, -17), (-179.5, -17), (-179.75, -16), (179.5, -17)]
    line: Ring = [(179.9, 5), (-179.9, 6), (-179.8, 5), (179.9, 4)]
    place = build_area(draw([[crossing, hole]], [line]))
    assert isinstance(place, Shape)
    assert place.bbox == BBox.parse("179.5,-17,-179.5,6")
    assert len(place.polygons) == 2
    assert sorted(len(rings) for rings in place.polygons) == [1, 2]
    assert len(place.lines) == 3
    box = TileCoverage(bbox=place.bbox, zoom_levels=[11])
    assert 0 < TileCoverage.from_place(place, [11]).count < box.count / 10


def test_unwrapped_longitudes_go_on_beyond_180() -> None:
    assert unwrap([(179, 0), (-179, 1), (-178, 2), (178, 3)]) == [
        (179, 0),
        (181, 1),
        (182, 2),
        (178, 3),
    ]
    assert unwrap([(-180, 0), (180, 0), (0, 1)]) == [(-180, 0), (180, 0), (0, 1)]


@pytest.mark.parametrize(
    ("drawing", "problem"),
    [
        (draw(), "x.geojson: file: contains no polygon, line, track or route"),
        (
            draw([[[(0, 0), (2, 2), (2, 0), (0, 2), (0, 0)]]]),
            "x.geojson: polygon 1: is not a valid polygon: self-intersection at 1 1;",
        ),
        (
            draw([[TRIANGLE], [ring(0, 0, 1, 1), ring(2, 2, 3, 3)]]),
            "x.geojson: polygon 2: is not a valid polygon: hole lies outside shell at 2 2;",
        ),
        (draw([[[(0, 0), (1, 1), (2, 2), (0, 0)]]]), "polygon 1: is not a valid polygon"),
        (
            draw([[[(0, 0), (0, 0), (0, 0), (0, 0)]]]),
            "x.geojson: polygon 1: is not a valid polygon",
        ),
        (
            draw([[[(0, 80), (120, 80), (-120, 80), (0, 80)]]]),
            "x.geojson: polygon 1: goes around a pole",
        ),
        (
            draw([[[(0, 86), (1, 86), (0, 87), (0, 86)]]]),
            "x.geojson: area: is not a valid area: is",
        ),
        (draw([[ring(0, 86, 1, 87)]]), "x.geojson: area: is not a valid area: is entirely beyond"),
        (draw(lines=[[(1, 1), (1, 1)]]), "x.geojson: area: is not a valid area: a line needs"),
        (
            draw(lines=[[(n / 1e4, 0) for n in range(30_000)]]),
            "x.geojson: area: has more than 20,000 positions",
        ),
    ],
)
def test_invalid_drawing_is_rejected(drawing: Drawing, problem: str) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        build_area(drawing)
    assert problem in str(refusal.value)


def test_touching_rings_are_valid() -> None:
    hole: Ring = [(36.1, 49.9), (36.3, 49.95), (36.2, 50.0), (36.1, 49.9)]
    assert isinstance(build_area(draw([[TRIANGLE, hole], [ring(36.4, 49.9, 36.5, 50)]])), Shape)


def measure_m(a: tuple[float, float], b: tuple[float, float]) -> float:
    lon, lat = math.radians(b[0] - a[0]), math.radians(b[1] - a[1])
    north = math.cos(math.radians(a[1])) * math.cos(math.radians(b[1]))
    part = math.sin(lat / 2) ** 2 + north * math.sin(lon / 2) ** 2
    return 2 * 6_371_008.8 * math.asin(math.sqrt(part))


def contains(shape: Shape, lon: float, lat: float) -> bool:
    point = shapely.Point((lon + 180) % 360 - 180, lat)
    return any(
        shapely.Polygon(
            *(
                [(x / 1e7, y / 1e7) for x, y in rings[0]],
                [[(x / 1e7, y / 1e7) for x, y in hole] for hole in rings[1:]],
            )
        ).intersects(point)
        for rings in shape.polygons
    )


@settings(max_examples=30, deadline=None)
@given(
    start=st.tuples(st.floats(-180, 180), st.floats(-70, 70)),
    course=st.floats(0, 2 * math.pi),
    buffer_m=st.sampled_from([50.0, 500.0, 5_000.0]),
    bearing=st.floats(0, 2 * math.pi),
    share=st.floats(0, 1),
)
def test_corridor_contains_what_is_near_the_route_only(
    start: tuple[float, float], course: float, buffer_m: float, bearing: float, share: float
) -> None:
    def go(place: tuple[float, float], angle: float, metres: float) -> tuple[float, float]:
        lon, lat = (math.radians(part) for part in place)
        far = metres / 6_371_008.8
        north = math.asin(
            math.sin(lat) * math.cos(far) + math.cos(lat) * math.sin(far) * math.cos(angle)
        )
        east = math.atan2(
            math.sin(angle) * math.sin(far) * math.cos(lat),
            math.cos(far) - math.sin(lat) * math.sin(north),
        )
        return ((math.degrees(lon + east) + 180) % 360 - 180, math.degrees(north))

    end = go(start, course, 60_000)
    shape = build_corridor(draw(lines=[[start, end]]), buffer_m)
    on_route = go(start, course, share * 60_000)
    near = go(on_route, bearing, buffer_m * 0.99)
    assert contains(shape, *near)
    beyond = go(start, course + math.pi, buffer_m * 1.05)
    assert not contains(shape, *beyond)
    aside = go(on_route, course + math.pi / 2, buffer_m * 1.1)
    track = [go(start, course, metres) for metres in range(0, 60_001, 50)]
    if min(measure_m(aside, place) for place in track) > buffer_m * 1.05:
        assert not contains(shape, *aside)


def test_diagonal_corridor_needs_a_fifth_of_its_box() -> None:
    route: Ring = [(36.0, 50.0), (37.0, 50.63)]  # 100 km
    assert 99_000 < measure_m(*route) < 101_000
    shape = build_corridor(draw(lines=[route]), 500)
    for zoom in (14, 16, 18):
        needed = TileCoverage.from_place(shape, [zoom]).count
        assert needed <= TileCoverage(bbox=shape.bbox, zoom_levels=[zoom]).count / 5


def test_corridor_across_the_antimeridian_is_cut() -> None:
    shape = build_corridor(draw(lines=[[(179.9, 10), (-179.9, 10.1)]]), 2_000)
    assert shape.bbox.crosses_antimeridian
    assert 0.2 < shape.bbox.width < 0.3


def test_long_track_is_simplified() -> None:
    track = [(36 + n / 1e5, 50 + math.sin(n / 9) / 1e4) for n in range(30_000)]
    shape = build_corridor(draw(lines=[track]), 500)
    assert sum(len(ring) for rings in shape.polygons for ring in rings) < 2_000


def test_closed_route_leaves_a_hole() -> None:
    shape = build_corridor(draw(lines=[ring(36, 50, 36.2, 50.1)]), 500)
    assert [len(rings) for rings in shape.polygons] == [2]


@pytest.mark.parametrize(
    ("drawing", "problem"),
    [
        (draw([[TRIANGLE]]), "x.geojson: file: contains no line, track or route"),
        (
            draw(lines=[[(0, 89), (1, 89)]]),
            "x.geojson: route: does not give a valid corridor: is entirely",
        ),
    ],
)
def test_invalid_route_is_rejected(drawing: Drawing, problem: str) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        build_corridor(drawing, 500)
    assert problem in str(refusal.value)


def test_tiles_of_a_drawing_are_those_that_shapely_finds() -> None:
    """The oracle of the domain shares no code with shapely; this one shares none with us."""
    star: Ring = [
        (36 + far * math.cos(turn), 50 + far * math.sin(turn))
        for turn, far in zip([n * math.pi / 10 for n in range(20)], [0.5, 0.2] * 10, strict=True)
    ]
    closed = [*star, star[0]]
    place = build_area(draw([[closed]]))
    assert isinstance(place, Shape)
    area = TileCoverage.from_place(place, [10, 13])
    polygon = shapely.Polygon([(round(x, 7), round(y, 7)) for x, y in closed])
    for tile in TileCoverage(bbox=place.bbox, zoom_levels=[10, 13]).tiles("x"):
        box = tile_bounds(tile)
        square = shapely.box(box.west, box.south, box.east, box.north)
        assert area.contains(tile) == square.relate_pattern(polygon, "T********")
    assert all(a < b for a, b in pairwise(area.tiles("x")))
