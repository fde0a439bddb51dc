"""WMTS 1.0.0 over the same tiles: RESTful and by key-value pairs."""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl

from starlette.responses import Response

from tileferry.domain.tiles.tile_id import ALL_ZOOMS
from tileferry.entrypoints.web.site import Page, PageRequest, PageRoute

MATRIX_SET = "GoogleMapsCompatible"
"""The well-known set of Web Mercator tiles of 256 pixels; accepted for every layer."""
_SCALE_0 = 559_082_264.028_717_7
"""The scale denominator of zoom 0, with the standard's pixel of 0.28 mm."""
_XML = "application/xml"
PATH = "/wmts"
_PLACE = ("layer", "tilematrixset", "tilematrix", "tilerow", "tilecol")
_TILE = re.compile(
    rf"{PATH}/([a-z0-9][a-z0-9._-]*)/default/([A-Za-z0-9._-]+)/([0-9]{{1,2}})/([0-9]{{1,7}})/([0-9]{{1,7}})"
    r"(?:\.(?:jpe?g|png|webp|avif))?",
    re.ASCII,
)


def show_capabilities(request: PageRequest) -> Response:
    """Return the description of the service."""
    text = request.render_text(
        "wmts_capabilities.xml",
        {
            "base_url": request.base_url,
            "layers": request.installation.map_service.list_with_merged(),
            "name_matrix_set": name_matrix_set,
            "scales": [f"{_SCALE_0 / (1 << zoom):.10f}" for zoom in ALL_ZOOMS],
        },
    )
    return Response(text, media_type=_XML)


def name_matrix_set(layer: str) -> str:
    """Return the set of the levels that a layer has.

    Each layer has its own: GDAL ignores the limits of a layer, and would take the finest level of a
    common set for its resolution, where nothing is stored.
    """
    return f"levels-{layer}"


def answer_pairs(request: PageRequest) -> Response:
    """Answer ``?SERVICE=WMTS&REQUEST=…``, except for tiles that can be found."""
    pairs = _lower_names(request.query.items())
    wanted = pairs.get("request", "GetCapabilities").lower()
    if not _is_wmts(pairs):
        return _build_exception(request, "InvalidParameterValue", "SERVICE must be WMTS")
    if wanted == "getcapabilities":
        return show_capabilities(request)
    if wanted != "gettile":
        return _build_exception(request, "OperationNotSupported", "use GetCapabilities or GetTile")
    missing = [name for name in _PLACE if name not in pairs]
    if missing:
        return _build_exception(request, "MissingParameterValue", missing[0].upper())
    return _build_exception(
        request,
        "InvalidParameterValue",
        "use the matrix set of the layer, and numbers for the tile",
    )


def parse_place(path: str, query: bytes) -> tuple[str, int, int, int] | None:
    """Return layer, zoom, column and row of a request for a tile; ``None`` for any other."""
    if path == PATH:
        pairs = _lower_names(parse_qsl(query.decode("latin-1")))
        if pairs.get("request", "").lower() != "gettile" or not _is_wmts(pairs):
            return None
        layer, *rest = (pairs.get(name, "") for name in _PLACE)
        path = "/".join((PATH, layer, "default", *rest))
    match = _TILE.fullmatch(path)
    if match is None or match[2] not in {MATRIX_SET, name_matrix_set(match[1])}:
        return None
    layer, _, zoom, row, column = match.groups()
    return layer, int(zoom), int(column), int(row)


def _is_wmts(pairs: Mapping[str, str]) -> bool:
    return pairs.get("service", "WMTS").upper() == "WMTS"


def _lower_names(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Names of parameters are case-insensitive."""
    return {name.lower(): value for name, value in pairs}


def _build_exception(request: PageRequest, code: str, text: str) -> Response:
    body = request.render_text("wmts_exception.xml", {"code": code, "text": text})
    return Response(body, 400, media_type=_XML)


PAGE = Page(
    title=None,
    path=PATH,
    routes=(
        PageRoute(PATH, answer_pairs),
        PageRoute("/wmts/1.0.0/WMTSCapabilities.xml", show_capabilities),
    ),
)
