"""The capabilities document of a WMTS: its layers, and where their tiles are.

XML from a server is untrusted input: no document type, no entities, and limits on what is read.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin

from attrs import frozen
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

from tileferry.adapters.http.tilejson import build_bounds
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.text import printable
from tileferry.domain.tiles import BBox
from tileferry.domain.tiles.limits import TILE_PX
from tileferry.domain.tiles.tile_description import TileDescription
from tileferry.domain.tiles.tile_id import ZOOM_MAX

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

DOCUMENT = "WMTS capabilities"
_OWS = "{http://www.opengis.net/ows/1.1}"
_WMTS = "{http://www.opengis.net/wmts/1.0}"
_XLINK_HREF = "{http://www.w3.org/1999/xlink}href"
_PIXEL_M = 0.00028
"""The size of a pixel that scale denominators are defined with."""
_WORLD_M = 2 * math.pi * 6_378_137.0
_WEB_MERCATOR = re.compile(r"[:/](?:3857|900913|3785|102100|102113)$", re.ASCII)
_TOLERANCE = 1e-4
"""Relative; servers round their numbers."""
_FORMATS = ("image/jpeg", "image/jpg", "image/png", "image/webp", "image/avif")
_PLACE = re.compile(r"\{([^{}]*)\}")
_SHOWN_MAX = 20
_MATRICES_MAX = 64


@frozen(kw_only=True)
class WmtsChoice:
    """Which layer to use, and how; ``None`` where the document has to leave no choice."""

    layer: str | None = None
    style: str | None = None
    matrix_set: str | None = None


def parse_capabilities(content: bytes, choice: WmtsChoice, *, url: str) -> TileDescription:
    """Return where the tiles of the chosen layer are; ``url`` is the address of the document."""
    root = _parse_xml(content)
    contents = root.find(f"{_WMTS}Contents")
    if contents is None:
        raise _build_error("it has no Contents")
    layer = _choose_layer(contents, choice.layer)
    name = _get_identifier(layer)
    matrix_set, matrices = _choose_matrix_set(contents, layer, choice.matrix_set)
    zooms = range(min(matrices), max(matrices) + 1)
    values = {
        "layer": name,
        "style": _choose_style(layer, choice.style),
        "tilematrixset": matrix_set,
        **_read_dimensions(layer),
    }
    names = {zoom: quote(matrix.name, safe=":") for zoom, matrix in matrices.items()}
    is_numbered = all(text == str(zoom) for zoom, text in names.items())
    return TileDescription(
        template=urljoin(url, _build_template(root, layer, values)),
        zooms=zooms,
        bounds=_read_bounds(layer),
        tile_px=next(iter(matrices.values())).tile_px,
        zoom_names=None if is_numbered else names,
    )


def _parse_xml(content: bytes) -> "Element":
    try:
        root: Element = fromstring(content, forbid_dtd=True)
    except DefusedXmlException:
        raise _build_error("it has a document type or entities, which are not allowed") from None
    except (ParseError, ValueError, LookupError) as error:  # LookupError: an unknown encoding
        raise _build_error(f"it is not valid XML: {error}") from None
    if root.tag != f"{_WMTS}Capabilities":
        raise _build_error(f"it is a document of another kind, {root.tag}")
    return root


def _choose_layer(contents: "Element", wanted: str | None) -> "Element":
    layers = {_get_identifier(layer): layer for layer in contents.iterfind(f"{_WMTS}Layer")}
    found = layers.get(wanted) if wanted is not None else None
    if found is None and wanted is None and len(layers) == 1:
        (found,) = layers.values()
    if found is None:
        shown = ", ".join(printable(name) for name in sorted(layers)[:_SHOWN_MAX])
        more = f" and {len(layers) - _SHOWN_MAX} more" if len(layers) > _SHOWN_MAX else ""
        raise InvalidValueError(
            field="xyz.wmts_layer",
            value=wanted,
            problem="is not set, and the server has several layers"
            if wanted is None
            else "is not a layer of the server",
            remedy=f"set it to one of: {shown}{more}" if layers else "the server has no layer",
        )
    return found


def _choose_style(layer: "Element", wanted: str | None) -> str:
    styles = {_get_identifier(style): style for style in layer.iterfind(f"{_WMTS}Style")}
    if wanted is not None:
        if wanted not in styles:
            raise InvalidValueError(
                field="xyz.wmts_style",
                value=wanted,
                problem="is not a style of the layer",
                remedy=f"set it to one of: {', '.join(map(printable, sorted(styles)))}",
            )
        return wanted
    default = [name for name, style in styles.items() if style.get("isDefault") == "true"]
    return next(iter([*default, *styles]), "default")


@frozen
class _Matrix:
    """One zoom level of a matrix set."""

    name: str
    tile_px: int


def _choose_matrix_set(
    contents: "Element", layer: "Element", wanted: str | None
) -> tuple[str, dict[int, _Matrix]]:
    """Return a matrix set of the layer with the tiles of Web Mercator, and its zoom levels."""
    links = layer.iterfind(f"{_WMTS}TileMatrixSetLink/{_WMTS}TileMatrixSet")
    linked = [(link.text or "").strip() for link in links]
    if wanted is not None and wanted not in linked:
        raise InvalidValueError(
            field="xyz.wmts_matrix_set",
            value=wanted,
            problem="is not a tile matrix set of the layer",
            remedy=f"set it to one of: {', '.join(map(printable, linked))}",
        )
    for matrix_set in contents.iterfind(f"{_WMTS}TileMatrixSet"):
        name = _get_identifier(matrix_set)
        if name in linked and wanted in (None, name):
            matrices = dict(_iter_matrices(matrix_set))
            if matrices:
                return name, matrices
    raise _build_error(
        f"the layer has no tiles in Web Mercator (EPSG:3857) with the usual grid, only in "
        f"{', '.join(map(printable, linked)) or 'no grid'}"
    )


def _iter_matrices(matrix_set: "Element") -> Iterator[tuple[int, _Matrix]]:
    """Yield the zoom levels of a set whose tiles are those of the usual grid."""
    if not _WEB_MERCATOR.search(_get_text(matrix_set, f"{_OWS}SupportedCRS")):
        return
    for order, matrix in enumerate(matrix_set.iterfind(f"{_WMTS}TileMatrix")):
        if order >= _MATRICES_MAX:
            raise _build_error("a tile matrix set has too many levels")
        corner = _get_text(matrix, f"{_WMTS}TopLeftCorner").split()
        scale = _parse_number(_get_text(matrix, f"{_WMTS}ScaleDenominator"))
        width = _parse_number(_get_text(matrix, f"{_WMTS}TileWidth"))
        height = _parse_number(_get_text(matrix, f"{_WMTS}TileHeight"))
        west, north = map(_parse_number, corner) if len(corner) == 2 else (math.nan, math.nan)  # noqa: PLR2004  # a point
        half = _WORLD_M / 2
        is_usual = (
            math.isclose(west, -half, rel_tol=_TOLERANCE)
            and math.isclose(north, half, rel_tol=_TOLERANCE)
            and width == height
            and width >= TILE_PX
            and scale > 0
        )
        if not is_usual:
            continue
        level = math.log2(_WORLD_M / (scale * _PIXEL_M * width))
        zoom = round(level)
        if abs(level - zoom) < _TOLERANCE and 0 <= zoom <= ZOOM_MAX:
            yield zoom, _Matrix(_get_identifier(matrix), int(width))


def _build_template(root: "Element", layer: "Element", values: Mapping[str, str]) -> str:
    """Return the address of a tile: RESTful if the layer has one, else with a query."""
    for resource in layer.iterfind(f"{_WMTS}ResourceURL"):
        if resource.get("resourceType") == "tile" and resource.get("format") in _FORMATS:
            template = resource.get("template", "")
            return _PLACE.sub(lambda place: _fill_in(place[1], values), template)
    formats = [(each.text or "").strip() for each in layer.iterfind(f"{_WMTS}Format")]
    kind = next((each for each in formats if each in _FORMATS), None)
    base = _find_query_address(root)
    if kind is None or base is None:
        raise _build_error(
            "the layer has no images" if kind is None else "it names no address for its tiles"
        )
    fixed = {
        "SERVICE": "WMTS",
        "REQUEST": "GetTile",
        "VERSION": "1.0.0",
        "LAYER": values["layer"],
        "STYLE": values["style"],
        "FORMAT": kind,
        "TILEMATRIXSET": values["tilematrixset"],
        **{name: text for name, text in values.items() if name not in _FIXED},
    }
    query = "&".join(f"{quote(name)}={quote(text, safe=':/')}" for name, text in fixed.items())
    joint = "" if base.endswith(("?", "&")) else "&" if "?" in base else "?"
    return f"{base}{joint}{query}&TILEMATRIX={{z}}&TILEROW={{y}}&TILECOL={{x}}"


_FIXED = {"layer", "style", "tilematrixset"}
_COORDINATES = {"tilematrix": "{z}", "tilerow": "{y}", "tilecol": "{x}"}


def _fill_in(place: str, values: Mapping[str, str]) -> str:
    name = place.lower()
    if name in _COORDINATES:
        return _COORDINATES[name]
    if name not in values:
        raise _build_error(f"the address of its tiles has an unknown placeholder, {{{place}}}")
    return quote(values[name], safe=":")


def _find_query_address(root: "Element") -> str | None:
    operations = root.iterfind(f"{_OWS}OperationsMetadata/{_OWS}Operation[@name='GetTile']")
    for operation in operations:
        for get in operation.iterfind(f"{_OWS}DCP/{_OWS}HTTP/{_OWS}Get"):
            encodings = [(value.text or "").strip() for value in get.iter(f"{_OWS}Value")]
            if not encodings or "KVP" in encodings:
                return get.get(_XLINK_HREF)
    return None


def _read_dimensions(layer: "Element") -> dict[str, str]:
    """Return the default of each dimension, such as a time."""
    return {
        _get_identifier(dimension).lower(): _get_text(dimension, f"{_WMTS}Default")
        for dimension in layer.iterfind(f"{_WMTS}Dimension")
    }


def _read_bounds(layer: "Element") -> BBox | None:
    box = layer.find(f"{_OWS}WGS84BoundingBox")
    if box is None:
        return None
    corners = f"{_get_text(box, f'{_OWS}LowerCorner')} {_get_text(box, f'{_OWS}UpperCorner')}"
    edges = corners.split()
    return build_bounds(*edges) if len(edges) == 4 else None  # noqa: PLR2004  # two points


def _get_identifier(element: "Element") -> str:
    return _get_text(element, f"{_OWS}Identifier")


def _get_text(element: "Element", path: str) -> str:
    return (element.findtext(path) or "").strip()


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _build_error(problem: str) -> InvalidValueError:
    return InvalidValueError(field=DOCUMENT, value=None, problem=printable(problem))
