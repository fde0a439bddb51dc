"""Shapes from drawings: checked, cut at the antimeridian, and corridors along routes, by shapely.

A step of more than 180 degrees of longitude goes the short way, across the antimeridian.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import shapely
from shapely import affinity
from shapely.geometry.base import BaseGeometry

from tileferry.adapters.geodata.drawing import Drawing, DrawnPolygon, Position
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.bbox import LAT_MAX, LON_MAX
from tileferry.domain.tiles.limits import SHAPE_VERTICES_MAX
from tileferry.domain.tiles.shape import Degrees, Place, Shape, find_rectangle

_TURN = 2 * LON_MAX

# WGS 84
_EQUATOR_M = 6_378_137.0
_ECCENTRICITY_2 = 6.694_379_990_141e-3

_PIECE_M = 10_000.0
"""Corridors are built in flat pieces of this length, in which a metre is a metre within 0.2 %."""
_SHORT_DEGREES = 0.05
"""A leg that spans less is shorter than a piece."""
_MARGIN = 1.02
"""Corners instead of arcs, flat pieces and simplified lines reduce a buffer by up to 2 %."""
_SIMPLIFIED = 0.005
"""The share of the buffer by which a simplified line may be off."""


def build_area(drawing: Drawing) -> Place:
    """Return the shape of a drawing, or the box if it is one upright rectangle."""
    count = sum(len(ring) for polygon in drawing.polygons for ring in polygon.rings)
    count += sum(len(line.positions) for line in drawing.lines)
    if not count:
        _refuse_empty(drawing, "polygon, line, track or route")
    if count > SHAPE_VERTICES_MAX:
        drawing.refuse(
            "area",
            f"{count:,} positions",
            f"has more than {SHAPE_VERTICES_MAX:,} positions",
            remedy="simplify it, or use it as a route with a buffer, which is simplified",
        )
    polygons = [_unwrap_polygon(polygon, drawing) for polygon in drawing.polygons]
    lines = [unwrap(line.positions) for line in drawing.lines]
    try:
        if len(polygons) == 1 and len(polygons[0]) == 1 and not lines:
            box = find_rectangle(polygons[0][0])
            if box is not None:
                return box
        for drawn, rings in zip(drawing.polygons, polygons, strict=True):
            _check_polygon(shapely.Polygon(rings[0], rings[1:]), drawn.where, drawing)
        return Shape.from_degrees(
            polygons=[part for rings in polygons for part in _cut_polygon(rings)],
            lines=[part for line in lines for part in _cut_line(line)],
        )
    except InvalidValueError as error:
        if error.field.startswith(drawing.name):
            raise
        drawing.refuse("area", error.value, f"is not a valid area: {error.problem}")


def build_corridor(drawing: Drawing, buffer_m: float) -> Shape:
    """Return what is within a distance of the lines of a drawing.

    Legs are great circles. The corridor is 2 to 3 % wider than requested, and nowhere narrower.
    """
    if not drawing.lines:
        _refuse_empty(drawing, "line, track or route")
    pieces = [
        _buffer_piece(piece, buffer_m)
        for line in drawing.lines
        for piece in _iter_pieces(_follow_great_circles(unwrap(line.positions)))
    ]
    corridor = shapely.union_all(pieces)
    corridor = shapely.simplify(corridor, math.degrees(_SIMPLIFIED * buffer_m / _EQUATOR_M))
    corridor = corridor.intersection(shapely.box(-4 * _TURN, -LAT_MAX, 4 * _TURN, LAT_MAX))
    try:
        return Shape.from_degrees(
            polygons=[
                part
                for polygon in _list_polygons(corridor)
                for part in _cut_polygon(_list_rings(polygon))
            ]
        )
    except InvalidValueError as error:
        drawing.refuse(
            "route",
            error.value,
            f"does not give a valid corridor: {error.problem}",
            remedy="simplify the route, or use a wider buffer",
        )


def unwrap(positions: Sequence[Position]) -> list[Position]:
    """Return the positions with longitudes that continue beyond 180 degrees where they cross it.

    From -180 to 180 is not a crossing but a full turn, as in the outline of a world map.
    """
    found: list[Position] = []
    last, turns = positions[0][0], 0
    for lon, lat in positions:
        if LON_MAX < abs(lon - last) < _TURN:
            turns += 1 if lon < last else -1
        last = lon
        found.append((lon + turns * _TURN, lat))
    return found


def _unwrap_polygon(polygon: DrawnPolygon, drawing: Drawing) -> list[list[Position]]:
    rings = [unwrap(ring) for ring in polygon.rings]
    for ring in rings:
        if ring[0] != ring[-1]:
            drawing.refuse(
                polygon.where,
                None,
                "goes around a pole, or has an edge longer than half of the globe",
                remedy="cut it at the antimeridian",
            )
    outer, *holes = rings
    west = min(lon for lon, _ in outer)
    for index, hole in enumerate(holes, start=1):  # beside the outer ring, not a turn away from it
        turns = math.ceil((west - min(lon for lon, _ in hole)) / _TURN)
        rings[index] = [(lon + turns * _TURN, lat) for lon, lat in hole]
    return rings


def _check_polygon(polygon: shapely.Polygon, where: str, drawing: Drawing) -> None:
    if not polygon.is_valid:
        drawing.refuse(
            where,
            None,
            f"is not a valid polygon: {_explain(shapely.is_valid_reason(polygon))}",
            remedy="correct the outline where it crosses or repeats itself",
        )
    if not polygon.area:
        drawing.refuse(where, None, "has no area", remedy="draw it as a line instead")


def _explain(reason: str) -> str:
    """Return shapely's reason with the position: ``self-intersection at 36.1 50.2``."""
    what, _, place = reason.partition("[")
    return what.lower() + (f" at {place.rstrip(']')}" if place else "")


def _cut_polygon(rings: Sequence[Degrees]) -> Iterator[Sequence[Degrees]]:
    """Yield the parts of a polygon between the antimeridians."""
    outer = rings[0]
    if all(abs(lon) <= LON_MAX for lon, _ in outer):
        yield rings
        return
    for part in _iter_cuts(shapely.Polygon(outer, rings[1:])):
        for polygon in _list_polygons(part):
            yield _list_rings(polygon)


def _cut_line(line: Sequence[Position]) -> Iterator[Degrees]:
    if all(abs(lon) <= LON_MAX for lon, _ in line):
        yield line
        return
    for part in _iter_cuts(shapely.LineString(line)):
        for each in shapely.get_parts(part):
            if isinstance(each, shapely.LineString):
                yield [(place[0], place[1]) for place in each.coords]


def _iter_cuts(geometry: BaseGeometry) -> Iterator[BaseGeometry]:
    west, _, east, _ = geometry.bounds
    for turn in range(math.floor((west + LON_MAX) / _TURN), math.ceil((east + LON_MAX) / _TURN)):
        world = shapely.box(turn * _TURN - LON_MAX, -LAT_MAX, turn * _TURN + LON_MAX, LAT_MAX)
        yield affinity.translate(geometry.intersection(world), xoff=-turn * _TURN)


def _list_polygons(geometry: BaseGeometry) -> list[shapely.Polygon]:
    parts = shapely.get_parts(geometry)
    return [part for part in parts if isinstance(part, shapely.Polygon) and not part.is_empty]


def _list_rings(polygon: shapely.Polygon) -> list[Degrees]:
    rings = (polygon.exterior, *polygon.interiors)
    return [[(place[0], place[1]) for place in ring.coords] for ring in rings]


def _follow_great_circles(line: Sequence[Position]) -> Iterator[Position]:
    """Yield the positions of a route, and positions between them on long legs."""
    yield line[0]
    for (lon_a, lat_a), (lon_b, lat_b) in pairwise(line):
        if max(abs(lon_b - lon_a), abs(lat_b - lat_a)) < _SHORT_DEGREES:
            yield lon_b, lat_b
            continue
        a, b = (_to_vector(*end) for end in ((lon_a, lat_a), (lon_b, lat_b)))
        angle = math.acos(min(1.0, max(-1.0, sum(x * y for x, y in zip(a, b, strict=True)))))
        steps = math.ceil(angle * _EQUATOR_M / _PIECE_M)
        last = lon_a
        for step in range(1, steps):
            share = step / steps
            from_a, from_b = math.sin((1 - share) * angle), math.sin(share * angle)
            x, y, z = (from_a * p + from_b * q for p, q in zip(a, b, strict=True))
            lon = math.degrees(math.atan2(y, x))
            last = lon + _TURN * round((last - lon) / _TURN)
            yield last, math.degrees(math.atan2(z, math.hypot(x, y)))
        yield lon_b, lat_b


def _to_vector(lon: float, lat: float) -> tuple[float, float, float]:
    east, north = math.radians(lon), math.radians(lat)
    return (
        math.cos(north) * math.cos(east),
        math.cos(north) * math.sin(east),
        math.sin(north),
    )


def _iter_pieces(line: Iterable[Position]) -> Iterator[list[Position]]:
    """Yield parts of a line, each of about ``_PIECE_M`` at most; each starts where one ends."""
    piece: list[Position] = []
    for lon, lat in line:
        if len(piece) > 1:
            x, y = _measure_degree(piece[0][1])
            if math.hypot((lon - piece[0][0]) * x, (lat - piece[0][1]) * y) > _PIECE_M:
                yield piece
                piece = piece[-1:]
        piece.append((lon, lat))
    yield piece


def _measure_degree(lat: float) -> tuple[float, float]:
    """Return the length of a degree of longitude and of latitude, in metres, on the ellipsoid."""
    # A pole would have no length to the east.
    north = math.radians(min(max(lat, -89.0), 89.0))
    flat = 1 - _ECCENTRICITY_2 * math.sin(north) ** 2
    east_m = _EQUATOR_M / math.sqrt(flat) * math.cos(north)
    north_m = _EQUATOR_M * (1 - _ECCENTRICITY_2) / flat**1.5
    return math.radians(east_m), math.radians(north_m)


def _buffer_piece(piece: Sequence[Position], buffer_m: float) -> BaseGeometry:
    lon, lat = piece[0]
    y = _measure_degree(lat)[1]
    # Where degrees of longitude are shortest, the corridor is wide enough, and elsewhere too.
    poleward = max(abs(north) for _, north in piece) + buffer_m / y
    x = _measure_degree(poleward)[0]
    line = shapely.LineString([((east - lon) * x, (north - lat) * y) for east, north in piece])
    line = shapely.simplify(line, _SIMPLIFIED * buffer_m, preserve_topology=False)
    around = shapely.buffer(line, buffer_m * _MARGIN, quad_segs=8)
    return shapely.transform(around, lambda places: places / [x, y] + [lon, lat])


def _refuse_empty(drawing: Drawing, wanted: str) -> None:
    points = f"; it has {drawing.others:,} points only" if drawing.others else ""
    drawing.refuse("file", None, f"contains no {wanted}{points}")
