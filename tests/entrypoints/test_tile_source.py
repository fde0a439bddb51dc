"""A tile server that is known by a document: read once, when it is needed, and safely."""

import gzip
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.hostile_provider import ConnectionScript, RawServer, respond_with, run_raw_server
from support.pictures import make_picture
from support.tile_providers import fetch_whole_tile

from tileferry.adapters.http import DescribedTileProvider
from tileferry.application.ports.provider import TileRequest
from tileferry.domain.errors import InvalidValueError, NotPermittedError, SatelliteProviderError
from tileferry.domain.tiles import BBox, ProviderFault, TileId
from tileferry.entrypoints.config import C11Config, Config, Secret
from tileferry.entrypoints.config.xyz import XyzConfig
from tileferry.entrypoints.container import Container
from tileferry.entrypoints.tile_source import (
    check_accepts_uploads,
    get_address_setting,
    get_max_requests_per_s,
)

KEY = "canary+5f1e/9d0c=="
ENCODED = "canary%2B5f1e%2F9d0c%3D%3D"
PICTURE = make_picture("a picture")
TILE = TileId(source="satellite", zoom=3, x=5, y=1)
AREA = BBox(west=36.0, south=50.0, east=36.3, north=50.2)
JSON = "HTTP/1.1 200 OK\nConnection: close\nContent-Type: application/json\nContent-Length: {}"
IMAGE = (
    f"HTTP/1.1 200 OK\nConnection: close\nContent-Type: image/png\nContent-Length: {len(PICTURE)}"
)


def create_config(url: str, **said: Any) -> Config:
    host = url.split("/")[2]
    xyz = {
        "tilejson_url": f"{url}/tiles.json?key={{api_key}}",
        "attribution": "© Example",
        "licence": "CC-BY-4.0",
        "imagery_date": "2026-10-01",
        "bulk_download_acknowledged_for": host,
        **said,
    }
    return Config(c11=C11Config(service_api_key=Secret(KEY)), xyz=XyzConfig(**xyz))


@contextmanager
def open_provider(config: Config) -> Iterator[DescribedTileProvider]:
    container = Container(config=config)
    provider = container.provider()
    assert isinstance(provider, DescribedTileProvider)
    yield provider
    container.shutdown_resources()


def write_document(template: str, **said: Any) -> bytes:
    return json.dumps({"tilejson": "3.0.0", "tiles": [template], "maxzoom": 9, **said}).encode()


@contextmanager
def serve(*answers: Callable[[str], ConnectionScript]) -> Iterator[RawServer]:
    """Serve answers in turn; each is given the server's address."""
    left = list(answers)

    def script(connection: socket.socket) -> None:
        left.pop(0)(server.url)(connection)

    with run_raw_server(script) as server:
        yield server


def send_document(url: str, **said: Any) -> ConnectionScript:
    content = write_document(f"{url}/{{z}}/{{x}}/{{y}}.png?key={ENCODED}", **said)
    return respond_with(JSON.format(len(content)), content)


def send_tile(_url: str) -> ConnectionScript:
    return respond_with(IMAGE, PICTURE)


def send_status(status: int) -> Callable[[str], ConnectionScript]:
    return lambda _url: respond_with(f"HTTP/1.1 {status} No\nConnection: close\nContent-Length: 0")


def list_paths(server: RawServer) -> list[str]:
    return [request.split(b" ")[1].decode() for request in server.requests]


def test_document_is_read_once_and_the_key_is_sent_with_each_request() -> None:
    with serve(send_document, send_tile, send_tile) as server:
        config = create_config(server.url)
        with open_provider(config) as provider:
            assert server.requests == [], "nothing is sent before it is needed"
            page = provider.fetch_listing_page(AREA, [3], None)
            assert [tile.tile_id.zoom for tile in page.tiles] == [3]
            assert fetch_whole_tile(provider, TILE).content == PICTURE
            fetches = provider.open_fetches()
            fetches.start(TileRequest(TILE, None))
            while not fetches.wait(1.0):
                pass
            fetches.close()
            assert KEY not in repr(provider)
            assert "canary" not in repr(provider.server)
    tile = f"/3/5/1.png?key={ENCODED}"
    assert list_paths(server) == [f"/tiles.json?key={ENCODED}", tile, tile]
    assert not provider.lists_versions


def test_document_is_requested_again_after_a_failure() -> None:
    with (
        serve(send_status(503), send_document) as server,
        open_provider(create_config(server.url)) as provider,
    ):
        with pytest.raises(SatelliteProviderError) as failure:
            provider.fetch_listing_page(AREA, [3], None)
        assert failure.value.fault is ProviderFault.UNAVAILABLE
        assert provider.fetch_listing_page(AREA, [3], None).tiles


def test_compressed_and_redirected_document_is_read() -> None:
    def redirect(_url: str) -> ConnectionScript:
        return respond_with("HTTP/1.1 301 Moved\nConnection: close\nLocation: /new.json")

    def send_compressed(url: str) -> ConnectionScript:
        content = gzip.compress(write_document(f"{url}/{{z}}/{{x}}/{{y}}"))
        return respond_with(JSON.format(len(content)) + "\nContent-Encoding: gzip", content)

    with (
        serve(redirect, send_compressed) as server,
        open_provider(create_config(server.url)) as provider,
    ):
        assert provider.server.zooms == range(10)
    assert list_paths(server)[1] == "/new.json"


@pytest.mark.parametrize(
    ("answer", "fault", "said"),
    [
        (respond_with(JSON.format(6), b"<html>"), ProviderFault.SCHEMA, "cannot use the desc"),
        (respond_with(JSON.format(10**9)), ProviderFault.TOO_LARGE, "limit is 16777216"),
        (respond_with(JSON.format(99), b"{}"), ProviderFault.TRUNCATED, "broke off"),
        (
            respond_with(f"HTTP/1.1 401 No {KEY}\nContent-Length: {len(KEY)}", KEY.encode()),
            ProviderFault.UNAUTHORIZED,
            "HTTP 401",
        ),
        (
            respond_with(f"HTTP/1.1 302 Go\nLocation: https://h.example/{ENCODED}"),
            ProviderFault.REDIRECTED,
            "redirects to https://h.example/***",
        ),
    ],
)
def test_invariant_34_unusable_document_is_an_error_without_the_key(
    answer: ConnectionScript, fault: ProviderFault, said: str
) -> None:
    with (
        serve(lambda _url: answer) as server,
        open_provider(create_config(server.url)) as provider,
        pytest.raises(SatelliteProviderError) as failure,
    ):
        provider.fetch_tile(TILE)
    error = failure.value
    assert error.fault is fault
    assert said in str(error)
    assert f"{server.url}/tiles.json?key=***" in str(error)
    assert "canary" not in f"{error} {error!r}"


def test_tiles_of_another_host_need_their_own_acknowledgement() -> None:
    template = f"https://cdn.example.org/{{z}}/{{x}}/{{y}}?key={ENCODED}"
    content = write_document(template)
    with (
        serve(lambda _url: respond_with(JSON.format(len(content)), content)) as server,
        open_provider(create_config(server.url)) as provider,
        pytest.raises(NotPermittedError, match=r'acknowledged_for = "cdn\.example\.org"'),
    ):
        provider.fetch_tile(TILE)
    assert len(server.requests) == 1


def test_unsafe_address_in_the_document_names_the_setting() -> None:
    content = write_document("http://cdn.example.org/{z}/{x}/{y}")
    with (
        serve(lambda _url: respond_with(JSON.format(len(content)), content)) as server,
        open_provider(create_config(server.url)) as provider,
        pytest.raises(InvalidValueError, match=r"xyz\.tilejson_url: would connect to cdn"),
    ):
        provider.fetch_tile(TILE)


def test_identity_follows_the_settings_not_the_document() -> None:
    url = "https://maps.example.org"
    wmts = {"tilejson_url": None, "wmts_url": f"{url}/wmts"}
    given: list[dict[str, Any]] = [
        {},
        {"imagery_date": "2026-10-02"},
        {"tile_size_px": 512},
        wmts,
        {**wmts, "wmts_layer": "a"},
        {**wmts, "wmts_style": "a"},
    ]
    found = set()
    for said in given:
        with open_provider(create_config(url, **said)) as provider:
            found.add(provider.key_hash)
            assert provider.source == "xyz-maps.example.org"
    assert len(found) == len(given)


@pytest.mark.parametrize("name", ["attribution", "licence", "imagery_date"])
def test_missing_setting_is_reported_before_the_document_is_read(name: str) -> None:
    with pytest.raises(InvalidValueError, match=rf"xyz\.{name}: is not set"):
        Container(config=create_config("https://maps.example.org", **{name: None})).provider()


def test_settings_that_conflict_or_do_not_apply() -> None:
    both = create_config("https://maps.example.org", wmts_url="https://maps.example.org/wmts")
    with pytest.raises(InvalidValueError, match=r"xyz\.tilejson_url: is set, and so is xyz\.wmts"):
        Container(config=both).provider()
    config = create_config("https://maps.example.org")
    assert get_address_setting(config) == "xyz.tilejson_url"
    assert get_max_requests_per_s(config) == 5.0
    with pytest.raises(NotPermittedError) as refused:
        check_accepts_uploads(config)
    assert "instead of xyz.tilejson_url" in str(refused.value.remedy)
