"""A plain tile server: what is sent to it, how fast, and that its key stays hidden."""

import logging
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme
from attrs import evolve
from support.hostile_provider import respond_with, run_raw_server
from support.managers import create_pace
from support.pictures import make_picture
from support.provider import RunningProvider
from support.tile_providers import KEY, create_tile_server, fetch_whole_tile, open_xyz_provider

from tileferry.adapters.memory import ManualClock
from tileferry.application import AuditTrail, RetryManager
from tileferry.application.download.provider_calls import ProviderCalls
from tileferry.application.ports.provider import UnchangedTile
from tileferry.domain.errors import InvalidValueError, NotPermittedError, SatelliteProviderError
from tileferry.domain.retry import DOWNLOAD_POLICY
from tileferry.domain.tiles import (
    BBox,
    ListingLimits,
    ProviderFault,
    RequestSpacing,
    TileCoverage,
    TileId,
    TileValidators,
)

TILE = TileId(source="satellite", zoom=3, x=5, y=1)
PICTURE = make_picture("a picture" * 20)
HEAD = f"HTTP/1.1 200 OK\nContent-Type: image/png\nContent-Length: {len(PICTURE)}"
GOOD = respond_with(HEAD, PICTURE)
AREA = TileCoverage(bbox=BBox(west=36.0, south=50.0, east=36.3, north=50.2), zoom_levels=[14])


@pytest.mark.parametrize("httpx", [False, True])
@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/{z}/{x}/{y}.png", "/3/5/1.png"),
        ("/{z}/{x}/{-y}.png", "/3/5/6.png"),
        ("/wmts?TILEMATRIX={z}&TILECOL={x}&TILEROW={y}", "/wmts?TILEMATRIX=3&TILECOL=5&TILEROW=1"),
        ("/{z}/{x}/{y}?key={api_key}", f"/3/5/1?key={KEY}"),
    ],
)
def test_tile_url_follows_the_template_and_only_it_contains_the_key(
    path: str, asked: str, *, httpx: bool
) -> None:
    with (
        run_raw_server(GOOD) as server,
        open_xyz_provider(server.url, path=path, httpx=httpx) as provider,
    ):
        tile = fetch_whole_tile(provider, TILE)
    assert (tile.content, tile.produced_at, tile.resolution_m_per_px) == (PICTURE, None, None)
    (request,) = server.requests
    sent = request.decode()
    assert sent.startswith(f"GET {asked} HTTP/1.1\r\n")
    assert "authorization" not in sent.lower()
    assert "referer" not in sent.lower()
    assert sent.count(KEY) == asked.count(KEY)


def test_last_modified_is_not_used_as_capture_time() -> None:
    head = f"{HEAD}\nLast-Modified: Mon, 02 Nov 2026 10:00:00 GMT\nX-Produced-At: 2026-11-02T00:00Z"
    with (
        run_raw_server(respond_with(head, PICTURE)) as server,
        open_xyz_provider(server.url) as provider,
    ):
        assert fetch_whole_tile(provider, TILE).produced_at is None
        line = provider.fetch_listing_page(AREA.bbox, AREA.zoom_levels, None).tiles[0]
    assert line.produced_at.date().isoformat() == "2026-10-01"


@pytest.mark.parametrize("body", [b"<html>sorry</html>", b"\x1f\x8b a vector tile", b"GIF89a"])
def test_body_without_an_image_signature_is_rejected(body: bytes) -> None:
    head = f"HTTP/1.1 200 OK\nContent-Type: image/png\nContent-Length: {len(body)}"
    with (
        run_raw_server(respond_with(head, body)) as server,
        open_xyz_provider(server.url) as provider,
        pytest.raises(
            SatelliteProviderError, match="is not a PNG, JPEG, WebP or AVIF image"
        ) as failure,
    ):
        provider.fetch_tile(TILE)
    assert failure.value.fault is ProviderFault.SCHEMA


# What must not be asked


@pytest.mark.parametrize("acknowledged", [None, "tile.example.org", "localhost"])
def test_server_without_bulk_download_acknowledgement_is_rejected(acknowledged: str | None) -> None:
    with (
        run_raw_server(GOOD) as server,
        pytest.raises(NotPermittedError, match=r"xyz\.bulk_download_acknowledged_for"),
        open_xyz_provider(server.url, acknowledged_for=acknowledged),
    ):
        pass
    assert server.requests == []


def test_host_that_forbids_bulk_download_is_rejected() -> None:
    with (
        pytest.raises(NotPermittedError, match="OpenStreetMap's tile usage policy"),
        open_xyz_provider("https://tile.openstreetmap.org", path="/{z}/{x}/{y}.png"),
    ):
        pass


def test_missing_api_key_is_rejected() -> None:
    with (
        pytest.raises(InvalidValueError, match=r"c11\.service_api_key"),
        open_xyz_provider("https://h", key=""),
    ):
        pass


def test_area_over_the_tile_limit_is_rejected_without_retry() -> None:
    clock = ManualClock()
    with open_xyz_provider("https://host.example", max_tiles_per_download=10) as provider:
        calls = ProviderCalls(
            provider=provider,
            retry=RetryManager(
                clock=clock, new_id=lambda: "1", audit=AuditTrail(logger=logging.getLogger("t"))
            ),
            pace=create_pace(clock),
            clock=clock,
            policy=DOWNLOAD_POLICY,
            correlation_id="c",
        )
        with pytest.raises(NotPermittedError, match=r"xyz\.max_tiles_per_download is 10"):
            list(calls.iter_pages(AREA, ListingLimits()))
    assert clock.slept == []


@pytest.mark.parametrize("httpx", [False, True])
@pytest.mark.parametrize(
    ("name", "trusted", "served"),
    [("localhost", True, True), ("localhost", False, False), ("elsewhere.example", True, False)],
)
def test_invariant_33_server_with_an_untrusted_certificate_is_rejected(
    tmp_path: Path, name: str, *, trusted: bool, served: bool, httpx: bool
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    ca_file = tmp_path / "ca.pem"
    (authority if trusted else trustme.CA()).cert_pem.write_to_path(str(ca_file))
    with (
        run_raw_server(GOOD, tls=context) as server,
        open_xyz_provider(server.url, ca_file=ca_file, httpx=httpx) as provider,
    ):
        if served:
            assert fetch_whole_tile(provider, TILE).content == PICTURE
            return
        with pytest.raises(SatelliteProviderError) as failure:
            provider.fetch_tile(TILE)
    assert failure.value.fault is ProviderFault.INSECURE
    assert server.requests == []


# How fast it is asked


def test_requests_are_spaced_by_the_rate_limit(reference_provider: RunningProvider) -> None:
    clock = ManualClock()
    spacing = RequestSpacing(max_per_s=4.0)
    with open_xyz_provider(reference_provider.url, clock=clock, spacing=spacing) as provider:
        for _ in range(3):
            provider.fetch_tile(TILE)
        clock.advance(10)
        provider.fetch_tile(TILE)
        provider.fetch_tile(TILE)
    assert clock.slept == pytest.approx([0.25, 0.25, 0.25])


def test_threads_share_the_rate_limit(reference_provider: RunningProvider) -> None:
    tiles = list(AREA.tiles("satellite"))[:12]
    arrived: list[float] = []
    spacing = RequestSpacing(max_per_s=20.0)
    begun_s = time.monotonic()
    with open_xyz_provider(reference_provider.url, spacing=spacing) as provider:

        def fetch(tile: TileId) -> None:
            provider.fetch_tile(tile)
            arrived.append(time.monotonic() - begun_s)

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(fetch, tiles))
    assert len(reference_provider.requests) == len(tiles)
    for order, moment in enumerate(sorted(arrived)):
        assert moment >= order / 20 - 0.001


# Invariant 34


@pytest.mark.parametrize(
    ("query", "hidden"),
    [
        ("X-Amz-Signature=0a1b", "0a1b"),
        ("subscription-key=canary", "canary"),
        ("appid=canary&layer=sat", "canary"),
        ("v=9fK2xQ7tLm4Zr8Vb", "9fK2xQ7tLm4Zr8Vb"),
    ],
)
def test_invariant_34_unknown_key_in_the_url_is_in_no_error(query: str, hidden: str) -> None:
    with (
        run_raw_server(respond_with("HTTP/1.1 500 No\nContent-Length: 0")) as server,
        open_xyz_provider(server.url, path=f"/{{z}}/{{x}}/{{y}}?{query}") as provider,
        pytest.raises(SatelliteProviderError) as raised,
    ):
        provider.fetch_tile(TILE)
    error = raised.value
    assert hidden not in f"{error} {error!r} {provider!r}"
    assert hidden.encode() in server.requests[0]


@pytest.mark.parametrize("httpx", [False, True])
@pytest.mark.parametrize("path", ["/{api_key}/{z}/{x}/{y}.png", "/{z}/{x}/{y}?key={api_key}"])
@pytest.mark.parametrize("failure", ["nobody", "tls", "cut", "status", "no picture"])
def test_invariant_34_key_in_the_url_is_in_no_error(
    path: str, failure: str, caplog: pytest.LogCaptureFixture, *, httpx: bool
) -> None:
    caplog.set_level(logging.INFO, "tileferry")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    body = f"{KEY} {KEY[:-1]}".encode()
    scripts = {
        "cut": lambda connection: connection.close(),
        "status": respond_with(f"HTTP/1.1 500 {KEY}\nContent-Length: {len(body)}", body),
        "no picture": respond_with(HEAD.replace(str(len(PICTURE)), str(len(body))), body),
    }
    with run_raw_server(
        scripts.get(failure, GOOD), tls=context if failure == "tls" else None
    ) as server:
        url = "http://127.0.0.1:1" if failure == "nobody" else server.url
        with (
            open_xyz_provider(url, path=path, httpx=httpx) as provider,
            pytest.raises(SatelliteProviderError) as raised,
        ):
            provider.fetch_tile(TILE)
    error = raised.value
    told = f"{error} {error!r} {error.__cause__!r} {error.__context__!r} {provider!r}"
    assert KEY[:-1] not in told
    assert error.url is not None
    assert "***" in error.url
    assert not any(
        KEY in record.getMessage() for record in caplog.records if record.name != "httpx"
    )


def test_invariant_34_key_cut_off_in_a_library_message_is_redacted() -> None:
    url = "http://127.0.0.1:1"
    with open_xyz_provider(url) as provider:
        for length in range(60, 200, 3):
            path = f"/{'a' * length}/{{z}}/{{x}}/{{y}}.png?key={{api_key}}"
            longer = evolve(provider, server=create_tile_server(url, path=path))  # type: ignore[misc]  # it is one of attrs
            with pytest.raises(SatelliteProviderError) as raised:
                longer.fetch_tile(TILE)
            assert KEY[:4] not in f"{raised.value} {raised.value!r}"


# Conditional requests


@pytest.mark.parametrize("httpx", [False, True])
def test_version_that_the_server_still_has_transfers_no_body(*, httpx: bool) -> None:
    head = f'{HEAD}\nETag: W/"v\\1"\nLast-Modified: Mon, 02 Nov 2026 10:00:00 GMT'
    with (
        run_raw_server(respond_with(head, PICTURE)) as server,
        open_xyz_provider(server.url, httpx=httpx) as provider,
    ):
        validators = fetch_whole_tile(provider, TILE).validators
    assert validators == TileValidators(
        etag='W/"v\\1"', last_modified="Mon, 02 Nov 2026 10:00:00 GMT"
    )
    unchanged = "HTTP/1.1 304 Not Modified"
    with (
        run_raw_server(respond_with(unchanged)) as server,
        open_xyz_provider(server.url, httpx=httpx) as provider,
    ):
        answer = provider.fetch_tile(TILE, unless=validators)
        assert answer == UnchangedTile(tile_id=TILE)
        with pytest.raises(SatelliteProviderError):
            provider.fetch_tile(TILE)  # it was not asked for
    conditional, plain = (request.decode().lower() for request in server.requests)
    assert 'if-none-match: w/"v\\1"\r\n' in conditional
    assert "if-modified-since: mon, 02 nov 2026 10:00:00 gmt\r\n" in conditional
    assert "if-none-match" not in plain


@pytest.mark.parametrize("etag", [f'"{KEY}"', "x" * 300, ""])
def test_unusable_or_revealing_etag_is_not_kept(etag: str) -> None:
    with (
        run_raw_server(respond_with(f"{HEAD}\nETag: {etag}", PICTURE)) as server,
        open_xyz_provider(server.url, path="/{z}/{x}/{y}?key={api_key}") as provider,
    ):
        assert fetch_whole_tile(provider, TILE).validators is None
        assert not provider.lists_versions
