"""Every provider of tiles keeps the port's promises, whoever is on the other side."""

import gzip
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from types import NoneType

import pytest
from support.hostile_provider import ConnectionScript, respond_with, run_raw_server
from support.pictures import make_picture
from support.provider import RunningProvider
from support.tile_providers import KEY, KINDS, TIGHT_LIMITS, fetch_whole_tile

from tileferry.application.ports.provider import TileProvider
from tileferry.domain.errors import InvalidValueError, SatelliteProviderError
from tileferry.domain.tiles import (
    BBox,
    ListingLimits,
    ListingProgress,
    ProviderFault,
    TileCoverage,
    TileId,
    TileSummary,
    inspect_picture,
)

TILE = TileId(source="satellite", zoom=14, x=9_830, y=5_544)
AREA = BBox(west=36.0, south=50.0, east=36.9, north=50.6)
IMAGE = "HTTP/1.1 200 OK\nContent-Type: image/jpeg\nContent-Length: {}"
PICTURE = make_picture("a picture" * 20)
WHOLE = IMAGE.format(len(PICTURE))
UNFRAMED = "HTTP/1.1 200 OK\nContent-Type: image/jpeg"
NewProvider = Callable[..., AbstractContextManager[TileProvider]]


@pytest.fixture(params=KINDS)
def new_provider(request: pytest.FixtureRequest) -> NewProvider:
    return KINDS[request.param]


def fetch_error(new_provider: NewProvider, script: ConnectionScript) -> SatelliteProviderError:
    """Return what asking such a server for a tile ends with, in time."""
    begun_s = time.monotonic()
    with (
        run_raw_server(script) as server,
        new_provider(server.url, limits=TIGHT_LIMITS, timeout_s=0.5) as provider,
        pytest.raises(SatelliteProviderError) as failure,
    ):
        provider.fetch_tile(TILE)
    assert time.monotonic() - begun_s < 5
    error = failure.value
    assert KEY not in f"{error} {error!r}"
    assert isinstance(error.__context__, InvalidValueError | NoneType)
    assert error.url is not None
    assert error.url.startswith(server.url)
    return error


# Listing


def list_area(provider: TileProvider, zooms: list[int]) -> list[TileSummary]:
    coverage = TileCoverage(bbox=AREA, zoom_levels=zooms)
    progress = ListingProgress(coverage=coverage, limits=ListingLimits())
    found, cursor, pages = [], None, 0
    while True:
        page = provider.fetch_listing_page(AREA, zooms, cursor)
        assert len(page.tiles) <= 1_000
        found += progress.add_page(page)
        cursor, pages = page.next, pages + 1
        if cursor is None:
            assert pages == -(-len(found) // 1_000)
            return found


def test_listing_pages_cover_area_and_end(
    new_provider: NewProvider, reference_provider: RunningProvider
) -> None:
    with new_provider(reference_provider.url) as provider:
        found = list_area(provider, [12, 14])
        again = list_area(provider, [12, 14])
    assert found == again
    expected = TileCoverage(bbox=AREA, zoom_levels=[12, 14]).tiles(provider.source)
    assert [tile.tile_id for tile in found] == list(expected)
    assert all(tile.produced_at.isoformat() == "2026-10-01T00:00:00+00:00" for tile in found)
    assert all(0 < tile.resolution_m_per_px < 100 and tile.estimated_bytes > 0 for tile in found)


# Fetching


def test_fetched_tile_is_the_requested_one(
    new_provider: NewProvider, reference_provider: RunningProvider
) -> None:
    with new_provider(reference_provider.url) as provider:
        tile = fetch_whole_tile(provider, TILE)
        other = fetch_whole_tile(provider, TileId(source="satellite", zoom=14, x=9_831, y=5_544))
    assert tile.tile_id == TILE
    assert inspect_picture(tile.content).kind == "jpg"
    assert tile.sha256 == sha256(tile.content).digest()
    assert other.content != tile.content
    assert reference_provider.fetched == {"14/9830/5544": 1, "14/9831/5544": 1}


def test_tiles_can_be_fetched_from_many_threads(
    new_provider: NewProvider, reference_provider: RunningProvider
) -> None:
    tiles = list(TileCoverage(bbox=AREA, zoom_levels=[11]).tiles("satellite"))
    with new_provider(reference_provider.url) as provider, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(partial(fetch_whole_tile, provider), tiles))
    assert [tile.tile_id for tile in found] == tiles
    assert len({tile.sha256 for tile in found}) == len(tiles)
    assert set(reference_provider.fetched.values()) == {1}


def test_request_sends_user_agent_and_identity_encoding(new_provider: NewProvider) -> None:
    with (
        run_raw_server(respond_with(WHOLE, PICTURE)) as server,
        new_provider(server.url) as provider,
    ):
        assert fetch_whole_tile(provider, TILE).content == PICTURE
    (request,) = server.requests
    sent = request.decode().lower()
    assert f"user-agent: tileferry/{version('tileferry')}\r\n" in sent
    assert "accept-encoding: identity\r\n" in sent


def test_key_hash_distinguishes_accounts_without_exposing_key(new_provider: NewProvider) -> None:
    hashes = set()
    for key in (KEY, KEY, "another-key"):
        with new_provider("http://127.0.0.1:1", key=key) as provider:
            hashes.add(provider.key_hash)
            assert key not in repr(provider) + provider.key_hash
    assert len(hashes) == 2


# What the other side may answer


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (204, ProviderFault.NOT_FOUND),
        (404, ProviderFault.NOT_FOUND),
        (410, ProviderFault.NOT_FOUND),
        (401, ProviderFault.UNAUTHORIZED),
        (403, ProviderFault.UNAUTHORIZED),
        (418, ProviderFault.REFUSED),
        (429, ProviderFault.RATE_LIMITED),
        (500, ProviderFault.UNAVAILABLE),
        (503, ProviderFault.UNAVAILABLE),
    ],
)
def test_http_status_maps_to_fault(
    new_provider: NewProvider, status: int, fault: ProviderFault
) -> None:
    error = fetch_error(new_provider, respond_with(f"HTTP/1.1 {status} No\nContent-Length: 0"))
    assert (error.status, error.fault, error.retry_after_s) == (status, fault, None)


@pytest.mark.parametrize("status", [429, 503])
def test_invariant_23_retry_after_is_passed_on(new_provider: NewProvider, status: int) -> None:
    head = f"HTTP/1.1 {status} Later\nRetry-After: 7\nContent-Length: 0"
    assert fetch_error(new_provider, respond_with(head)).retry_after_s == 7.0


def test_invariant_32_redirect_is_not_followed(new_provider: NewProvider) -> None:
    with run_raw_server(respond_with(WHOLE, PICTURE)) as elsewhere:
        head = f"HTTP/1.1 302 Found\nLocation: {elsewhere.url}/a.jpg\nContent-Length: 0"
        assert fetch_error(new_provider, respond_with(head)).fault is ProviderFault.REDIRECTED
    assert elsewhere.requests == []


@pytest.mark.parametrize(
    ("head", "body", "fault"),
    [
        (IMAGE.format(3).replace("image/jpeg", "text/html"), b"abc", ProviderFault.SCHEMA),
        ("HTTP/1.1 200 OK\nContent-Length: 3", b"abc", ProviderFault.SCHEMA),
        (IMAGE.format(0), b"", ProviderFault.TRUNCATED),
        (IMAGE.format(10), b"abc", ProviderFault.TRUNCATED),
        (IMAGE.format(10**12), b"abc", ProviderFault.TOO_LARGE),
        (UNFRAMED, b"x" * 70_000, ProviderFault.TOO_LARGE),
        (UNFRAMED, PICTURE[:-1], ProviderFault.TRUNCATED),
        (IMAGE.format(6), b"<html>", ProviderFault.SCHEMA),
        (WHOLE + "\nContent-Range: bytes 0-2/9", PICTURE, ProviderFault.TRUNCATED),
        (
            WHOLE + f"\nRepr-Digest: sha-256=:{'A' * 43}=:",
            PICTURE,
            ProviderFault.DAMAGED,
        ),
    ],
)  # fmt: skip
def test_invariant_31_response_not_matching_its_headers_is_rejected(
    new_provider: NewProvider, head: str, body: bytes, fault: ProviderFault
) -> None:
    assert fetch_error(new_provider, respond_with(head, body)).fault is fault


def test_invariant_28_compressed_bomb_is_rejected(new_provider: NewProvider) -> None:
    bomb = gzip.compress(bytes(50_000_000))[:9_000]
    head = IMAGE.format(len(bomb)) + "\nContent-Encoding: gzip"
    fault = fetch_error(new_provider, respond_with(head, bomb)).fault
    # A satellite-provider must not compress; a plain tile server may, within the same limits.
    assert fault in {ProviderFault.SCHEMA, ProviderFault.TOO_LARGE}


def test_invariant_24_trickling_response_is_aborted(new_provider: NewProvider) -> None:
    def trickle(connection: socket.socket) -> None:
        for _ in range(40):
            connection.sendall(b"x")
            time.sleep(0.05)

    error = fetch_error(new_provider, respond_with(IMAGE.format(5_000), then=trickle))
    assert error.fault is ProviderFault.TOO_SLOW


def test_silent_server_times_out(new_provider: NewProvider) -> None:
    error = fetch_error(new_provider, lambda _connection: time.sleep(1.5))
    assert error.fault is ProviderFault.TIMED_OUT


def test_absent_server_is_unreachable(new_provider: NewProvider) -> None:
    with (
        new_provider("http://127.0.0.1:1") as provider,
        pytest.raises(SatelliteProviderError) as failure,
    ):
        provider.fetch_tile(TILE)
    assert failure.value.fault is ProviderFault.UNREACHABLE
    assert KEY not in f"{failure.value} {failure.value!r}"


@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_invariant_34_echoed_key_is_redacted_in_errors(
    new_provider: NewProvider, status: int
) -> None:
    body = f"no, {KEY} and {KEY[:-2]}".encode()
    error = fetch_error(
        new_provider, respond_with(f"HTTP/1.1 {status} {KEY}\nContent-Length: {len(body)}", body)
    )
    assert "***" in (error.body_excerpt or "")
    assert KEY[:-2] not in f"{error} {error!r}"
