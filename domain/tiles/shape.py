"""A shape on the globe: polygons with holes, and lines, in units of 1e-7 degrees.

The coordinates are integers, as autopilots store them: a unit is at most 1.1 cm on the ground. So a
shape has one canonical text, and its tiles follow from exact arithmetic. Edges are straight in
longitude and latitude, as in GeoJSON (RFC 7946). A part that crosses the antimeridian is cut there.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import chain, pairwise
from typing import NoReturn, TypeAlias

from attrs import field, frozen

from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.bbox import LAT_MAX, LON_MAX, BBox, find_enclosing_arc
from tileferry.domain.tiles.limits import SHAPE_CHARS_MAX, SHAPE_VERTICES_MAX

UNITS_PER_DEGREE = 10_000_000
LON_UNITS_MAX = int(LON_MAX) * UNITS_PER_DEGREE
LAT_UNITS_MAX = int(LAT_MAX) * UNITS_PER_DEGREE
RING_VERTICES_MIN = 3
LINE_VERTICES_MIN = 2
DIGEST_DIGITS = 16

Vertex: TypeAlias = tuple[int, int]
"""Longitude and latitude, in units."""
Path: TypeAlias = tuple[Vertex, ...]
Degrees: TypeAlias = Sequence[tuple[float, float]]
"""Longitudes and latitudes of a ring or a line."""

_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,9}", re.ASCII)


def _drop_repeats(path: Iterable[Vertex]) -> list[Vertex]:
    found: list[Vertex] = []
    for vertex in path:
        if not found or found[-1] != vertex:
            found.append(vertex)
    return found


def _normalize_ring(ring: Iterable[Vertex]) -> Path:
    """Return the ring without its closing vertex, from its least vertex on, in one direction."""
    found = _drop_repeats(ring)
    if len(found) > 1 and found[0] == found[-1]:
        found.pop()
    start = found.index(min(found)) if found else 0
    forward = (*found[start:], *found[:start])
    return min(forward, (*forward[:1], *forward[:0:-1]))


def _normalize_line(line: Iterable[Vertex]) -> Path:
    found = tuple(_drop_repeats(line))
    return min(found, found[::-1])


def _normalize_polygons(
    polygons: Iterable[Iterable[Iterable[Vertex]]],
) -> tuple[tuple[Path, ...], ...]:
    return tuple(sorted({tuple(sorted(map(_normalize_ring, rings))) for rings in polygons}))


def _normalize_lines(lines: Iterable[Iterable[Vertex]]) -> tuple[Path, ...]:
    return tuple(sorted(set(map(_normalize_line, lines))))


@frozen(kw_only=True, slots=False)  # no slots: cached properties need a __dict__
class Shape:
    """Polygons and lines. Order, direction, starting points and duplicates do not matter.

    A point is inside a polygon if it is inside an odd number of its rings; of several polygons and
    lines, each adds its tiles.
    """

    polygons: tuple[tuple[Path, ...], ...] = field(default=(), converter=_normalize_polygons)
    lines: tuple[Path, ...] = field(default=(), converter=_normalize_lines)

    def __attrs_post_init__(self) -> None:
        if not (self.polygons or self.lines):
            _refuse("nothing", "has no polygon and no line")
        count = sum(map(len, self._iter_paths()))
        if count > SHAPE_VERTICES_MAX:
            _refuse(
                f"{count:,} vertices",
                f"has more than {SHAPE_VERTICES_MAX:,} vertices",
                remedy="simplify it, or split it into several areas",
            )
        for rings in self.polygons:
            _check_paths(rings, RING_VERTICES_MIN, "a ring")
        _check_paths(self.lines, LINE_VERTICES_MIN, "a line")
        self.bbox  # noqa: B018  # raises if it is beyond the latitudes of Web Mercator

    def __str__(self) -> str:
        """Return the canonical text: ``P`` or ``L``, a vertex, then the steps to the others."""
        parts = ["P " + ";".join(map(_format_path, rings)) for rings in self.polygons]
        return "|".join(parts + ["L " + _format_path(line) for line in self.lines])

    @cached_property
    def digest(self) -> str:
        """A hash of the canonical text, for keys and file names. It must not change."""
        return sha256(str(self).encode("ascii")).hexdigest()[:DIGEST_DIGITS]

    @cached_property
    def bbox(self) -> BBox:
        """The box around the shape; across the antimeridian if the shape is on both sides of it."""
        spans = []
        for path in self._iter_paths():
            longitudes = [lon for lon, _ in path]
            spans.append((min(longitudes), max(longitudes)))
        latitudes = [lat for path in self._iter_paths() for _, lat in path]
        west, east = find_enclosing_arc(spans, turn=2 * LON_UNITS_MAX)
        south, north = min(latitudes), max(latitudes)
        # A line along a meridian or a parallel needs a box with a size.
        if west == east or west - east == 2 * LON_UNITS_MAX:
            west, east = max(west - 1, -LON_UNITS_MAX), min(east + 1, LON_UNITS_MAX)
        if south == north:
            south, north = max(south - 1, -LAT_UNITS_MAX), min(north + 1, LAT_UNITS_MAX)
        return BBox(
            west=west / UNITS_PER_DEGREE,
            south=south / UNITS_PER_DEGREE,
            east=east / UNITS_PER_DEGREE,
            north=north / UNITS_PER_DEGREE,
        )

    def _iter_paths(self) -> Iterator[Path]:
        return chain(chain.from_iterable(self.polygons), self.lines)

    @classmethod
    def from_degrees(
        cls, *, polygons: Iterable[Iterable[Degrees]] = (), lines: Iterable[Degrees] = ()
    ) -> "Shape":
        """Build a shape from rings and lines in degrees, rounded to whole units."""
        return cls(
            polygons=[[map(_round_vertex, ring) for ring in rings] for rings in polygons],
            lines=[map(_round_vertex, line) for line in lines],
        )

    @classmethod
    def parse(cls, text: str) -> "Shape":
        """Parse the canonical text; reject any other form."""
        if type(text) is not str or len(text) > SHAPE_CHARS_MAX:
            _refuse(type(text).__name__, f"must be text of at most {SHAPE_CHARS_MAX:,} characters")
        polygons, lines = [], []
        for part in text.split("|"):
            kind, _, paths = part.partition(" ")
            if kind == "P":
                polygons.append([_parse_path(path) for path in paths.split(";")])
            elif kind == "L":
                lines.append(_parse_path(paths))
            else:
                _refuse(part, "is neither a polygon, P, nor a line, L")
        shape = cls(polygons=polygons, lines=lines)
        if str(shape) != text:
            _refuse(text, "is not in canonical form")
        return shape


Place: TypeAlias = BBox | Shape
"""Where an area is."""


def shape_to_geojson(shape: Shape) -> dict[str, JsonValue]:
    """Return the shape as GeoJSON: its polygons, outer ring first, and its lines."""
    polygons: list[JsonValue] = [
        [_to_positions((*ring, ring[0])) for ring in sorted(rings, key=_measure_box, reverse=True)]
        for rings in shape.polygons
    ]
    lines: list[JsonValue] = [_to_positions(line) for line in shape.lines]
    geometries: list[JsonValue] = []
    if polygons:
        geometries.append({"type": "MultiPolygon", "coordinates": polygons})
    if lines:
        geometries.append({"type": "MultiLineString", "coordinates": lines})
    return {"type": "GeometryCollection", "geometries": geometries}


def _measure_box(ring: Path) -> int:
    """Return the size of the box around a ring; that of an outer ring is the largest."""
    longitudes, latitudes = ([vertex[axis] for vertex in ring] for axis in (0, 1))
    return (max(longitudes) - min(longitudes)) * (max(latitudes) - min(latitudes))


def _to_positions(path: Path) -> list[JsonValue]:
    return [[lon / UNITS_PER_DEGREE, lat / UNITS_PER_DEGREE] for lon, lat in path]


def find_rectangle(ring: Degrees) -> BBox | None:
    """Return the box, if a ring is an upright rectangle; it may cross the antimeridian.

    So a rectangle that was drawn is the same area as the same box in numbers.
    """
    corners = set(ring)
    longitudes, latitudes = (sorted({place[axis] for place in corners}) for axis in (0, 1))
    is_upright = all((a[0] == b[0]) != (a[1] == b[1]) for a, b in pairwise(ring))
    is_closed = len(ring) == len(corners) + 1 and ring[0] == ring[-1]
    if not (is_upright and is_closed and len(corners) == len(longitudes) * len(latitudes) == 4):  # noqa: PLR2004  # corners
        return None
    west, east = (
        lon - math.copysign(2 * LON_MAX, lon) if abs(lon) > LON_MAX else lon for lon in longitudes
    )
    return BBox(west=west, south=latitudes[0], east=east, north=latitudes[1])


def _round_vertex(place: tuple[float, float]) -> Vertex:
    lon, lat = place
    if not (math.isfinite(lon) and math.isfinite(lat)):
        _refuse(place, "is not a pair of finite numbers")
    return round(lon * UNITS_PER_DEGREE), round(lat * UNITS_PER_DEGREE)


def _check_paths(paths: Sequence[Path], vertices_min: int, what: str) -> None:
    for path in paths:
        if len(path) < vertices_min:
            _refuse(
                f"{len(path)} vertices", f"{what} needs at least {vertices_min} different vertices"
            )
        for lon, lat in path:
            if not (
                type(lon) is int
                and type(lat) is int
                and -LON_UNITS_MAX <= lon <= LON_UNITS_MAX
                and -LAT_UNITS_MAX <= lat <= LAT_UNITS_MAX
            ):
                _refuse(
                    (lon, lat), "is not on the globe", remedy="the order is longitude, latitude"
                )


def _format_path(path: Path) -> str:
    steps = ((b[0] - a[0], b[1] - a[1]) for a, b in pairwise(path))
    return " ".join(f"{lon} {lat}" for lon, lat in chain(path[:1], steps))


def _parse_path(text: str) -> Path:
    numbers = text.split(" ")
    if len(numbers) % 2 or not all(map(_NUMBER.fullmatch, numbers)):
        _refuse(text, "is not a list of whole numbers in pairs")
    steps = map(int, numbers)
    lon = lat = 0
    found: list[Vertex] = []
    for step in steps:
        lon, lat = lon + step, lat + next(steps)
        found.append((lon, lat))
    return tuple(found)


def _refuse(value: object, problem: str, *, remedy: str = "") -> NoReturn:
    raise InvalidValueError(field="Shape", value=value, problem=problem, remedy=remedy)
