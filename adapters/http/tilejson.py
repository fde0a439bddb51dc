"""TileJSON, versions 2 and 3: where a server has its tiles."""

import re
from urllib.parse import urljoin

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import JsonObject, parse_json
from tileferry.domain.tiles import BBox
from tileferry.domain.tiles.bbox import LAT_MAX, LON_MAX
from tileferry.domain.tiles.limits import TILE_PX
from tileferry.domain.tiles.tile_description import TileDescription
from tileferry.domain.tiles.tile_id import ZOOM_MAX

DOCUMENT = "TileJSON"
_VERSION = re.compile(r"[23]\.[0-9]{1,3}(\.[0-9]{1,3})?", re.ASCII)
_RASTER_FORMATS = {"png", "jpg", "jpeg", "webp", "avif"}
_VECTOR_FORMATS = {"pbf", "mvt"}
_URL = re.compile(r"https?://", re.IGNORECASE)
_EDGES = 4
_BYTES_MAX = 1024 * 1024
_SIDES_PX_MAX = 1_024


def parse_tilejson(content: bytes, *, url: str) -> TileDescription:
    """Parse a TileJSON document; relative addresses in it are relative to ``url``."""
    data = JsonObject.from_value(
        parse_json(content, field=DOCUMENT, bytes_max=_BYTES_MAX), DOCUMENT
    )
    version = data.get("tilejson", str)
    if not _VERSION.fullmatch(version):
        raise data.build_error("tilejson", "must be version 2 or 3")
    kind = data.fields.get("format")
    has_vectors = data.fields.get("vector_layers") and kind not in _RASTER_FORMATS
    if has_vectors or kind in _VECTOR_FORMATS:
        raise data.build_error("format", "describes vector tiles; imagery is needed")
    side_px = data.get("tileSize", int) if "tileSize" in data.fields else TILE_PX
    if not TILE_PX <= side_px <= _SIDES_PX_MAX:
        raise data.build_error("tileSize", f"must be from {TILE_PX} to {_SIDES_PX_MAX}")
    return TileDescription(
        template=_read_template(data, url),
        zooms=_read_zooms(data),
        bounds=_read_bounds(data),
        tile_px=side_px,
    )


def _read_template(data: JsonObject, url: str) -> str:
    templates = data.get_list("tiles")
    if not templates or not isinstance(templates[0], str):
        raise data.build_error("tiles", "must be a list of addresses")
    first = templates[0]
    template = first if _URL.match(first) else urljoin(url, first)
    is_tms = data.fields.get("scheme", "xyz") == "tms"
    return template.replace("{y}", "{-y}") if is_tms else template


def _read_zooms(data: JsonObject) -> range:
    first, last = (
        data.get(name, int) if name in data.fields else default
        for name, default in (("minzoom", 0), ("maxzoom", ZOOM_MAX))
    )
    if not 0 <= first <= last:
        raise data.build_error("minzoom", f"must be from 0 to maxzoom, {last}")
    if first > ZOOM_MAX:
        raise data.build_error("minzoom", f"must be at most {ZOOM_MAX}")
    return range(first, min(last, ZOOM_MAX) + 1)


def _read_bounds(data: JsonObject) -> BBox | None:
    """Return the bounds; ``None`` if there are none, or none that are a box: they are optional."""
    edges = data.fields.get("bounds")
    if not isinstance(edges, list | tuple) or len(edges) != _EDGES:
        return None
    return build_bounds(*edges)


def build_bounds(west: object, south: object, east: object, north: object) -> BBox | None:
    """Return a box that a server names, or ``None`` if it is not one."""
    try:
        return BBox(
            west=_clamp(west, LON_MAX),
            south=_clamp(south, LAT_MAX),
            east=_clamp(east, LON_MAX),
            north=_clamp(north, LAT_MAX),
        )
    except (InvalidValueError, TypeError, ValueError):
        return None


def _clamp(value: object, limit: float) -> float:
    """Return a coordinate within its range: servers round theirs to a little more."""
    return max(-limit, min(limit, float(value)))  # type: ignore[arg-type]  # else a TypeError
