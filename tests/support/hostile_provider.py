"""A server that sends exactly the bytes it is told, and as slowly: what no framework would do."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import NoneType
from typing import Any

import httpx
import pytest
from attrs import define, field

from support.pictures import make_picture
from tileferry.adapters.http import (
    CurlTransport,
    HttpTileProvider,
    HttpxTransport,
    ProviderAddress,
    ResponseLimits,
    new_client,
)
from tileferry.adapters.http.fetches import TileTransport
from tileferry.adapters.system import SystemClock
from tileferry.application.ports.provider import TileFetches, TileRequest
from tileferry.domain.errors import InvalidValueError, SatelliteProviderError
from tileferry.domain.tiles import BBox, ListingLimits, TileId, TileValidators

ConnectionScript = Callable[[socket.socket], None]
_REQUEST_BYTES_MAX = 65_536


@define(eq=False)
class RawServer:
    """Runs a script for each connection, once it has read a request."""

    url: str
    requests: list[bytes] = field(factory=list, init=False)


@contextmanager
def run_raw_server(
    script: ConnectionScript, *, tls: ssl.SSLContext | None = None
) -> Iterator[RawServer]:
    """Serve on loopback until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = RawServer(f"{'http' if tls is None else 'https'}://localhost:{port}")
    stopping = threading.Event()
    threads: list[threading.Thread] = []

    def handle(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            plain = tls.wrap_socket(connection, server_side=True) if tls else connection
            with plain:
                plain.settimeout(10)
                while request := _read_request(plain):
                    server.requests.append(request)
                    script(plain)

    def accept() -> None:
        while not stopping.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=handle, args=(connection,), daemon=True)
            threads.append(thread)
            thread.start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server
    finally:
        stopping.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join(timeout=5)


def _read_request(connection: socket.socket) -> bytes:
    content = b""
    while b"\r\n\r\n" not in content and len(content) < _REQUEST_BYTES_MAX:
        chunk = connection.recv(4096)
        if not chunk:
            return b""
        content += chunk
    return content


def respond_with(
    head: str, body: bytes = b"", *, then: ConnectionScript | None = None
) -> ConnectionScript:
    """Return a script that sends an answer, and then does something else, or closes."""

    def script(connection: socket.socket) -> None:
        connection.sendall(head.replace("\n", "\r\n").encode("latin-1") + b"\r\n\r\n" + body)
        if then is not None:
            then(connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    return script


TILE = TileId(source="satellite", zoom=14, x=9_830, y=5_544)
AREA = BBox(west=36.0, south=50.0, east=36.1, north=50.1)
KEY = "canary-7d1e0f55"
TIGHT_LIMITS = ResponseLimits(
    tile_bytes_max=10_000, deadline_s=1.0, rate_bytes_s_min=1_000.0, grace_s=0.3
)
IMAGE = "HTTP/1.1 200 OK\nContent-Type: image/png\nContent-Length: {}"
PICTURE = make_picture("a tile")
WHOLE = IMAGE.format(len(PICTURE))
UNFRAMED = "HTTP/1.1 200 OK\nContent-Type: image/png\nConnection: close"
"""The body ends where the connection does, and nothing says where that should be."""
Call = Callable[[HttpTileProvider], Any]


def fetch_tile(provider: HttpTileProvider) -> Any:
    """Ask for a tile as a download does: by curl as one of many, by httpx in a thread of its own.

    The contract suite asks curl for a single tile.
    """
    if _chosen[-1] == "httpx":
        return provider.fetch_tile(TILE)
    with closing(provider.open_fetches()) as fetches:
        return fetch_by(fetches, TILE)


def fetch_by(fetches: TileFetches, tile: TileId, unless: TileValidators | None = None) -> Any:
    """Fetch one tile by a way to fetch many."""
    asked = TileRequest(tile, unless)
    fetches.start(asked)
    until_s = time.monotonic() + 10
    while not (outcomes := fetches.wait(0.2)):
        assert time.monotonic() < until_s, "it never ends"
    ((request, result),) = outcomes
    assert request is asked
    if isinstance(result, Exception):
        raise result
    return result


def list_page(provider: HttpTileProvider) -> Any:
    """Ask for a page of the listing."""
    return provider.fetch_listing_page(AREA, [14], None)


def call_provider(
    url: str, call: Call = fetch_tile, *, limits: ResponseLimits = TIGHT_LIMITS, **options: Any
) -> Any:
    """Make the call to the provider there, by the chosen way."""
    address = ProviderAddress(url=url, service_api_key=KEY, timeout_s=0.5, **options)
    with new_client(address) as client:
        lane = TRANSPORTS[_chosen[-1]](client, address)
        return call(
            HttpTileProvider(
                client=client,
                lane=lane,
                clock=SystemClock(),
                limits=limits,
                listing_limits=ListingLimits(page_bytes_max=20_000),
            )
        )


TRANSPORTS: dict[str, Callable[[httpx.Client, ProviderAddress], TileTransport]] = {
    "httpx": lambda client, _: HttpxTransport(client),
    "curl": lambda _, address: CurlTransport(address),
}
_chosen = ["httpx"]


@contextmanager
def use_transport(name: str) -> Iterator[None]:
    """Take that way for the calls inside the block."""
    _chosen.append(name)
    yield
    _chosen.pop()


def get_provider_error(
    script: ConnectionScript, call: Call = fetch_tile, *, limits: ResponseLimits = TIGHT_LIMITS
) -> SatelliteProviderError:
    """Return the error that a call to such a provider ends with, in time."""
    begun_s = time.monotonic()
    with run_raw_server(script) as server, pytest.raises(SatelliteProviderError) as failure:
        call_provider(server.url, call, limits=limits)
    assert time.monotonic() - begun_s < 4
    assert KEY not in repr(failure.value) + str(failure.value)
    # httpx's own error holds the request with its headers: it must not hang on to ours.
    assert isinstance(failure.value.__context__, InvalidValueError | NoneType)
    return failure.value
