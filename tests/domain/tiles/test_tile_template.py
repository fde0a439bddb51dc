"""Templates of tile servers: what they may hold, and which addresses come of them."""

import pickle
from urllib.parse import parse_qs

import mercantile
import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import TileId, TileTemplate
from tileferry.domain.tiles.tile_id import check_source
from tileferry.domain.tiles.tile_template import build_quadkey

TILE = TileId(source="satellite", zoom=3, x=5, y=1)


def expect_rejection(text: str) -> str:
    with pytest.raises(InvalidValueError) as refused:
        TileTemplate(text)
    assert refused.value.field == "xyz.url_template"
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("https://tiles.example.org/{z}/{x}/{y}.png", "/3/5/1.png"),
        ("https://tiles.example.org/{z}/{x}/{-y}.png", "/3/5/6.png"),
        ("https://tiles.example.org/tms?q={z}-{x}-{y}&z={z}", "/tms?q=3-5-1&z=3"),
        ("https://tiles.example.org/{api_key}/{z}/{x}/{y}", "/K-1/3/5/1"),
        ("https://tiles.example.org/{z}/{x}/{y}?key={api_key}&v=2", "/3/5/1?key=K-1&v=2"),
        ("https://tiles.example.org/{q}.jpeg?g=1", "/103.jpeg?g=1"),
        ("https://tiles.example.org/{z}/{x}/{y}{r}.png", "/3/5/1.png"),
    ],
)
def test_template_path_for_tile(text: str, path: str) -> None:
    template = TileTemplate(text)
    assert template.origin == "https://tiles.example.org"
    assert template.build_path(TILE, key="K-1") == path
    assert template.build_path(TILE) == path.replace("K-1", "***")
    assert template.has_key == ("{api_key}" in text)


@pytest.mark.parametrize(
    ("origin", "host", "host_and_port"),
    [
        ("https://Tiles.Example.ORG", "tiles.example.org", "tiles.example.org"),
        ("https://tiles.example.org.:8443", "tiles.example.org", "tiles.example.org:8443"),
        ("http://127.0.0.1:8460", "127.0.0.1", "127.0.0.1:8460"),
        ("http://localhost", "localhost", "localhost"),
        ("http://[::1]:80", "[::1]", "[::1]:80"),
    ],
)
def test_host_is_normalised(origin: str, host: str, host_and_port: str) -> None:
    template = TileTemplate(f"{origin}/{{z}}/{{x}}/{{y}}")
    assert (template.origin, template.hosts) == (origin, (host,))
    assert template.host_and_port == host_and_port


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("https://{S}.example.org/{z}/{x}/{y}.png", "unknown placeholder, {S}"),
        ("https://{c-a}.example.org/{z}/{x}/{y}.png", "unknown placeholder, {c-a}"),
        ("https://{0-c}.example.org/{z}/{x}/{y}.png", "unknown placeholder, {0-c}"),
        ("https://{s}.{a-c}.example.org/{z}/{x}/{y}.png", "two lists of servers"),
        ("https://example.org/{q}/{z}.png", "has {q} besides {z}, {x} or {y}"),
        ("https://{q}.example.org/a.png", "is not the URL of a tile server"),
        ("https://example.org/{z}/{x}/{Y}.png", "unknown placeholder, {Y}"),
        ("https://example.org/{}/{z}/{x}/{y}", "unknown placeholder, {}"),
        ("https://example.org/{x}/{y}", "no {z} placeholder"),
        ("https://example.org/{z}/{y}", "no {x} placeholder"),
        ("https://example.org/{z}/{x}", "either a {y} or a {-y} placeholder"),
        ("https://example.org/{z}/{x}/{y}/{-y}", "either a {y} or a {-y} placeholder"),
        ("https://example.org/{z}/{x}/{y}}", "an unmatched brace"),
        ("https://example.org/{{z}/{x}/{y}", "an unmatched brace"),
        ("https://{z}.example.org/{x}/{y}", "is not the URL of a tile server"),
        ("https://{api_key}@example.org/{z}/{x}/{y}", "is not the URL of a tile server"),
        ("https://me:canary@example.org/{z}/{x}/{y}", "is not the URL of a tile server"),
        ("https://example.org/{z}/{x}/{y}#canary", "is not the URL of a tile server"),
        ("https://example.org/{z}/{x}/{y} canary", "is not the URL of a tile server"),
        ("https://example.org/{z}/{x}/{y}\ncanary", "is not the URL of a tile server"),
        ("https://example.org\\@canary/{z}/{x}/{y}", "is not the URL of a tile server"),
        ("ftp://example.org/{z}/{x}/{y}", "is not the URL of a tile server"),
        ("example.org/{z}/{x}/{y}", "is not the URL of a tile server"),
        ("https://example.org/{z}/{x}/{y}" + "a" * 2_000, "is not the URL of a tile server"),
        ("http://example.org/{z}/{x}/{y}", "would connect to example.org over plain http"),
        ("http://[2001:db8::1]/{z}/{x}/{y}", "over plain http"),
        ("https://example.org/{z}/{x}/{y}?key=canary", "seems to contain a key"),
        ("https://example.org/{z}/{x}/{y}?v=1&Access_Token=canary", "seems to contain a key"),
        ("https://example.org/{z}/{x}/{y}?token={api_key}canary", "seems to contain a key"),
    ],
)
def test_invalid_template_is_rejected_without_leaking_it(text: str, said: str) -> None:
    message = expect_rejection(text)
    assert said in message
    assert "canary" not in message


@pytest.mark.parametrize("key", ["", "a b", "a\n", "ключ", "a" * 4_097])
def test_impossible_key_is_rejected(key: str) -> None:
    with pytest.raises(InvalidValueError, match="characters that are not allowed") as refused:
        TileTemplate("https://example.org/{z}/{x}/{y}?key={api_key}").check_key(key)
    assert refused.value.value == "***"


def test_key_is_checked_only_if_template_has_placeholder() -> None:
    TileTemplate("https://example.org/{z}/{x}/{y}").check_key("")
    TileTemplate("https://example.org/{z}/{x}/{y}?key={api_key}").check_key("pk.eyJ1-_~9")


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("tiles.example.org", "xyz-tiles.example.org"),
        ("Tiles.Example.org.", "xyz-tiles.example.org"),
        ("127.0.0.1:8460", "xyz-127.0.0.1-8460-4afe2c66"),
        ("[::1]", "xyz-1-6d16ab69"),
        (f"{'a' * 60}.example.org", f"xyz-{'a' * 51}-"),
        (f"{'a' * 50}.{'b' * 50}.org", f"xyz-{'a' * 50}.-"),
    ],
)
def test_source_is_derived_from_host(place: str, source: str) -> None:
    found = TileTemplate(f"https://{place}/{{z}}/{{x}}/{{y}}.png").source
    assert found.startswith(source)
    check_source(found, field="source")


def test_different_servers_have_different_sources() -> None:
    places = ["a.example", "b.example", "a.example:81", "a.example:82", "[::1]:1", "[::11]"]
    places += [f"{'a' * 60}.{name}.example" for name in "bc"]
    templates = [TileTemplate(f"https://{place}/{{z}}/{{x}}/{{y}}") for place in places]
    assert len({template.source for template in templates}) == len(places)


def test_template_survives_pickling() -> None:
    template = TileTemplate("https://example.org/{z}/{x}/{y}")
    assert pickle.loads(pickle.dumps(template)) == template  # noqa: S301  # our own bytes


@pytest.mark.parametrize("place", ["xn--", "a..b", "127.0.0.1:99999", "[::::]"])
def test_invalid_host_or_port_is_rejected(place: str) -> None:
    with pytest.raises(InvalidValueError, match="an invalid host or port") as refused:
        TileTemplate(f"https://{place}/{{z}}/{{x}}/{{y}}.png")
    assert refused.value.field == "xyz.url_template"


# Several servers, quadkeys, larger tiles, keys


@pytest.mark.parametrize(
    ("place", "hosts"),
    [
        ("{s}.tiles.example.org", "abc"),
        ("{a-d}.tiles.example.org", "abcd"),
        ("{0-3}.tiles.example.org", "0123"),
    ],
)
def test_tiles_are_spread_over_servers_and_each_keeps_its_own(place: str, hosts: str) -> None:
    template = TileTemplate(f"https://{place}/{{z}}/{{x}}/{{y}}.png")
    assert template.hosts == tuple(f"{name}.tiles.example.org" for name in hosts)
    assert (template.host_and_port, template.source) == (place, "xyz-tiles.example.org")
    tiles = [TileId(source="s", zoom=4, x=x, y=7) for x in range(8)]
    urls = [template.build_url(tile) for tile in tiles]
    assert urls == [template.build_url(tile) for tile in tiles]
    assert {url[8] for url in urls} == set(hosts)
    assert urls[0].endswith("/4/0/7.png")


def test_names_of_servers_are_configured_and_may_be_in_the_path() -> None:
    text = "https://tiles.example.org/{s}/{z}/{x}/{y}"
    template = TileTemplate(text, subdomains=("east", "west"))
    assert template.host_and_port == "tiles.example.org"
    assert template.build_url(TILE) == "https://tiles.example.org/east/3/5/1"


@pytest.mark.parametrize(
    ("tile", "digits"),
    [((0, 0, 0), ""), ((1, 1, 0), "1"), ((3, 3, 5), "213"), ((9, 486, 332), "313102310")],
)
def test_quadkey_has_a_digit_for_each_zoom_level(tile: tuple[int, int, int], digits: str) -> None:
    zoom, x, y = tile
    found = build_quadkey(TileId(source="s", zoom=zoom, x=x, y=y))
    assert found == digits
    if digits:
        parsed = mercantile.quadkey_to_tile(digits)
        assert (parsed.z, parsed.x, parsed.y) == tile


def test_larger_tiles_have_a_suffix() -> None:
    plain = "https://tiles.example.org/{z}/{x}/{y}"
    assert TileTemplate(f"{plain}{{r}}.png").tile_px == 256
    large = TileTemplate(f"{plain}{{r}}.png", tile_px=512)
    assert large.build_path(TILE) == "/3/5/1@2x.png"
    assert TileTemplate(f"{plain}@2x.png").tile_px == 512


def test_zoom_levels_may_have_names() -> None:
    text = "https://tiles.example.org/{z}/{x}/{y}"
    assert TileTemplate(text, zoom_names={3: "EPSG:3857:3"}).build_path(TILE) == "/EPSG:3857:3/5/1"


def test_key_is_percent_encoded() -> None:
    template = TileTemplate("https://example.org/{z}/{x}/{y}?key={api_key}")
    key = "a+b/c==&d%41"
    template.check_key(key)
    path = template.build_path(TILE, key=key)
    assert path == "/3/5/1?key=a%2Bb%2Fc%3D%3D%26d%2541"
    assert parse_qs(path.partition("?")[2]) == {"key": [key]}


# Plain http


@pytest.mark.parametrize("host", ["nas", "NAS", "192.168.7.2", "[fd00::7]"])
def test_plain_http_is_allowed_for_named_hosts(host: str) -> None:
    named = (host.lower().strip("[]"),)
    text = f"http://{host}:8080/{{z}}/{{x}}/{{y}}.png"
    assert TileTemplate(text, plain_http_hosts=named).origin == f"http://{host}:8080"
    with pytest.raises(InvalidValueError, match=r"add it to xyz\.plain_http_hosts"):
        TileTemplate(text, plain_http_hosts=("other",))


def test_key_is_not_sent_over_plain_http() -> None:
    with pytest.raises(InvalidValueError, match="would send the key to nas over plain http"):
        TileTemplate("http://nas/{z}/{x}/{y}?key={api_key}", plain_http_hosts=("nas",))
