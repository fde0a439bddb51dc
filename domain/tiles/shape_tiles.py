"""The tiles of a shape at one zoom level, column by column, in exact arithmetic.

A tile belongs to a polygon if they share more than an edge or a corner, so a rectangle has the
tiles of its box. It belongs to a line if they touch, so a line along an edge has the tiles on both
sides. All comparisons are between integers: longitudes are scaled by the number of columns, and
latitudes, like the edges of rows, are whole multiples of 1e-12 degrees (0.1 µm).
"""

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise

from attrs import frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.limits import AREA_RANGES_MAX, SHAPE_STEPS_MAX
from tileferry.domain.tiles.mercator import fraction_to_latitude, latitude_to_fraction
from tileferry.domain.tiles.shape import LON_UNITS_MAX, Path, Shape
from tileferry.domain.tiles.tile_id import check_zoom
from tileferry.domain.tiles.tile_range import TileRange

_WIDTH = 2 * LON_UNITS_MAX
"""The width of a column, after longitudes are scaled by the number of columns."""
_LAT_SCALE = 100_000
_LAT_UNITS_PER_DEGREE = 1e12
_LINE = -1

Span = tuple[int, int]
"""The first and the last row."""
Rounded = tuple[int, int]
"""A latitude rounded down and up. Edges of rows are integers: nothing is lost in comparisons."""


def compute_shape_ranges(
    shape: Shape, zoom: int, *, ranges_before: int = 0
) -> tuple[TileRange, ...]:
    """Return the tiles of a shape at one zoom level as disjoint, ascending ranges.

    Neighbouring columns with the same single span are one range. ``ranges_before`` is how many
    other zoom levels have; together they must not have too many.
    """
    check_zoom(zoom)
    found: list[TileRange] = []
    begun: tuple[int, list[Span]] | None = None  # the first column of a range, and its spans
    last = 0
    for x, spans in _sweep(_build_edges(shape, zoom), _Rows(zoom)):
        if begun is None or x != last + 1 or len(spans) > 1 or spans != begun[1]:
            if begun is not None:
                found += _build_ranges(zoom, begun[0], last, begun[1])
            begun = x, spans
            _check_range_count(ranges_before + len(found), zoom)
        last = x
    assert begun is not None  # noqa: S101  # a shape is never wholly beyond Web Mercator
    return (*found, *_build_ranges(zoom, begun[0], last, begun[1]))


def _build_ranges(zoom: int, x_min: int, x_max: int, spans: Iterable[Span]) -> Iterator[TileRange]:
    for y_min, y_max in spans:
        yield TileRange(zoom=zoom, x_min=x_min, x_max=x_max, y_min=y_min, y_max=y_max)


def _check_range_count(count: int, zoom: int) -> None:
    if count > AREA_RANGES_MAX:
        raise InvalidValueError(
            field="area",
            value=f"zoom {zoom}",
            problem=f"the outline is too long: it needs more than {AREA_RANGES_MAX:,} ranges of"
            " tiles",
            remedy="request lower zoom levels, or split the area",
        )


@frozen
class _Edge:
    """An edge from west to east, and the columns that it crosses."""

    first: int
    last: int
    x0: int
    y0: int
    dx: int
    dy: int
    polygon: int
    """The number of its polygon; ``_LINE`` for an edge of a line."""

    def find_y(self, x: int) -> Rounded:
        """Return the latitude at a longitude of a sloping or level edge."""
        below, rest = divmod(self.dy * (x - self.x0), self.dx)
        return self.y0 + below, self.y0 + below + (rest > 0)

    def find_ends(self, column: int) -> list[Rounded]:
        """Return the least and the greatest latitude in a column."""
        if not self.dx:
            return sorted((y, y) for y in (self.y0, self.y0 + self.dy))
        west = max(self.x0, column * _WIDTH)
        east = min(self.x0 + self.dx, (column + 1) * _WIDTH)
        return sorted((self.find_y(west), self.find_y(east)))


class _Rows:
    """The rows of a zoom level, by latitude."""

    def __init__(self, zoom: int) -> None:
        self.count = 1 << zoom
        self.find_edge = lru_cache(maxsize=4_096)(self._compute_edge)

    def _compute_edge(self, row: int) -> int:
        """Return the northern edge of a row."""
        return round(fraction_to_latitude(row / self.count) * _LAT_UNITS_PER_DEGREE)

    def find_span(self, south: int, north: int) -> Span | None:
        """Return the rows that share more than an edge with what lies between two latitudes.

        They may be equal; then it is the row around them, or none if they are an edge.
        """
        y_min = max(self._estimate(north) - 1, 0)  # rounding may have moved it by one
        while y_min < self.count and self.find_edge(y_min + 1) >= north:
            y_min += 1
        y_max = min(self._estimate(south) + 1, self.count - 1)
        while y_max >= 0 and self.find_edge(y_max) <= south:
            y_max -= 1
        return (y_min, y_max) if y_min <= y_max else None

    def _estimate(self, latitude: int) -> int:
        fraction = latitude_to_fraction(latitude / _LAT_UNITS_PER_DEGREE)
        return math.floor(fraction * self.count)


def _build_edges(shape: Shape, zoom: int) -> list[_Edge]:
    """Return the edges that cross columns, from west to east."""
    edges = [
        edge
        for number, rings in enumerate(shape.polygons)
        for ring in rings
        for edge in _iter_edges((*ring, ring[0]), zoom, number)
    ]
    edges += (edge for line in shape.lines for edge in _iter_edges(line, zoom, _LINE))
    steps = sum(edge.last - edge.first + 1 for edge in edges)
    if steps > SHAPE_STEPS_MAX:
        raise InvalidValueError(
            field="area",
            value=f"zoom {zoom}",
            problem=f"the outline is too long: its edges cross {steps:,} columns of tiles, "
            f"{SHAPE_STEPS_MAX:,} are allowed",
            remedy="simplify it, request lower zoom levels, or split the area",
        )
    return sorted(edges, key=lambda edge: edge.first)


def _iter_edges(path: Path, zoom: int, polygon: int) -> Iterator[_Edge]:
    columns = 1 << zoom
    for ends in pairwise(path):
        (x0, y0), (x1, y1) = sorted(
            ((lon + LON_UNITS_MAX) << zoom, lat * _LAT_SCALE) for lon, lat in ends
        )
        first, last = x0 // _WIDTH, -(-x1 // _WIDTH) - 1
        if polygon == _LINE:  # it belongs to the columns that it touches, too
            first, last = max(-(-x0 // _WIDTH) - 1, 0), min(x1 // _WIDTH, columns - 1)
        elif x0 == x1 and x0 % _WIDTH:
            last = first
        if first <= last:
            yield _Edge(first, last, x0, y0, x1 - x0, y1 - y0, polygon)


def _sweep(edges: list[_Edge], rows: _Rows) -> Iterator[tuple[int, list[Span]]]:
    """Yield the columns of the shape from west to east, each with its spans of rows."""
    active: list[_Edge] = []
    position = column = 0
    while active or position < len(edges):
        if not active:
            column = edges[position].first
        while position < len(edges) and edges[position].first == column:
            active.append(edges[position])
            position += 1
        spans = _merge(_iter_spans(active, column, rows))
        if spans:
            yield column, spans
        column += 1
        active = [edge for edge in active if edge.last >= column]


def _iter_spans(active: Iterable[_Edge], column: int, rows: _Rows) -> Iterator[Span | None]:
    """Yield the rows of a column that an edge runs through, and those between the edges."""
    middle = column * _WIDTH + _WIDTH // 2
    crossings: dict[int, list[Rounded]] = {}
    for edge in active:
        south, north = edge.find_ends(column)
        if edge.polygon == _LINE:  # to touch an edge from either side is enough
            yield rows.find_span(south[1] - 1, north[0] + 1)
            continue
        yield rows.find_span(south[0], north[1])
        if edge.x0 <= middle < edge.x0 + edge.dx:
            crossings.setdefault(edge.polygon, []).append(edge.find_y(middle))
    for found in crossings.values():
        found.sort()
        for south, north in zip(found[::2], found[1::2], strict=True):
            yield rows.find_span(south[0], north[1])


def _merge(spans: Iterable[Span | None]) -> list[Span]:
    """Return the rows of overlapping and adjacent spans, as ascending disjoint spans."""
    merged: list[Span] = []
    for y_min, y_max in sorted(span for span in spans if span is not None):
        if merged and y_min <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], y_max)
        else:
            merged.append((y_min, y_max))
    return merged
