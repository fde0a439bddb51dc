"""Every way to fetch many tiles keeps the port's promises."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from hashlib import sha256
from typing import Any

import pytest
from support.hostile_provider import respond_with, run_raw_server
from support.memory_download_env import MemoryProvider, create_fault
from support.pictures import make_picture
from support.tile_providers import (
    KEY,
    open_satellite_provider,
    open_xyz_provider,
)

from tileferry.application.ports.provider import (
    FetchedTile,
    FetchResult,
    TileFetches,
    TileProvider,
    TileRequest,
    UnchangedTile,
)
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.tiles import ProviderFault, RequestSpacing, TileId, TileValidators

PATIENCE_S = 30.0
PICTURE = make_picture("a picture" * 20)
HEAD = f"HTTP/1.1 200 OK\nContent-Type: image/png\nContent-Length: {len(PICTURE)}"
MISSING = "HTTP/1.1 404 Not Found\nContent-Length: 0"
TILES = MemoryProvider(12).tiles
OpenProvider = Callable[..., AbstractContextManager[TileProvider]]


def serve(connection: socket.socket, *, missing: frozenset[TileId], server: Any) -> None:
    """Answer on a connection that stays open."""
    path = server.requests[-1].split(b" ")[1].decode()
    is_missing = any(f"/{tile.x}/{tile.y}" in path for tile in missing)
    head, body = (MISSING, b"") if is_missing else (HEAD, PICTURE)
    connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)


@contextmanager
def open_http(
    opener: OpenProvider, *, missing: frozenset[TileId] = frozenset()
) -> Iterator[TileProvider]:
    holder: list[Any] = []

    def script(connection: socket.socket) -> None:
        serve(connection, missing=missing, server=holder[0])

    with run_raw_server(script) as server:
        holder.append(server)
        with opener(server.url, timeout_s=30.0) as provider:
            yield provider


@contextmanager
def open_memory(*, missing: frozenset[TileId] = frozenset()) -> Iterator[TileProvider]:
    provider = MemoryProvider(12)
    for tile in missing:
        provider.faults[tile] = [create_fault(ProviderFault.NOT_FOUND)]
    yield provider


FAST = RequestSpacing(max_per_s=100.0)
PROVIDERS: dict[str, OpenProvider] = {
    "curl": partial(open_http, open_satellite_provider),
    "httpx": partial(open_http, partial(open_satellite_provider, httpx=True)),
    "xyz, curl": partial(open_http, partial(open_xyz_provider, spacing=FAST)),
    "xyz, httpx": partial(open_http, partial(open_xyz_provider, spacing=FAST, httpx=True)),
    "memory": open_memory,
}


@pytest.fixture(params=PROVIDERS)
def open_provider(request: pytest.FixtureRequest) -> OpenProvider:
    return PROVIDERS[request.param]


def collect(fetches: TileFetches, count: int) -> dict[TileRequest, FetchResult]:
    """Wait for so many results."""
    found: dict[TileRequest, FetchResult] = {}
    until_s = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < until_s, f"{len(found)} of {count} results"
        found.update(fetches.wait(0.2))
    return found


def start(fetches: TileFetches, tiles: list[TileId]) -> list[TileRequest]:
    requests = [TileRequest(tile, None) for tile in tiles]
    for request in requests:
        fetches.start(request)
    return requests


def test_every_request_comes_back_once_with_its_tile(open_provider: OpenProvider) -> None:
    with open_provider() as provider, closing(provider.open_fetches()) as fetches:
        requests = start(fetches, list(TILES))
        found = collect(fetches, len(TILES))
        assert list(fetches.wait(0.01)) == []
    assert set(found) == set(requests)
    for request, tile in found.items():
        assert isinstance(tile, FetchedTile)
        assert (tile.tile_id, tile.attempts) == (request.tile_id, 1)
        assert tile.sha256 in {None, sha256(tile.content).digest()}


def test_error_of_one_tile_does_not_affect_others(open_provider: OpenProvider) -> None:
    bad = TILES[3]
    with (
        open_provider(missing=frozenset([bad])) as provider,
        closing(provider.open_fetches()) as fetches,
    ):
        start(fetches, list(TILES))
        found = collect(fetches, len(TILES))
        failed = {request.tile_id: e for request, e in found.items() if isinstance(e, Exception)}
        assert list(failed) == [bad]
        error = failed[bad]
        assert isinstance(error, SatelliteProviderError)
        assert error.fault is ProviderFault.NOT_FOUND
        assert KEY not in f"{error} {error!r}"
        assert error.__context__ is None
        start(fetches, [TILES[0]])
        (again,) = collect(fetches, 1).values()
        assert isinstance(again, FetchedTile)


def test_wait_without_requests_returns_nothing(open_provider: OpenProvider) -> None:
    with open_provider() as provider, closing(provider.open_fetches()) as fetches:
        begun_s = time.monotonic()
        assert list(fetches.wait(0.02)) == []
        assert time.monotonic() - begun_s < PATIENCE_S


def test_fetches_can_be_opened_again_after_a_close(open_provider: OpenProvider) -> None:
    with open_provider() as provider:
        for _ in range(2):
            with closing(provider.open_fetches()) as fetches:
                start(fetches, list(TILES[:4]))  # not waited for
        with closing(provider.open_fetches()) as fetches:
            start(fetches, list(TILES[:2]))
            assert all(isinstance(e, FetchedTile) for e in collect(fetches, 2).values())


def test_stored_version_that_is_current_transfers_no_body() -> None:
    current = TileValidators(etag='"v1"')
    unchanged = "HTTP/1.1 304 Not Modified"
    for httpx in (False, True):
        with (
            run_raw_server(respond_with(unchanged)) as server,
            open_xyz_provider(server.url, httpx=httpx) as provider,
            closing(provider.open_fetches()) as fetches,
        ):
            fetches.start(TileRequest(TILES[0], current))
            (result,) = collect(fetches, 1).values()
            assert result == UnchangedTile(tile_id=TILES[0])
            fetches.start(TileRequest(TILES[0], None))
            (result,) = collect(fetches, 1).values()
            assert isinstance(result, SatelliteProviderError), "it was not asked for"
        conditional, plain = (request.decode().lower() for request in server.requests)
        assert 'if-none-match: "v1"\r\n' in conditional
        assert "if-none-match" not in plain


# libcurl


def test_connections_are_used_again_also_by_later_fetches() -> None:
    ports: set[int] = set()

    def script(connection: socket.socket) -> None:
        ports.add(connection.getpeername()[1])
        connection.sendall(HEAD.replace("\n", "\r\n").encode() + b"\r\n\r\n" + PICTURE)

    with run_raw_server(script) as server, open_satellite_provider(server.url) as provider:
        for _ in range(3):
            with closing(provider.open_fetches()) as fetches:
                for tile in TILES:
                    start(fetches, [tile])
                    collect(fetches, 1)
            provider.fetch_tile(TILES[0])
    assert len(ports) == 1


def test_rate_limit_delays_requests_without_blocking_the_caller() -> None:
    with (
        run_raw_server(respond_with(HEAD, PICTURE)) as server,
        open_xyz_provider(server.url, spacing=RequestSpacing(max_per_s=20.0)) as provider,
        closing(provider.open_fetches()) as fetches,
    ):
        begun_s = time.monotonic()
        start(fetches, list(TILES[:5]))
        assert time.monotonic() - begun_s < 0.1, "it does not sleep"
        collect(fetches, 5)
        assert time.monotonic() - begun_s >= 4 / 20 - 0.001


def test_close_aborts_a_request_that_is_not_answered() -> None:
    release = threading.Event()
    gone = threading.Event()

    def script(connection: socket.socket) -> None:
        release.wait(PATIENCE_S)
        if connection.recv(1) == b"":
            gone.set()

    with run_raw_server(script) as server, open_satellite_provider(server.url) as provider:
        fetches = provider.open_fetches()
        start(fetches, [TILES[0]])
        until_s = time.monotonic() + PATIENCE_S
        while not server.requests and time.monotonic() < until_s:
            assert list(fetches.wait(0.05)) == []
        begun_s = time.monotonic()
        fetches.close()
        assert time.monotonic() - begun_s < 1.0
        release.set()
        assert gone.wait(PATIENCE_S)


def test_time_between_polls_does_not_count_against_the_provider() -> None:
    with (
        run_raw_server(respond_with(HEAD, PICTURE)) as server,
        open_satellite_provider(server.url, timeout_s=0.2) as provider,
        closing(provider.open_fetches()) as fetches,
    ):
        assert list(fetches.wait(0.0)) == []
        start(fetches, [TILES[0]])
        fetches.wait(0.0)
        time.sleep(0.5)  # a slow disk, say
        (result,) = collect(fetches, 1).values()
        assert isinstance(result, FetchedTile)
