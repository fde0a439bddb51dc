"""The map: imagery of all sources, the overlay of a flight, one tile, and plans."""

import json
from collections.abc import Sequence
from datetime import timedelta

from starlette.responses import RedirectResponse, Response

from tileferry.application.cache.map_service import LAYERS_TTL_S
from tileferry.domain.tiles import SectorClass, TileRange
from tileferry.domain.tiles.map_layer import MapLayer
from tileferry.entrypoints.web import map_overlay, map_plan, map_tile
from tileferry.entrypoints.web.site import Page, PageRequest, PageRoute
from tileferry.entrypoints.web.snapshots import Snapshot
from tileferry.entrypoints.web.tiles import BLANK_QUERY

_REPEAT = timedelta(seconds=LAYERS_TTL_S)
_WORLD = (-180.0, -60.0, 180.0, 75.0)


class StoredLayers(Snapshot[Sequence[MapLayer]]):
    """All layers; counting a million tiles takes longer than a page should."""


def show_map(request: PageRequest) -> Response:
    layers = _list_layers(request)
    flights = request.installation.flights.book.list_flights()
    view = {
        "layers": [_describe_layer(layer) for layer in layers],
        "tile_page": map_tile.PATH,
        "overlay": map_overlay.PATH,
        "bounds": map_overlay.to_list(layers[0].bounds) if layers else _WORLD,
        "empty_image": request.site.assets.get_url("empty.png"),
    }
    return request.render(
        "map.html",
        {
            "title": "Map",
            "map": json.dumps(view),
            "layers": layers,
            "flights": [flight.flight_id for flight in flights if flight.areas],
            "known_flights": [flight.flight_id for flight in flights],
            "sectors": {one.value: one.value.replace("_", " ") for one in SectorClass},
            "selected": request.query.get("flight", ""),
        },
    )


def _list_layers(request: PageRequest) -> Sequence[MapLayer]:
    """Return the layers; if counting takes too long, as they were a few seconds ago."""
    count = request.installation.map_service.list_with_merged
    snapshot = request.site.get_state(
        StoredLayers, lambda: StoredLayers(count, repeat=_REPEAT, prefers_new=True)
    )
    return snapshot.get() or count()


def _describe_layer(layer: MapLayer) -> dict[str, object]:
    return {
        "name": layer.name,
        "url": f"/tiles/{layer.name}/{{z}}/{{x}}/{{y}}?{BLANK_QUERY.decode()}",
        "levels": {level.zoom: _to_extent(level.extent) for level in layer.levels},
        "bounds": map_overlay.to_list(layer.bounds),
        "zoom_min": layer.zoom_min,
        "zoom_max": layer.zoom_max,
    }


def _to_extent(tiles: TileRange) -> Sequence[int]:
    return [tiles.x_min, tiles.x_max, tiles.y_min, tiles.y_max]


def go_to_map(request: PageRequest) -> Response:  # noqa: ARG001  # every handler gets one
    return RedirectResponse("/map", 303)


PAGE = Page(
    title="Map",
    path="/map",
    routes=(
        PageRoute("/", go_to_map),
        PageRoute("/map", show_map),
        map_overlay.ROUTE,
        map_tile.ROUTE,
        *map_plan.CHANGE.routes,
    ),
)
