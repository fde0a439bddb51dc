"""The bounding box of the polygons of a GeoJSON document (RFC 7946)."""

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import parse_json
from tileferry.domain.tiles.bbox import CROSSING_WIDTH_MAX, LAT_MAX, LON_MAX, BBox

GEOJSON_BYTES_MAX = 4 * 1024 * 1024
RING_POSITIONS_MIN = 4
_POSITION_PARTS_MIN = 2

Position = tuple[float, float]


def parse_geojson_bbox(content: bytes, *, field: str = "area") -> BBox:
    """Return the smallest box that contains every polygon. Errors name the invalid member's path.

    Polygons on both sides of the antimeridian give a box that crosses it. RFC 7946 requires an area
    that crosses the antimeridian to be cut there.
    """
    document = parse_json(content, field=field, bytes_max=GEOJSON_BYTES_MAX)
    spans: list[Position] = []
    south, north = LAT_MAX, -LAT_MAX
    for ring in _iter_rings(document, field):
        longitudes = [position[0] for position in ring]
        spans.append((min(longitudes), max(longitudes)))
        latitudes = [position[1] for position in ring]
        south, north = min(south, *latitudes), max(north, *latitudes)
    if not spans:
        _refuse(field, "no polygon", "contains no area")
    west, east = _find_enclosing_arc(spans)
    try:
        return BBox(west=west, south=south, east=east, north=north)
    except InvalidValueError as error:
        _refuse(field, error.value, f"is not a valid area: {error.problem}")


def _find_enclosing_arc(spans: list[Position]) -> Position:
    """Return the west and east edges that enclose all spans.

    The result crosses the antimeridian only if the gap between spans is at least 180 degrees. A
    wider crossing box would look like one with west and east swapped.
    """
    ordered = sorted(spans)
    west, reach = ordered[0]
    for start, end in ordered[1:]:
        if start - reach >= CROSSING_WIDTH_MAX:
            return start, reach
        reach = max(reach, end)
    return west, reach


def _iter_rings(value: Any, path: str) -> Iterator[list[Position]]:
    """Yield the outer ring of every polygon. Holes do not extend the box."""
    kind = _get_member(value, path, "type")
    match kind:
        case "FeatureCollection":
            for index, feature in enumerate(_get_list(value, path, "features")):
                yield from _iter_rings(feature, f"{path}.features[{index}]")
        case "Feature":
            yield from _iter_rings(_get_member(value, path, "geometry"), f"{path}.geometry")
        case "Polygon":
            yield _parse_outer_ring(_get_list(value, path, "coordinates"), f"{path}.coordinates")
        case "MultiPolygon":
            for index, polygon in enumerate(_get_list(value, path, "coordinates")):
                yield _parse_outer_ring(polygon, f"{path}.coordinates[{index}]")
        case _:
            _refuse(
                f"{path}.type",
                kind,
                "is not an area",
                remedy="use Polygon or MultiPolygon, by itself or in a Feature(Collection)",
            )


def _parse_outer_ring(polygon: JsonValue, path: str) -> list[Position]:
    if not (isinstance(polygon, list) and polygon and isinstance(polygon[0], list)):
        _refuse(path, type(polygon).__name__, "must be a list of rings")
    ring = [_parse_position(item, f"{path}[0][{index}]") for index, item in enumerate(polygon[0])]
    if len(ring) < RING_POSITIONS_MIN or ring[0] != ring[-1]:
        _refuse(
            f"{path}[0]",
            f"{len(ring)} positions",
            f"is not a ring: it needs {RING_POSITIONS_MIN} positions, the last equal to the first",
        )
    return ring


def _parse_position(value: JsonValue, path: str) -> Position:
    numbers = value if isinstance(value, list) else []
    if len(numbers) < _POSITION_PARTS_MIN or not all(
        type(part) in {int, float} for part in numbers
    ):
        _refuse(path, value, "must be a longitude and a latitude")
    longitude, latitude = float(numbers[0]), float(numbers[1])
    if abs(longitude) > LON_MAX or abs(latitude) > LAT_MAX:
        _refuse(
            path,
            value,
            "is not on the globe",
            remedy="the order is longitude, latitude, in degrees",
        )
    return longitude, latitude


def _get_member(value: Any, path: str, name: str) -> Any:
    if not isinstance(value, Mapping):
        _refuse(path, type(value).__name__, "must be a GeoJSON object")
    if name not in value:
        _refuse(f"{path}.{name}", None, "is missing")
    return value[name]


def _get_list(value: Any, path: str, name: str) -> list[JsonValue]:
    found = _get_member(value, path, name)
    if not isinstance(found, list):
        _refuse(f"{path}.{name}", type(found).__name__, "must be a list")
    return found


def _refuse(field: str, value: object, problem: str, *, remedy: str = "") -> NoReturn:
    raise InvalidValueError(field=field, value=value, problem=problem, remedy=remedy)
