"""QGroundControl plans: the route of the mission, its surveys, and the fence to stay inside."""

import math
from collections.abc import Iterator
from typing import Any

from tileferry.adapters.geodata.drawing import Drawing
from tileferry.adapters.geodata.geojson import parse_document

# MAV_CMD numbers of items that the aircraft flies to: its position is in params 5 and 6.
_FLOWN = {16, 17, 18, 19, 21, 22, 31, 82, 84, 85}
_RETURN_TO_LAUNCH = 20
_EARTH_RADIUS_M = 6_371_008.8
_CIRCLE_CORNERS = 64
_POSITION_PARTS_MIN = 2
_PARAMS_MIN = 6


def read_plan(content: bytes, drawing: Drawing) -> None:
    """Add what a plan draws: one line for the route, polygons of surveys and inclusion fences."""
    document = parse_document(content, drawing)
    if not isinstance(document, dict) or document.get("fileType") != "Plan":
        drawing.refuse("fileType", None, "is not a QGroundControl plan")
    mission = _get_object(document, "mission", drawing)
    route = list(_iter_route(mission, drawing))
    if len(route) > 1:
        drawing.add_line("mission", route)
    fence = document.get("geoFence") or {}
    if not isinstance(fence, dict):
        drawing.refuse("geoFence", type(fence).__name__, "must be an object")
    for index, polygon in enumerate(_get_items(fence, "polygons", "geoFence", drawing)):
        if polygon.get("inclusion") is True:
            _add_polygon(polygon.get("polygon"), f"geoFence.polygons[{index}]", drawing)
    for index, item in enumerate(_get_items(fence, "circles", "geoFence", drawing)):
        if item.get("inclusion") is True:
            _add_circle(item.get("circle"), f"geoFence.circles[{index}]", drawing)


def _iter_route(mission: dict[str, Any], drawing: Drawing) -> Iterator[tuple[float, float]]:
    home = mission.get("plannedHomePosition")
    launch = None if home is None else _parse_position(home, "plannedHomePosition", drawing)
    if launch == (0.0, 0.0):  # not set
        launch = None
    items = _get_items(mission, "items", "mission", drawing)
    if launch is not None and items:
        yield launch
    for index, item in enumerate(items):
        where = f"mission.items[{index}]"
        if item.get("type") == "ComplexItem":
            yield from _iter_complex_item(item, where, drawing)
        else:
            yield from _iter_simple_item(item, where, launch, drawing)


def _iter_simple_item(
    item: dict[str, Any], where: str, launch: tuple[float, float] | None, drawing: Drawing
) -> Iterator[tuple[float, float]]:
    command = item.get("command")
    if not isinstance(command, int):
        drawing.refuse(f"{where}.command", command, "must be a number")
    if command == _RETURN_TO_LAUNCH and launch is not None:
        yield launch
    if command not in _FLOWN:
        return
    params = item.get("params")
    if not (isinstance(params, list) and len(params) >= _PARAMS_MIN):
        drawing.refuse(where, None, "has no params")
    if params[4:6] in ([0, 0], [None, None]):  # take-off or landing at the current position
        return
    yield _parse_position(params[4:6], where, drawing)


def _iter_complex_item(
    item: dict[str, Any], where: str, drawing: Drawing
) -> Iterator[tuple[float, float]]:
    """Add the polygon of a survey or scan; yield the lines that are flown over it."""
    if "polygon" in item:
        _add_polygon(item["polygon"], where, drawing)
    flown = item.get("TransectStyleComplexItem")
    transects = flown.get("VisualTransectPoints") if isinstance(flown, dict) else None
    for points in (transects, item.get("polyline")):
        if isinstance(points, list):
            for number, point in enumerate(points, start=1):
                yield _parse_position(point, f"{where} point {number}", drawing)
            return
    for name in ("landingApproachCoordinate", "landCoordinate"):
        if name in item:
            yield _parse_position(item[name], f"{where}.{name}", drawing)


def _add_polygon(value: Any, where: str, drawing: Drawing) -> None:
    points = value if isinstance(value, list) else []
    ring = [_parse_position(point, f"{where} point {n}", drawing) for n, point in enumerate(points)]
    drawing.add_polygon(where, [[*ring, *ring[:1]]])


def _add_circle(value: Any, where: str, drawing: Drawing) -> None:
    circle = value if isinstance(value, dict) else {}
    radius = circle.get("radius")
    if not (isinstance(radius, int | float) and 0 < radius < _EARTH_RADIUS_M / 10):
        drawing.refuse(f"{where}.radius", radius, "must be a radius in metres")
    lon, lat = _parse_position(circle.get("center"), f"{where}.center", drawing)
    # Corners outside the circle, so that the polygon contains it.
    reach = math.degrees(radius / math.cos(math.pi / _CIRCLE_CORNERS) / _EARTH_RADIUS_M)
    scale = max(math.cos(math.radians(lat)), 0.01)
    turns = [2 * math.pi * n / _CIRCLE_CORNERS for n in range(_CIRCLE_CORNERS + 1)]
    ring = [
        (lon + reach * math.cos(turn) / scale, min(max(lat + reach * math.sin(turn), -90.0), 90.0))
        for turn in turns
    ]
    ring[-1] = ring[0]
    wrapped = [((east + 180) % 360 - 180, north) for east, north in ring]
    drawing.add_polygon(where, [wrapped])


def _parse_position(value: Any, where: str, drawing: Drawing) -> tuple[float, float]:
    """Return the longitude and latitude of a position, which is latitude first in plans."""
    parts = value[:_POSITION_PARTS_MIN] if isinstance(value, list) else []
    if len(parts) < _POSITION_PARTS_MIN or not all(type(part) in {int, float} for part in parts):
        drawing.refuse(where, value, "must be a latitude and a longitude")
    return float(parts[1]), float(parts[0])


def _get_object(data: dict[str, Any], name: str, drawing: Drawing) -> dict[str, Any]:
    found = data.get(name)
    if not isinstance(found, dict):
        drawing.refuse(name, type(found).__name__, "must be an object")
    return found


def _get_items(
    data: dict[str, Any], name: str, where: str, drawing: Drawing
) -> list[dict[str, Any]]:
    items = data.get(name, [])
    if not (isinstance(items, list) and all(isinstance(item, dict) for item in items)):
        drawing.refuse(f"{where}.{name}", type(items).__name__, "must be a list of objects")
    return items
