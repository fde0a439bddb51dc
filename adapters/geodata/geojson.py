"""GeoJSON (RFC 7946): polygons and lines, alone, in features or in collections."""

from collections.abc import Mapping
from typing import Any, NoReturn

from tileferry.adapters.geodata.drawing import RING_POSITIONS_MIN, Drawing
from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import VALUES_MAX, count_values_max, parse_json
from tileferry.domain.text import format_bytes

JSON_BYTES_MAX = 4 * 1024 * 1024
_POSITION_PARTS_MIN = 2
_NESTING_MAX = 16


def read_geojson(content: bytes, drawing: Drawing) -> None:
    """Add what a GeoJSON document draws. Errors name the invalid member's path."""
    _add(parse_document(content, drawing), drawing.name, drawing, 0)


def parse_document(content: bytes, drawing: Drawing) -> JsonValue:
    """Parse a JSON file of a limited size."""
    if len(content) > JSON_BYTES_MAX or count_values_max(content) > VALUES_MAX:
        drawing.refuse(
            "file",
            format_bytes(len(content)),
            f"is larger than {format_bytes(JSON_BYTES_MAX)} or {VALUES_MAX:,} values",
            remedy="simplify it, or split it into several files",
        )
    return parse_json(content, field=drawing.name, bytes_max=JSON_BYTES_MAX)


def _add(value: Any, path: str, drawing: Drawing, depth: int) -> None:
    kind = _get_member(value, path, "type")
    if depth > _NESTING_MAX:
        _refuse(path, kind, f"is nested more than {_NESTING_MAX} levels deep")
    match kind:
        case "FeatureCollection":
            for index, feature in enumerate(_get_list(value, path, "features")):
                _add(feature, f"{path}.features[{index}]", drawing, depth + 1)
        case "GeometryCollection":
            for index, geometry in enumerate(_get_list(value, path, "geometries")):
                _add(geometry, f"{path}.geometries[{index}]", drawing, depth + 1)
        case "Feature":
            _add(_get_member(value, path, "geometry"), f"{path}.geometry", drawing, depth + 1)
        case "Polygon" | "LineString":
            _add_part(kind, _get_list(value, path, "coordinates"), f"{path}.coordinates", drawing)
        case "MultiPolygon" | "MultiLineString":
            for index, part in enumerate(_get_list(value, path, "coordinates")):
                _add_part(kind.removeprefix("Multi"), part, f"{path}.coordinates[{index}]", drawing)
        case _:
            _refuse(
                f"{path}.type",
                kind,
                "is not an area",
                remedy="use Polygon, LineString or their Multi forms, by themselves or in a"
                " Feature(Collection)",
            )


def _add_part(kind: str, coordinates: JsonValue, path: str, drawing: Drawing) -> None:
    where = path.removeprefix(f"{drawing.name}.")
    if kind == "LineString":
        drawing.add_line(where, _parse_positions(coordinates, path))
        return
    if not (isinstance(coordinates, list) and coordinates):
        _refuse(path, type(coordinates).__name__, "must be a list of rings")
    drawing.add_polygon(
        where, [_parse_ring(ring, f"{path}[{n}]") for n, ring in enumerate(coordinates)]
    )


def _parse_ring(ring: JsonValue, path: str) -> list[list[float]]:
    if not isinstance(ring, list):
        _refuse(path.rpartition("[")[0], type(ring).__name__, "must be a list of rings")
    positions = _parse_positions(ring, path)
    if len(positions) < RING_POSITIONS_MIN or positions[0][:2] != positions[-1][:2]:
        _refuse(
            path,
            f"{len(positions)} positions",
            f"is not a ring: it needs {RING_POSITIONS_MIN} positions, the last equal to the first",
        )
    return positions


def _parse_positions(value: JsonValue, path: str) -> list[list[float]]:
    if not isinstance(value, list):
        _refuse(path, type(value).__name__, "must be a list of positions")
    for index, position in enumerate(value):
        parts = position if isinstance(position, list) else []
        if len(parts) < _POSITION_PARTS_MIN or not all(type(n) in {int, float} for n in parts):
            _refuse(f"{path}[{index}]", position, "must be a longitude and a latitude")
    return value  # checked above


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
