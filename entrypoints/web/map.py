"""The map: imagery of all sources, and the flaws of a flight's areas."""

import json
from collections.abc import Iterator, Sequence

from starlette.responses import RedirectResponse, Response

from tileferry.application.cache.readiness import FlightVerdict
from tileferry.domain.errors import NotFoundError, Remedy
from tileferry.domain.tiles import BBox, Flaw, Flight, TileRange
from tileferry.domain.tiles.bbox import enclose_boxes
from tileferry.domain.tiles.map_layer import MapLayer
from tileferry.entrypoints.web import map_tile
from tileferry.entrypoints.web.site import Page, PageRequest, PageRoute
from tileferry.entrypoints.web.tiles import BLANK_QUERY

_WORLD = (-180.0, -60.0, 180.0, 75.0)
_FEATURES_MAX = 2_000


def show_map(request: PageRequest) -> Response:
    layers = request.installation.map_service.list_with_merged()
    flights = request.installation.flights.book.list_flights()
    view = {
        "layers": [_describe_layer(layer) for layer in layers],
        "tile_page": map_tile.PATH,
        "bounds": _to_list(layers[0].bounds) if layers else _WORLD,
        "empty_image": request.site.assets.get_url("empty.png"),
    }
    return request.render(
        "map.html",
        {
            "title": "Map",
            "map": json.dumps(view),
            "layers": layers,
            "flights": [flight for flight in flights if flight.areas],
            "flaws": list(Flaw),
            "selected": request.query.get("flight", ""),
        },
    )


def show_overlay(request: PageRequest) -> Response:
    """Return the areas of a flight and their flaws, as rectangles."""
    flight_id = request.query.get("flight", "")
    flight = request.installation.flights.book.find_flight(flight_id)
    if flight is None:
        raise NotFoundError(what="flight", name=flight_id, remedy=Remedy.LIST_FLIGHTS)
    verdict = request.installation.readiness.check_flight(flight, quick=True)
    features = [*_iter_areas(flight), *_iter_flaws(verdict)]
    boxes = flight.boxes
    return request.answer_json(
        {
            "features": features[:_FEATURES_MAX],
            "bbox": _to_list(enclose_boxes(boxes)) if boxes else None,
            "is_complete": len(features) <= _FEATURES_MAX,
        }
    )


def _iter_areas(flight: Flight) -> Iterator[dict[str, object]]:
    for item in flight.areas:
        zooms = ", ".join(map(str, item.area.zoom_levels))
        text = f"{flight.flight_id}: zoom {zooms}, {item.area.sector_class}"
        yield {"class": "flight-area", "bbox": _to_list(item.area.bbox), "text": text}


def _iter_flaws(verdict: FlightVerdict) -> Iterator[dict[str, object]]:
    for report in verdict.reports:
        for patch in report.iter_patches():
            yield {
                "class": f"flaw-{patch.flaw}",
                "bbox": _to_list(patch.tiles.bounds),
                "text": f"zoom {patch.tiles.zoom}: {patch.flawed:,} {patch.flaw.meaning}",
            }


def _describe_layer(layer: MapLayer) -> dict[str, object]:
    return {
        "name": layer.name,
        "url": f"/tiles/{layer.name}/{{z}}/{{x}}/{{y}}?{BLANK_QUERY.decode()}",
        "levels": {level.zoom: _to_extent(level.extent) for level in layer.levels},
        "bounds": _to_list(layer.bounds),
        "zoom_min": layer.zoom_min,
        "zoom_max": layer.zoom_max,
    }


def _to_extent(tiles: TileRange) -> Sequence[int]:
    return [tiles.x_min, tiles.x_max, tiles.y_min, tiles.y_max]


def _to_list(box: BBox) -> Sequence[float]:
    return [box.west, box.south, box.east, box.north]


def go_to_map(request: PageRequest) -> Response:  # noqa: ARG001  # every handler gets one
    return RedirectResponse("/map", 303)


PAGE = Page(
    title="Map",
    path="/map",
    routes=(
        PageRoute("/", go_to_map),
        PageRoute("/map", show_map),
        PageRoute("/map/overlay", show_overlay),
        map_tile.ROUTE,
    ),
)
