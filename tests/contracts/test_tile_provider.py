"""Every provider of tiles keeps the port's promises, whoever is on the other side."""

import gzip
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from hashlib import sha256
from importlib.metadata import version
from types import NoneType

import pytest
from support.provider import RunningProvider
from support.raw_server import Script, answering, raw_server
from support.tile_providers import KEY, KINDS, TIGHT

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
    image_kind,
)

TILE = TileId(source="satellite", zoom=14, x=9_830, y=5_544)
AREA = BBox(west=36.0, south=50.0, east=36.9, north=50.6)
IMAGE = "HTTP/1.1 200 OK\nContent-Type: image/jpeg\nContent-Length: {}"
PICTURE = b"\xff\xd8\xff" + b"a picture" * 20
WHOLE = IMAGE.format(len(PICTURE))
UNFRAMED = "HTTP/1.1 200 OK\nContent-Type: image/jpeg"
NewProvider = Callable[..., AbstractContextManager[TileProvider]]


@pytest.fixture(params=KINDS)
def new_provider(request: pytest.FixtureRequest) -> NewProvider:
    return KINDS[request.param]


def refused(new_provider: NewProvider, script: Script) -> SatelliteProviderError:
    """Return what asking such a server for a tile ends with, in time."""
    begun_s = time.monotonic()
    with (
        raw_server(script) as server,
        new_provider(server.url, limits=TIGHT, timeout_s=0.5) as provider,
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


def listed(provider: TileProvider, zooms: list[int]) -> list[TileSummary]:
    coverage = TileCoverage(bbox=AREA, zoom_levels=zooms)
    progress = ListingProgress(coverage=coverage, limits=ListingLimits())
    found, cursor, pages = [], None, 0
    while True:
        page = provider.listing_page(AREA, zooms, cursor)
        assert len(page.tiles) <= 1_000
        found += progress.new_tiles(page)
        cursor, pages = page.next, pages + 1
        if cursor is None:
            assert pages == -(-len(found) // 1_000)
            return found


def test_pages_lead_through_an_area_and_end(
    new_provider: NewProvider, reference_provider: RunningProvider
) -> None:
    with new_provider(reference_provider.url) as provider:
        found = listed(provider, [12, 14])
        again = listed(provider, [12, 14])
    assert found == again
    expected = TileCoverage(bbox=AREA, zoom_levels=[12, 14]).tiles(provider.source)
    assert [tile.tile_id for tile in found] == list(expected)
    assert all(tile.produced_at.isoformat() == "2026-10-01T00:00:00+00:00" for tile in found)
    assert all(0 < tile.resolution_m_per_px < 100 and tile.estimated_bytes > 0 for tile in found)


# Fetching


def test_a_tile_is_the_one_that_was_asked_for(
    new_provider: NewProvider, reference_provider: RunningProvider
) -> None:
    with new_provider(reference_provider.url) as provider:
        tile = provider.fetch_tile(TILE)
        other = provider.fetch_tile(TileId(source="satellite", zoom=14, x=9_831, y=5_544))
    assert tile.tile_id == TILE
    assert image_kind(tile.content) == "jpg"
    assert tile.sha256 == sha256(tile.content).digest()
    assert other.content != tile.content
    assert reference_provider.fetched == {"14/9830/5544": 1, "14/9831/5544": 1}


def test_any_thread_may_ask(new_provider: NewProvider, reference_provider: RunningProvider) -> None:
    tiles = list(TileCoverage(bbox=AREA, zoom_levels=[11]).tiles("satellite"))
    with new_provider(reference_provider.url) as provider, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(provider.fetch_tile, tiles))
    assert [tile.tile_id for tile in found] == tiles
    assert len({tile.sha256 for tile in found}) == len(tiles)
    assert set(reference_provider.fetched.values()) == {1}


def test_we_say_who_we_are_and_what_we_can_read(new_provider: NewProvider) -> None:
    with (
        raw_server(answering(WHOLE, PICTURE)) as server,
        new_provider(server.url) as provider,
    ):
        assert provider.fetch_tile(TILE).content == PICTURE
    (request,) = server.requests
    sent = request.decode().lower()
    assert f"user-agent: tileferry/{version('tileferry')}\r\n" in sent
    assert "accept-encoding: identity\r\n" in sent


def test_two_accounts_are_told_apart_and_no_key_is_shown(new_provider: NewProvider) -> None:
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
def test_a_status_has_its_meaning(
    new_provider: NewProvider, status: int, fault: ProviderFault
) -> None:
    error = refused(new_provider, answering(f"HTTP/1.1 {status} No\nContent-Length: 0"))
    assert (error.status, error.fault, error.retry_after_s) == (status, fault, None)


@pytest.mark.parametrize("status", [429, 503])
def test_invariant_23_a_wait_that_is_asked_for_is_passed_on(
    new_provider: NewProvider, status: int
) -> None:
    head = f"HTTP/1.1 {status} Later\nRetry-After: 7\nContent-Length: 0"
    assert refused(new_provider, answering(head)).retry_after_s == 7.0


def test_invariant_32_a_redirect_is_not_followed(new_provider: NewProvider) -> None:
    with raw_server(answering(WHOLE, PICTURE)) as elsewhere:
        head = f"HTTP/1.1 302 Found\nLocation: {elsewhere.url}/a.jpg\nContent-Length: 0"
        assert refused(new_provider, answering(head)).fault is ProviderFault.REDIRECTED
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
        (UNFRAMED, PICTURE, ProviderFault.TRUNCATED),
        (WHOLE + "\nContent-Range: bytes 0-2/9", PICTURE, ProviderFault.TRUNCATED),
        (
            WHOLE + f"\nRepr-Digest: sha-256=:{'A' * 43}=:",
            PICTURE,
            ProviderFault.DAMAGED,
        ),
    ],
)  # fmt: skip
def test_invariant_31_what_is_not_as_declared_is_no_tile(
    new_provider: NewProvider, head: str, body: bytes, fault: ProviderFault
) -> None:
    assert refused(new_provider, answering(head, body)).fault is fault


def test_invariant_28_a_compressed_bomb_is_refused_unread(new_provider: NewProvider) -> None:
    bomb = gzip.compress(bytes(50_000_000))[:9_000]
    head = IMAGE.format(len(bomb)) + "\nContent-Encoding: gzip"
    assert refused(new_provider, answering(head, bomb)).fault is ProviderFault.SCHEMA


def test_invariant_24_an_answer_that_trickles_is_given_up(new_provider: NewProvider) -> None:
    def trickle(connection: socket.socket) -> None:
        for _ in range(40):
            connection.sendall(b"x")
            time.sleep(0.05)

    error = refused(new_provider, answering(IMAGE.format(5_000), then=trickle))
    assert error.fault is ProviderFault.TOO_SLOW


def test_a_server_that_says_nothing_times_out(new_provider: NewProvider) -> None:
    error = refused(new_provider, lambda _connection: time.sleep(1.5))
    assert error.fault is ProviderFault.TIMED_OUT


def test_a_server_that_is_not_there_is_unreachable(new_provider: NewProvider) -> None:
    with (
        new_provider("http://127.0.0.1:1") as provider,
        pytest.raises(SatelliteProviderError) as failure,
    ):
        provider.fetch_tile(TILE)
    assert failure.value.fault is ProviderFault.UNREACHABLE
    assert KEY not in f"{failure.value} {failure.value!r}"


@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_invariant_34_a_key_that_is_echoed_is_in_no_error(
    new_provider: NewProvider, status: int
) -> None:
    body = f"no, {KEY} and {KEY[:-2]}".encode()
    error = refused(
        new_provider, answering(f"HTTP/1.1 {status} {KEY}\nContent-Length: {len(body)}", body)
    )
    assert "***" in (error.body_excerpt or "")
    assert KEY[:-2] not in f"{error} {error!r}"
