"""The tiles of a shape by brute force: each tile of a zoom level is tested by itself, in fractions.

Slow and simple: a polygon is clipped to the tile and measured; a line is clipped to the tile.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import shapely
from hypothesis import assume, reject
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import Shape, TileCoverage, TileId, tile_bounds
from tileferry.domain.tiles.shape import LAT_UNITS_MAX, LON_UNITS_MAX, UNITS_PER_DEGREE

Point = tuple[Fraction, Fraction]
Vertex = tuple[int, int]
Rings = list[list[Vertex]]
Box = tuple[Fraction, Fraction, Fraction, Fraction]


def find_tiles(shape: Shape, zoom: int) -> set[tuple[int, int]]:
    """Return the columns and rows of the tiles near the shape that belong to it."""
    around = TileCoverage(bbox=shape.bbox, zoom_levels=[zoom])
    last = (1 << zoom) - 1
    near = {
        (min(max(tile.x + dx, 0), last), min(max(tile.y + dy, 0), last))
        for tile in around.tiles("x")
        for dx in (-1, 0, 1)
        for dy in (-1, 0, 1)
    }
    return {(x, y) for x, y in near if is_in(shape, measure_tile(zoom, x, y))}


def measure_tile(zoom: int, x: int, y: int) -> Box:
    """Return the west, south, east and north edges of a tile in units; the columns exactly."""
    bounds = tile_bounds(TileId(source="x", zoom=zoom, x=x, y=y))
    west, east = (Fraction(2 * LON_UNITS_MAX * c, 1 << zoom) - LON_UNITS_MAX for c in (x, x + 1))
    south, north = (Fraction(lat) * UNITS_PER_DEGREE for lat in (bounds.south, bounds.north))
    return west, south, east, north


def is_in(shape: Shape, box: Box) -> bool:
    return any(measure_overlap(rings, box) > 0 for rings in shape.polygons) or any(
        touches(a, b, box) for line in shape.lines for a, b in pairwise(line)
    )


def measure_overlap(rings: Sequence[Sequence[Vertex]], box: Box) -> Fraction:
    """Return the area of a polygon inside a box: that of its largest ring, less its holes."""
    areas = [measure_area(clip(ring, box)) for ring in rings]
    sizes = [measure_area([(Fraction(x), Fraction(y)) for x, y in ring]) for ring in rings]
    outer = sizes.index(max(sizes))
    return 2 * areas[outer] - sum(areas, Fraction(0))


def clip(ring: Sequence[Vertex], box: Box) -> list[Point]:
    """Clip a ring to a box, one edge of the box after the other (Sutherland and Hodgman)."""
    points = [(Fraction(x), Fraction(y)) for x, y in ring]
    for axis, limit, sign in ((0, box[0], 1), (1, box[1], 1), (0, box[2], -1), (1, box[3], -1)):
        kept: list[Point] = []
        for a, b in zip(points, points[1:] + points[:1], strict=True):
            in_a, in_b = (sign * (p[axis] - limit) >= 0 for p in (a, b))
            if in_a:
                kept.append(a)
            if in_a != in_b:
                part = (limit - a[axis]) / (b[axis] - a[axis])
                kept.append((a[0] + part * (b[0] - a[0]), a[1] + part * (b[1] - a[1])))
        points = kept
    return points


def measure_area(points: Sequence[Point]) -> Fraction:
    double = sum(
        (
            a[0] * b[1] - b[0] * a[1]
            for a, b in zip(points, [*points[1:], *points[:1]], strict=True)
        ),
        Fraction(0),
    )
    return abs(double) / 2


def touches(a: Vertex, b: Vertex, box: Box) -> bool:
    """Tell whether a segment has a point in a box, edges included (Liang and Barsky)."""
    first, last = Fraction(0), Fraction(1)
    for axis, low, high in ((0, box[0], box[2]), (1, box[1], box[3])):
        step = b[axis] - a[axis]
        if not step:
            if not low <= a[axis] <= high:
                return False
            continue
        ends = sorted(((low - a[axis]) / step, (high - a[axis]) / step))
        first, last = max(first, ends[0]), min(last, ends[1])
    return first <= last


def hold(lon: int, lat: int) -> tuple[int, int]:
    """Return the nearest vertex on the globe."""
    return (
        min(max(lon, -LON_UNITS_MAX), LON_UNITS_MAX),
        min(max(lat, -LAT_UNITS_MAX), LAT_UNITS_MAX),
    )


centres = st.sampled_from(
    [(0, 0), (36, 50), (180, -17), (-180, 3), (90, 45), (-179, 85), (12, -85), (-45, -66)]
)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[Shape, int]:
    """A shape and a zoom level at which it has few tiles: stars with holes, boxes and lines.

    Many vertices are on edges of tiles, and many holes touch their ring.
    """
    zoom = draw(st.integers(0, 21))
    tile = 2 * LON_UNITS_MAX // (1 << zoom)
    size = draw(st.integers(1, max(2, min(3 * tile, LON_UNITS_MAX))))
    snap = draw(st.sampled_from([1, max(1, tile // 2)]))
    lon, lat = (degrees * UNITS_PER_DEGREE for degrees in draw(centres))

    def place(x: float, y: float) -> tuple[int, int]:
        return hold(*(base + round(at * size / snap) * snap for base, at in ((lon, x), (lat, y))))

    polygons: list[Rings] = []
    lines: list[list[Vertex]] = []
    for _ in range(draw(st.integers(0, 2))):
        corners = draw(st.integers(3, 9))
        reach = [draw(st.floats(0.3, 1)) for _ in range(corners)]
        angles = [2 * math.pi * n / corners for n in range(corners)]
        ring = [
            (far * math.cos(at), far * math.sin(at)) for far, at in zip(reach, angles, strict=True)
        ]
        rings = [[place(*point) for point in ring]]
        if draw(st.booleans()):
            shrink = draw(st.floats(0.1, 0.9))
            hole = [(x * shrink, y * shrink) for x, y in ring]
            if draw(st.booleans()):
                hole[0] = ring[0]
            rings.append([place(*point) for point in hole])
        polygons.append(rings)
    if not polygons or draw(st.booleans()):
        places = st.tuples(st.floats(-1, 1), st.floats(-1, 1))
        lines.append([place(*draw(places)) for _ in range(draw(st.integers(2, 5)))])
    return build_valid_shape(polygons, lines), zoom


def build_valid_shape(polygons: list[Rings], lines: list[list[Vertex]]) -> Shape:
    """Return the shape; discard the example if it is none, or a ring crosses itself or another."""
    for outer, *holes in polygons:
        assume(len(set(outer)) > 2 and all(len(set(hole)) > 2 for hole in holes))  # a triangle
        assume(shapely.Polygon(outer, holes).is_valid)
    try:
        return Shape(polygons=polygons, lines=lines)
    except InvalidValueError:  # vertices coincide, or all are beyond Web Mercator
        reject()
