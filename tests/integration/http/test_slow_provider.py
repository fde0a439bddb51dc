"""A provider that is slow in any part of its answer: every call ends in time."""

import socket
import time

import pytest
from attrs import evolve
from support.hostile_provider import IMAGE, TIGHT, fetch, list_page, refused
from support.raw_server import Script, answering

from tileferry.domain.tiles import ProviderFault

pytestmark = pytest.mark.usefixtures("lane")


# Invariant 24


def test_invariant_24_a_trickle_is_given_up() -> None:
    def trickle(connection: socket.socket) -> None:
        for _ in range(40):
            connection.sendall(b"x")
            time.sleep(0.05)

    error = refused(answering(IMAGE.format(5_000), then=trickle))
    assert error.fault is ProviderFault.TOO_SLOW


def test_invariant_24_a_total_deadline_holds_however_steady_the_rate() -> None:
    def steady(connection: socket.socket) -> None:
        for _ in range(40):
            connection.sendall(b"x" * 200)
            time.sleep(0.05)

    error = refused(answering(IMAGE.format(9_000), then=steady))
    assert error.fault is ProviderFault.TOO_SLOW


@pytest.mark.parametrize(
    "script",
    [
        answering(IMAGE.format(5_000), b"abc", then=lambda _: time.sleep(1.0)),
        lambda _connection: time.sleep(1.0),
    ],
)
def test_invariant_24_a_stall_is_given_up(script: Script) -> None:
    assert refused(script).fault is ProviderFault.TIMED_OUT


def dripping(head: bytes, *, drop: bytes = b"a") -> Script:
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
        dripping(b"HTTP/1.1 200 OK\r\nX-Slow: "),
        dripping(b"", drop=b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"),
        dripping(b"HTTP/1.1 503 Busy\r\nContent-Length: 9000\r\n\r\n"),
        dripping(
            b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n5;"
        ),
    ],
    ids=["headers", "early hints", "error", "chunk extension"],
)
def test_invariant_24_no_answer_takes_for_ever_whatever_part_of_it_is_slow(
    script: Script, lane: str
) -> None:
    # Nothing is to come in time here, so that the time may be short.
    limits = evolve(TIGHT, deadline_s=0.3)
    refused(script, list_page if lane == "httpx" else fetch, limits=limits)
