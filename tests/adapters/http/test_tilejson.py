"""TileJSON documents of servers, good and bad."""

import json
from typing import Any

import pytest

from tileferry.adapters.http.tilejson import parse_tilejson
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BBox

URL = "https://maps.example.org/v1/tiles.json?key=***"
TEMPLATE = "https://tiles.example.org/{z}/{x}/{y}.png"


def parse(**fields: Any) -> Any:
    said = {"tilejson": "3.0.0", "tiles": [TEMPLATE], **fields}
    content = json.dumps({name: value for name, value in said.items() if value is not None})
    return parse_tilejson(content.encode(), url=URL)


@pytest.mark.parametrize("version", ["2.0.0", "2.2.0", "3.0.0", "3.0"])
def test_known_versions_are_read(version: str) -> None:
    found = parse(tilejson=version, minzoom=3, maxzoom=14, bounds=[36, 50, 36.4, 50.2], extra=[1])
    assert (found.template, found.zooms, found.tile_px) == (TEMPLATE, range(3, 15), 256)
    assert found.bounds == BBox(west=36, south=50, east=36.4, north=50.2)


def test_everything_but_the_tiles_is_optional() -> None:
    found = parse()
    assert (found.zooms, found.bounds, found.zoom_names) == (range(22), None, None)
    assert parse(maxzoom=30).zooms == range(22)
    assert parse(vector_layers=[]).template == TEMPLATE
    assert parse(vector_layers=[{"id": "a"}], format="png").template == TEMPLATE


def test_rows_from_the_south_relative_addresses_and_large_tiles() -> None:
    assert parse(scheme="tms").template.endswith("/{x}/{-y}.png")
    assert parse(tiles=["t/{z}/{x}/{y}"]).template == "https://maps.example.org/v1/t/{z}/{x}/{y}"
    assert parse(tiles=["/{z}/{x}/{y}"]).template == "https://maps.example.org/{z}/{x}/{y}"
    assert parse(tileSize=512).tile_px == 512


@pytest.mark.parametrize(
    "bounds", [[1, 2, 3], "world", [0, 0, 0, 0], [None, 0, 1, 1], [9, 5, 9, 1]]
)
def test_invalid_bounds_are_ignored(bounds: object) -> None:
    assert parse(bounds=bounds).bounds is None


def test_rounded_bounds_are_accepted() -> None:
    bounds = parse(bounds=[-180.0001, -90.01, 180.0001, 90.01]).bounds
    assert bounds == BBox(west=-180, south=-90, east=180, north=90)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"tilejson": "1.0.0"}, "TileJSON.tilejson: must be version 2 or 3"),
        ({"tilejson": None}, "TileJSON.tilejson: must be text"),
        ({"tilejson": 3}, "TileJSON.tilejson: must be text"),
        ({"tiles": None}, "TileJSON.tiles: must be a list"),
        ({"tiles": []}, "TileJSON.tiles: must be a list of addresses"),
        ({"tiles": [7]}, "TileJSON.tiles: must be a list of addresses"),
        ({"format": "pbf"}, "describes vector tiles"),
        ({"vector_layers": [{"id": "roads"}]}, "describes vector tiles"),
        ({"minzoom": 9, "maxzoom": 3}, "must be from 0 to maxzoom, 3"),
        ({"minzoom": 23, "maxzoom": 24}, "must be at most 21"),
        ({"minzoom": "3"}, "must be a whole number"),
        ({"tileSize": 64}, "must be from 256 to 1024"),
    ],
)
def test_invalid_document_is_rejected_by_field(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        parse(**fields)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    "content", [b"<html>", b"[]", b'{"tilejson":' * 9, b"{}" + b" " * 2_000_000]
)
def test_other_content_is_rejected(content: bytes) -> None:
    with pytest.raises(InvalidValueError, match="TileJSON"):
        parse_tilejson(content, url=URL)
