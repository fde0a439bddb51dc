"""Capabilities of WMTS servers: what is chosen, and hostile documents."""

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.adapters.http.wmts_capabilities import WmtsChoice, parse_capabilities
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BBox, TileId, TileTemplate
from tileferry.domain.tiles.tile_description import TileDescription

URL = "https://maps.example.org/wmts/1.0.0/WMTSCapabilities.xml"
SCALE = 559_082_264.0287178
TILE = TileId(source="s", zoom=3, x=5, y=1)


def write_matrix(zoom: int, *, name: str = "{}", side_px: int = 256, **said: Any) -> str:
    fields = {
        "ScaleDenominator": SCALE / 2**zoom * 256 / side_px,
        "TopLeftCorner": "-20037508.3427892 20037508.3427892",
        "TileWidth": side_px,
        "TileHeight": side_px,
        "MatrixWidth": 2**zoom,
        "MatrixHeight": 2**zoom,
        **said,
    }
    body = "".join(f"<{tag}>{text}</{tag}>" for tag, text in fields.items())
    return f"<TileMatrix><ows:Identifier>{name.format(zoom)}</ows:Identifier>{body}</TileMatrix>"


def write_set(name: str = "web", crs: str = "urn:ogc:def:crs:EPSG::3857", *levels: str) -> str:
    found = "".join(levels or map(write_matrix, range(2, 6)))
    crs = f"<ows:SupportedCRS>{crs}</ows:SupportedCRS>"
    return f"<TileMatrixSet><ows:Identifier>{name}</ows:Identifier>{crs}{found}</TileMatrixSet>"


RESOURCE = (
    '<ResourceURL format="image/png" resourceType="tile" '
    'template="https://t.example.org/{Style}/{TileMatrixSet}/{TileMatrix}/{TileRow}/{TileCol}.png"/>'
)
STYLE = '<Style isDefault="true"><ows:Identifier>default</ows:Identifier></Style>'
QUERY = (
    '<ows:OperationsMetadata><ows:Operation name="GetTile"><ows:DCP><ows:HTTP>'
    '<ows:Get xlink:href="https://q.example.org/wmts?map=a"><ows:Constraint name="GetEncoding">'
    "<ows:AllowedValues><ows:Value>{}</ows:Value></ows:AllowedValues></ows:Constraint></ows:Get>"
    "</ows:HTTP></ows:DCP></ows:Operation></ows:OperationsMetadata>"
)


def write_layer(name: str = "imagery", *, more: str = RESOURCE, style: str = STYLE) -> str:
    return (
        f"<Layer><ows:Identifier>{name}</ows:Identifier>{style}<Format>image/gif</Format>"
        "<Format>image/jpeg</Format><TileMatrixSetLink><TileMatrixSet>web</TileMatrixSet>"
        f"</TileMatrixSetLink>{more}</Layer>"
    )


def write_document(*contents: str, head: str = "", before: str = "") -> bytes:
    body = "".join(contents or (write_layer(), write_set()))
    return (
        f'{before}<Capabilities xmlns="http://www.opengis.net/wmts/1.0" '
        'xmlns:ows="http://www.opengis.net/ows/1.1" xmlns:xlink="http://www.w3.org/1999/xlink">'
        f"{head}<Contents>{body}</Contents></Capabilities>"
    ).encode()


def parse(content: bytes, **choice: str) -> TileDescription:
    return parse_capabilities(content, WmtsChoice(**choice), url=URL)


def fill_in(found: TileDescription) -> str:
    template = TileTemplate(found.template, zoom_names=found.zoom_names)
    return template.build_url(TILE)


# What is chosen


def test_only_layer_is_used_by_its_resource_address() -> None:
    found = parse(write_document())
    assert fill_in(found) == "https://t.example.org/default/web/3/1/5.png"
    assert (found.zooms, found.bounds, found.tile_px) == (range(2, 6), None, 256)
    assert found.zoom_names is None


def test_query_is_used_without_a_resource_address() -> None:
    plain = write_layer("a b&amp;c", more="")
    found = parse(write_document(plain, write_set(), head=QUERY.format("KVP")))
    assert fill_in(found) == (
        "https://q.example.org/wmts?map=a&SERVICE=WMTS&REQUEST=GetTile&VERSION=1.0.0"
        "&LAYER=a%20b%26c&STYLE=default&FORMAT=image/jpeg&TILEMATRIXSET=web"
        "&TILEMATRIX=3&TILEROW=1&TILECOL=5"
    )
    for head in (QUERY.format("RESTful"), ""):
        with pytest.raises(InvalidValueError, match="names no address for its tiles"):
            parse(write_document(plain, write_set(), head=head))


def test_names_of_levels_dimensions_and_relative_addresses() -> None:
    levels = [write_matrix(zoom, name="EPSG:3857 {}") for zoom in (1, 3)]
    time = (
        "<Dimension><ows:Identifier>Time</ows:Identifier><Default>2026-05-01</Default></Dimension>"
        '<ResourceURL format="image/png" resourceType="FeatureInfo" template="/info"/>'
        '<ResourceURL format="image/webp" resourceType="tile" '
        'template="/t/{time}/{TileMatrix}/{TileCol}/{TileRow}"/>'
    )
    found = parse(write_document(write_layer(more=time), write_set("web", "EPSG:3857", *levels)))
    assert fill_in(found) == "https://maps.example.org/t/2026-05-01/EPSG:3857%203/5/1"
    assert found.zooms == range(1, 4)


def test_large_tiles_are_of_their_own_zoom_level() -> None:
    levels = [write_matrix(zoom, side_px=512) for zoom in (0, 3)]
    found = parse(write_document(write_layer(), write_set("web", "EPSG:3857", *levels)))
    assert (found.tile_px, found.zooms) == (512, range(4))


def test_bounds_are_read() -> None:
    box = (
        "<ows:WGS84BoundingBox><ows:LowerCorner>36 50</ows:LowerCorner>"
        "<ows:UpperCorner>36.4 50.2</ows:UpperCorner></ows:WGS84BoundingBox>"
    )
    found = parse(write_document(write_layer(more=box + RESOURCE), write_set()))
    assert found.bounds == BBox(west=36, south=50, east=36.4, north=50.2)
    half = box.replace("<ows:UpperCorner>36.4 50.2</ows:UpperCorner>", "")
    assert parse(write_document(write_layer(more=half + RESOURCE), write_set())).bounds is None


def test_layer_style_and_matrix_set_are_chosen_by_name() -> None:
    styles = STYLE + "<Style><ows:Identifier>night</ows:Identifier></Style>"
    layers = write_layer("first"), write_layer("second", style=styles)
    content = write_document(*layers, write_set())
    assert "/night/" in fill_in(parse(content, layer="second", style="night", matrix_set="web"))
    for choice, field, remedy in (
        ({}, "xyz.wmts_layer", "set it to one of: first, second"),
        ({"layer": "third"}, "xyz.wmts_layer", "set it to one of: first, second"),
        ({"layer": "first", "style": "night"}, "xyz.wmts_style", "set it to one of: default"),
        ({"layer": "first", "matrix_set": "utm"}, "xyz.wmts_matrix_set", "set it to one of: web"),
    ):
        with pytest.raises(InvalidValueError) as refused:
            parse(content, **choice)
        assert refused.value.field == field
        assert remedy in str(refused.value.remedy)


def test_many_layers_are_not_all_listed() -> None:
    content = write_document(*(write_layer(f"l{number:02}") for number in range(30)), write_set())
    with pytest.raises(InvalidValueError) as refused:
        parse(content)
    assert str(refused.value.remedy).endswith("l19 and 10 more")


def test_layer_without_a_style_has_the_default_one() -> None:
    assert "/default/" in fill_in(parse(write_document(write_layer(style=""), write_set())))


@pytest.mark.parametrize(
    "grid",
    [
        write_set("web", "EPSG:4326"),
        write_set("other"),
        write_set("web", "EPSG:3857", write_matrix(3, TopLeftCorner="0 0")),
        write_set("web", "EPSG:3857", write_matrix(3, TopLeftCorner="0")),
        write_set("web", "EPSG:3857", write_matrix(3, ScaleDenominator="70000000")),
        write_set("web", "EPSG:3857", write_matrix(3, ScaleDenominator="x")),
        write_set("web", "EPSG:3857", write_matrix(3, TileHeight="512")),
        write_set("web", "EPSG:3857", write_matrix(25)),
        "",
    ],
)
def test_other_grids_are_refused(grid: str) -> None:
    with pytest.raises(InvalidValueError, match=r"no tiles in Web Mercator .*, only in web"):
        parse(write_document(write_layer(), grid))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"<html>a login page", "not valid XML"),
        (b"\xff\xfe", "not valid XML"),
        (b"<?xml version='1.0' encoding='no-such'?><a/>", "not valid XML"),
        (b"<ServiceExceptionReport/>", "a document of another kind, ServiceExceptionReport"),
        (write_document().replace(b"Contents", b"Nothing"), "has no Contents"),
        (
            write_document(
                write_layer(more=RESOURCE.replace("{Style}", "{Elevation}")), write_set()
            ),
            "an unknown placeholder, {Elevation}",
        ),
        (
            write_document(
                write_layer(more="").replace("image/jpeg", "image/gif"),
                write_set(),
                head=QUERY.format("KVP"),
            ),
            "has no images",
        ),
        (
            write_document(write_layer(), write_set("web", "EPSG:3857", *[write_matrix(3)] * 65)),
            "too many levels",
        ),
    ],
)
def test_unusable_document_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        parse(content)
    assert problem in str(refused.value)


# Hostile documents

BILLION_LAUGHS = "<!DOCTYPE a [<!ENTITY a0 'ha'>" + "".join(
    f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 10)
) + "]>"  # fmt: skip


@pytest.mark.parametrize(
    "before",
    [
        BILLION_LAUGHS,
        "<!DOCTYPE a SYSTEM 'file:///etc/passwd'>",
        "<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>",
        "<!DOCTYPE a>",
    ],
)
def test_document_types_and_entities_are_refused_unread(before: str) -> None:
    content = write_document(before=before).replace(b"imagery", b"&a9;")
    tracemalloc.start()
    with pytest.raises(InvalidValueError, match="document type or entities"):
        parse(content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000


@given(st.data())
def test_changed_documents_raise_nothing_but_invalid_values(data: st.DataObject) -> None:
    content = bytearray(write_document())
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=6)):
        content[at] = data.draw(st.integers(0, 255))
    try:
        parse(bytes(content))
    except InvalidValueError as error:
        assert str(error)  # noqa: PT017  # a change may go unnoticed
