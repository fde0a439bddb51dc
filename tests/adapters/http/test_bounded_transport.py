"""Floods before, around and after a response: the call ends, and nothing goes on behind it."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from support.hostile_provider import (
    KEY,
    PICTURE,
    TIGHT_LIMITS,
    TRANSPORTS,
    WHOLE,
    Call,
    ConnectionScript,
    fetch_tile,
    list_page,
    run_raw_server,
)

from tileferry.adapters.http import HttpTileProvider, ProviderAddress, new_client
from tileferry.adapters.http.bounded_transport import INTERIM_RESPONSES_MAX
from tileferry.adapters.system import SystemClock
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.tiles import ProviderFault

HINT = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
HEADER = b"X-Header: of no use\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
FLOODS = {
    "103": (b"", HINT),
    "100": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "headers": (OK, HEADER),
    "headers of a 103": (b"HTTP/1.1 103 Early Hints\r\n", HEADER),
    "one header": (OK + b"X-Header: ", b"a" * 100),
    "reason": (b"HTTP/1.1 200 ", b"a" * 100),
    "trailers": (CHUNKED + b"0\r\n", HEADER),
    "chunk extension": (CHUNKED + b"1;", b"a" * 100),
}


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    stopped = threading.Event()
    yield stopped
    stopped.set()


def flood(first: bytes, piece: bytes, stop: threading.Event) -> ConnectionScript:
    def script(connection: socket.socket) -> None:
        connection.sendall(first)
        with contextlib.suppress(OSError):
            while not stop.is_set():
                connection.sendall(piece * 100)

    return script


@pytest.mark.parametrize("name", FLOODS)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("call", [fetch_tile, list_page])
def test_flood_ends_the_call_and_leaves_no_thread(
    name: str, transport: str, call: Call, stop: threading.Event
) -> None:
    with run_raw_server(flood(*FLOODS[name], stop)) as server:
        address = ProviderAddress(url=server.url, service_api_key=KEY, timeout_s=0.5)
        with new_client(address) as client:
            lane = TRANSPORTS[transport](client, address)
            provider = HttpTileProvider(
                client=client, lane=lane, clock=SystemClock(), limits=TIGHT_LIMITS
            )
            begun_s = time.monotonic()
            with pytest.raises(SatelliteProviderError) as failure:
                call(provider)
            assert time.monotonic() - begun_s < 5
            # The client is still open, as it is during a download.
            for thread in threading.enumerate():
                if thread.name == "tileferry-call":
                    thread.join(5)
                    assert not thread.is_alive()
        stop.set()
    assert failure.value.fault is not None


@pytest.mark.parametrize("count", [1, INTERIM_RESPONSES_MAX])
def test_some_interim_responses_are_allowed_for_each_request(count: int) -> None:
    def script(connection: socket.socket) -> None:
        for _ in range(count):
            for byte in HINT[:12], HINT[12:]:  # cut where the status is
                connection.sendall(byte)
        connection.sendall(WHOLE.replace("\n", "\r\n").encode() + b"\r\n\r\n" + PICTURE)

    with (
        run_raw_server(script) as server,
        new_client(ProviderAddress(url=server.url, service_api_key=KEY)) as client,
    ):
        provider = HttpTileProvider(client=client, clock=SystemClock())
        assert [fetch_tile(provider).content for _ in range(3)] == [PICTURE] * 3
        assert len(server.requests) == 3


def test_interim_responses_are_counted_wherever_they_are_cut() -> None:
    def script(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for start in range(0, len(HINT) * 200, 7):
                connection.sendall((HINT * 200)[start : start + 7])
                time.sleep(0)

    with (
        run_raw_server(script) as server,
        new_client(ProviderAddress(url=server.url, service_api_key=KEY)) as client,
        pytest.raises(SatelliteProviderError, match="more than 64 interim responses") as failure,
    ):
        fetch_tile(HttpTileProvider(client=client, clock=SystemClock()))
    assert failure.value.fault is ProviderFault.TRUNCATED
