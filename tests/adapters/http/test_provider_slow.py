"""A provider that is slow in any part of its answer: every call ends in time."""

import socket
import time

import pytest
from attrs import evolve
from support.hostile_provider import (
    IMAGE,
    TIGHT_LIMITS,
    ConnectionScript,
    fetch_tile,
    get_provider_error,
    list_page,
    respond_with,
)

from tileferry.domain.tiles import ProviderFault

pytestmark = pytest.mark.usefixtures("lane")


# Invariant 24


def test_invariant_24_slow_trickle_is_aborted() -> None:
    def trickle(connection: socket.socket) -> None:
        for _ in range(40):
            connection.sendall(b"x")
            time.sleep(0.05)

    error = get_provider_error(respond_with(IMAGE.format(5_000), then=trickle))
    assert error.fault is ProviderFault.TOO_SLOW


def test_invariant_24_total_deadline_applies_at_a_steady_rate() -> None:
    def steady(connection: socket.socket) -> None:
        for _ in range(40):
            connection.sendall(b"x" * 200)
            time.sleep(0.05)

    error = get_provider_error(respond_with(IMAGE.format(9_000), then=steady))
    assert error.fault is ProviderFault.TOO_SLOW


@pytest.mark.parametrize(
    "script",
    [
        respond_with(IMAGE.format(5_000), b"abc", then=lambda _: time.sleep(1.0)),
        lambda _connection: time.sleep(1.0),
    ],
)
def test_invariant_24_stalled_response_times_out(script: ConnectionScript) -> None:
    assert get_provider_error(script).fault is ProviderFault.TIMED_OUT


def drip(head: bytes, *, drop: bytes = b"a") -> ConnectionScript:
    """Return a script that sends a beginning, and then a little for ever."""

    def script(connection: socket.socket) -> None:
        connection.sendall(head)
        until_s = time.monotonic() + 6
        while time.monotonic() < until_s:
            connection.sendall(drop)
            time.sleep(0.1)

    return script


@pytest.mark.parametrize(
    "script",
    [
        drip(b"HTTP/1.1 200 OK\r\nX-Slow: "),
        drip(b"", drop=b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"),
        drip(b"HTTP/1.1 503 Busy\r\nContent-Length: 9000\r\n\r\n"),
        drip(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n5;"),
    ],
    ids=["headers", "early hints", "error", "chunk extension"],
)
def test_invariant_24_slow_response_is_aborted_in_every_part(
    script: ConnectionScript, lane: str
) -> None:
    # Nothing is to come in time here, so that the time may be short.
    limits = evolve(TIGHT_LIMITS, deadline_s=0.3)
    get_provider_error(script, list_page if "httpx" in lane else fetch_tile, limits=limits)
