"""The overlay of a flight on the map: its areas, flaws, refusals and captured tiles."""

from collections.abc import Iterator, Sequence
from functools import partial

from starlette.responses import Response

from tileferry.application.cache.flight_overlay import FlightOverlay, OverlayKind, OverlayRegion
from tileferry.domain.errors import InvalidValueError, NotFoundError, Remedy
from tileferry.domain.tiles import BBox, Flight
from tileferry.domain.tiles.bbox import enclose_boxes
from tileferry.domain.tiles.shape import shape_to_geojson
from tileferry.entrypoints.web.site import PageRequest, PageRoute
from tileferry.entrypoints.web.snapshots import Snapshots

PATH = "/map/overlay"
FEATURES_MAX = 2_000
_LISTED_MAX = 60
_OVERLAYS_MAX = 8


class Overlays(Snapshots[FlightOverlay]):
    """The latest overlays; a large flight takes seconds."""

    @classmethod
    def create(cls) -> "Overlays":
        return cls(_OVERLAYS_MAX)


class CheckedOverlays(Overlays):
    """The same, of flights whose tiles were read; they do not delay the others."""


def show_overlay(request: PageRequest) -> Response:
    """Return the regions of a flight as rectangles, and the legend and list as a fragment.

    ``is_ready`` is false while they are computed; the browser asks again.
    """
    flight_id = request.query.get("flight", "")
    flight = request.installation.flights.book.find_flight(flight_id)
    if flight is None:
        raise NotFoundError(what="flight", name=flight_id, remedy=Remedy.LIST_FLIGHTS)
    zoom = _read_zoom(request.query.get("zoom", ""))
    quick = "damage" not in request.query
    build = partial(request.installation.flight_overlays.build, flight, quick=quick)
    kind = Overlays if quick else CheckedOverlays
    # The whole flight is the key: another area makes it another overlay.
    snapshot = request.site.get_state(kind, kind.create).get(flight, build)
    overlay = snapshot.get()
    regions = [] if overlay is None else _select(overlay, zoom)
    features = [*_iter_areas(flight, zoom), *map(_describe_region, regions)]
    boxes = flight.boxes
    return request.answer_json(
        {
            "is_ready": overlay is not None or snapshot.problem is not None,
            "features": features[:FEATURES_MAX],
            "is_complete": len(features) <= FEATURES_MAX,
            "bbox": to_list(enclose_boxes(boxes)) if boxes else None,
            "zooms": [] if overlay is None else overlay.zoom_levels,
            "html": _render(request, flight, overlay, zoom, snapshot.problem),
        }
    )


def _render(
    request: PageRequest,
    flight: Flight,
    overlay: FlightOverlay | None,
    zoom: int | None,
    problem: str | None,
) -> str:
    """Return the verdict, the legend with counts, and the largest regions as a list of links."""
    regions = [] if overlay is None else _select(overlay, zoom)
    largest = sorted(regions, key=lambda one: one.count, reverse=True)[:_LISTED_MAX]
    return request.render_text(
        "_overlay.html",
        {
            "flight": flight,
            "verdict": None if overlay is None else overlay.verdict.verdict,
            "problem": problem,
            "kinds": _list_kinds(overlay, zoom),
            "zoom": zoom,
            "zooms": [] if overlay is None else overlay.zoom_levels,
            "reads_bytes": overlay is not None and overlay.verdict.bytes_checked,
            "listed": [
                {**_describe_region(one), "meaning": one.kind.meaning, "count": one.count}
                for one in sorted(largest, key=regions.index)
            ],
            "regions": len(regions),
        },
    )


def _list_kinds(overlay: FlightOverlay | None, zoom: int | None) -> Sequence[object]:
    """Return the kinds for the legend, with their counts if they are known."""
    counts: dict[OverlayKind, int | None] = {} if overlay is None else {**overlay.count(zoom)}
    if overlay is not None and not overlay.verdict.bytes_checked:
        counts[OverlayKind.DAMAGED] = None  # not known
    return [
        {"name": kind.value, "meaning": kind.meaning, "count": counts.get(kind)}
        for kind in OverlayKind
    ]


def _select(overlay: FlightOverlay, zoom: int | None) -> Sequence[OverlayRegion]:
    return [one for one in overlay.regions if zoom in {None, one.tiles.zoom}]


def _describe_region(region: OverlayRegion) -> dict[str, object]:
    tiles = region.tiles
    return {
        "kind": region.kind.value,
        "zoom": tiles.zoom,
        "tile": f"{tiles.zoom}/{tiles.x_min}/{tiles.y_min}",
        "bbox": to_list(tiles.bounds),
        "text": f"zoom {tiles.zoom}: {region.count:,} {region.kind.meaning}",
    }


def _iter_areas(flight: Flight, zoom: int | None) -> Iterator[dict[str, object]]:
    for item in flight.areas:
        if zoom is None or zoom in item.area.zoom_levels:
            zooms = ", ".join(map(str, item.area.zoom_levels))
            text = f"{flight.flight_id}: zoom {zooms}, {item.area.sector_class}"
            shape = None if item.area.shape is None else shape_to_geojson(item.area.shape)
            yield {
                "kind": "area",
                "bbox": to_list(item.area.bbox),
                "shape": shape,
                "text": text,
            }


def _read_zoom(text: str) -> int | None:
    if not text:
        return None
    digits_max = 2
    if not (text.isascii() and text.isdecimal() and len(text) <= digits_max):
        raise InvalidValueError(field="zoom", value=text, problem="is not a zoom level")
    return int(text)


def to_list(box: BBox) -> Sequence[float]:
    return [box.west, box.south, box.east, box.north]


ROUTE = PageRoute(PATH, show_overlay)
