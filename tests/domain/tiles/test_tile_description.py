"""What servers say about their tiles becomes a template, with the key in its place."""

import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import TileId
from tileferry.domain.tiles.server_url import ServerUrl
from tileferry.domain.tiles.tile_description import TileDescription

KEY = "canary+1/2="
DOCUMENT = ServerUrl("https://maps.example.org/tiles.json?key={api_key}")
TILE = TileId(source="s", zoom=3, x=5, y=1)


@pytest.mark.parametrize("form", [KEY, "canary%2B1%2F2%3D"])
def test_repeated_key_is_replaced_by_its_place(form: str) -> None:
    found = TileDescription(template=f"https://cdn.example.org/{{z}}/{{x}}/{{y}}?key={form}")
    template = found.build_template(DOCUMENT, key=KEY, tile_px=None)
    assert "canary" not in repr(template)
    assert template.build_path(TILE, key=KEY) == "/3/5/1?key=canary%2B1%2F2%3D"
    assert (template.host_and_port, template.tile_px) == ("cdn.example.org", 256)


@pytest.mark.parametrize(
    ("suffix", "described", "configured", "expected"),
    [("", 256, None, 256), ("", 512, None, 512), ("@2x", 256, None, 512), ("", 256, 512, 512),
     ("", 512, 256, 256)],
)  # fmt: skip
def test_size_of_tiles_is_configured_or_described(
    suffix: str, described: int, configured: int | None, expected: int
) -> None:
    text = f"https://cdn1.example.org/v1/{{z}}/{{x}}/{{y}}{suffix}"
    found = TileDescription(template=text, tile_px=described)
    assert found.build_template(DOCUMENT, key="1", tile_px=configured).tile_px == expected


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("http://cdn.example.org/{z}/{x}/{y}", "over plain http"),
        ("https://cdn.example.org/{z}/{x}/{y}?token=another", "seems to contain a key"),
        ("https://cdn.example.org/{z}/{x}", "either a {y} or a {-y}"),
        ("/{z}/{x}/{y}", "not the URL of a tile server"),
    ],
)
def test_unusable_template_names_the_setting_of_the_document(template: str, problem: str) -> None:
    document = ServerUrl("https://maps.example.org/tiles.json")
    with pytest.raises(InvalidValueError) as refused:
        TileDescription(template=template).build_template(document, key="", tile_px=None)
    assert refused.value.field == "xyz.tilejson_url"
    assert problem in str(refused.value)
