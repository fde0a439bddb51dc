"""Uploads over a slow link, and to a provider that is slow: a batch that moves gets through."""

import json
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import pytest
from support.hostile_provider import KEY, ConnectionScript, RawServer, run_raw_server

from tileferry.adapters.http import ProviderAddress, ResponseLimits, new_client
from tileferry.adapters.http.uploads import HttpUploadProvider
from tileferry.adapters.memory import ManualClock
from tileferry.adapters.system import SystemClock
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.tiles import (
    Batch,
    EnvelopeTile,
    PerTileStatus,
    ProviderFault,
    SendingLimits,
    SignedEnvelope,
    TileId,
)

CAPTURED = datetime(2026, 10, 20, tzinfo=UTC)
URL = "http://localhost:1"


def create_envelope(*contents: bytes) -> SignedEnvelope:
    """Return a batch as if it were signed: nobody here verifies it."""
    tiles = [
        EnvelopeTile(
            tile_id=TileId(source="cam", zoom=15, x=19_000 + number, y=11_000),
            captured_at=CAPTURED,
            resolution_m_per_px=0.6,
            sha256="0" * 64,
            size=len(content),
        )
        for number, content in enumerate(contents)
    ]
    batch = Batch(key="key", flight_id="F1", tiles=tiles)
    return SignedEnvelope(
        batch=batch,
        body_sha256="0" * 64,
        timestamp="2026-10-20T00:00:00+00:00",
        public_key=bytes(32),
        signature=bytes(64),
    )


def create_response(posted: SignedEnvelope, *, padding: int = 0) -> bytes:
    results = [
        {"tile_id": str(tile.tile_id), "status": "accepted", "reason": None}
        for tile in posted.batch.tiles
    ]
    return json.dumps({"results": results}).encode() + b" " * padding


def post_slowly(
    *, sending_s: float = 0.0, waiting_s: float = 0.0, answering_s: float = 0.1
) -> tuple[PerTileStatus, ...]:
    """Post a batch by a clock that moves while it is sent, looked at, and answered."""
    clock = ManualClock()
    sent = create_envelope(b"first", b"second")

    def contents() -> Iterator[bytes]:
        yield b"first"
        clock.advance(sending_s)
        yield b"second"

    def pieces() -> Iterator[bytes]:
        content = create_response(sent, padding=8_000)
        for start in range(0, len(content), 4_096):
            clock.advance(answering_s)
            yield content[start : start + 4_096]

    def answer(request: httpx.Request) -> httpx.Response:
        assert waiting_s < request.extensions["timeout"]["read"]
        clock.advance(waiting_s)
        headers = {"Content-Type": "application/json"}
        return httpx.Response(200, headers=headers, content=pieces())

    address = ProviderAddress(url=URL, service_api_key=KEY)
    with new_client(address, transport=httpx.MockTransport(answer)) as client:
        return HttpUploadProvider(client=client, clock=clock).post_batch(sent, contents())


@pytest.mark.parametrize("sending_s", [60.0, 3_600.0])
def test_sending_time_does_not_count_toward_the_response_deadline(sending_s: float) -> None:
    assert len(post_slowly(sending_s=sending_s)) == 2


def test_processing_time_does_not_count_toward_the_response_deadline() -> None:
    assert len(post_slowly(waiting_s=100.0)) == 2


def test_slow_upload_response_is_aborted() -> None:
    with pytest.raises(SatelliteProviderError) as failure:
        post_slowly(answering_s=30.0)
    assert failure.value.fault is ProviderFault.TOO_SLOW


def post_envelope(
    server: RawServer, sent: SignedEnvelope, contents: list[bytes], limits: ResponseLimits
) -> tuple[PerTileStatus, ...]:
    address = ProviderAddress(url=server.url, service_api_key=KEY, timeout_s=0.5)
    with new_client(address) as client:
        provider = HttpUploadProvider(
            client=client,
            clock=SystemClock(),
            limits=limits,
            sending=SendingLimits(grace_s=0.2, rate_bytes_s_min=1e9),
        )
        return provider.post_batch(sent, contents)


def send_early_hints(connection: socket.socket) -> None:
    """Send "103 Early Hints" for ever."""
    until_s = time.monotonic() + 6
    while time.monotonic() < until_s:
        connection.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n")
        time.sleep(0.1)


def receive_slowly(connection: socket.socket) -> None:
    """Take a little of the request now and then, so that no single piece of it is late."""
    until_s = time.monotonic() + 1
    while time.monotonic() < until_s and connection.recv(4_096):
        time.sleep(0.05)
    connection.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("script", "size", "said"),
    [
        (send_early_hints, 10, "there was no response"),
        (receive_slowly, 16 * 1024 * 1024, "not been sent"),
    ],
    ids=["the head", "the body"],
)
def test_invariant_24_slow_upload_is_aborted_in_every_part(
    script: ConnectionScript, size: int, said: str
) -> None:
    content = bytes(size)
    limits = ResponseLimits(deadline_s=0.3)
    begun_s = time.monotonic()
    with run_raw_server(script) as server:
        with pytest.raises(SatelliteProviderError, match=said) as failure:
            post_envelope(server, create_envelope(content), [content], limits)
        assert time.monotonic() - begun_s < 4
    # As for any lost answer: nobody knows whether it arrived, so the same is sent again.
    assert failure.value.fault is ProviderFault.TIMED_OUT
    assert KEY not in f"{failure.value!r} {failure.value}"
