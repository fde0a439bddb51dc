"""What only the transport of libcurl can get wrong."""

import socket
import time
from contextlib import closing
from typing import Any

import pytest
from support.hostile_provider import PICTURE, TILE, WHOLE, fetch_by, respond_with, run_raw_server
from support.tile_providers import open_satellite_provider

from tileferry.adapters.http import ResponseLimits
from tileferry.adapters.http.fetches import CurlTileFetches
from tileferry.application.ports.provider import FetchedTile, TileRequest
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.tiles import ProviderFault, TileId

TIMEOUT_S = 0.1
ANSWER = WHOLE.replace("\n", "\r\n").encode() + b"\r\n\r\n" + PICTURE


class SlowMulti:
    """Needs long for each socket, as on a busy machine."""

    def __init__(self, multi: Any) -> None:
        self._multi = multi

    def socket_action(self, descriptor: int, events: int) -> Any:
        found = self._multi.socket_action(descriptor, events)
        if descriptor >= 0:
            time.sleep(2 * TIMEOUT_S)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._multi, name)


def test_answer_that_arrives_while_another_is_handled_is_in_time() -> None:
    begun: list[float] = []

    def script(connection: socket.socket) -> None:
        begun.append(time.monotonic())
        time.sleep(TIMEOUT_S / 4 * len(begun))  # so that they arrive one after the other
        connection.sendall(ANSWER)

    tiles = [TileId(source="satellite", zoom=14, x=9_830, y=y) for y in (5_544, 5_545, 5_546)]
    with (
        run_raw_server(script) as server,
        open_satellite_provider(server.url, timeout_s=TIMEOUT_S) as provider,
        closing(provider.open_fetches()) as fetches,
    ):
        assert isinstance(fetches, CurlTileFetches)
        transfers = fetches._transfers
        transfers._multi = SlowMulti(transfers._multi)
        for tile in tiles:
            fetches.start(TileRequest(tile, None))
        found: list[object] = []
        until_s = time.monotonic() + 20
        while len(found) < len(tiles) and time.monotonic() < until_s:
            found += [result for _, result in fetches.wait(0.1)]
    assert [type(result) for result in found] == [FetchedTile] * len(tiles), found


def hang(connection: socket.socket) -> None:
    """Answer nothing."""
    connection.recv(1)


@pytest.mark.parametrize("pause_s", [0, 60])
def test_silent_response_ends_at_the_total_deadline(pause_s: int) -> None:
    limits = ResponseLimits(deadline_s=TIMEOUT_S)
    with (
        run_raw_server(hang) as server,
        open_satellite_provider(server.url, timeout_s=60.0, limits=limits) as provider,
        closing(provider.open_fetches()) as fetches,
    ):
        assert isinstance(fetches, CurlTileFetches)
        assert list(fetches.wait(0.0)) == []
        fetches._transfers._looked_s -= pause_s  # since the requests before this one
        with pytest.raises(SatelliteProviderError) as failure:
            fetch_by(fetches, TILE)
    assert failure.value.fault is ProviderFault.TOO_SLOW


@pytest.mark.parametrize(
    "head",
    [
        WHOLE.replace("\n", "\nHTTP/evil: x\n", 1),
        WHOLE.replace("\n", "\nHTTP/1.1 404 : x\n", 1),
        WHOLE.replace("200 OK", "200abc", 1),
    ],
)
def test_unusual_head_that_libcurl_accepts_is_read_as_it_does(head: str) -> None:
    with (
        run_raw_server(respond_with(head, PICTURE)) as server,
        open_satellite_provider(server.url) as provider,
        closing(provider.open_fetches()) as fetches,
    ):
        assert fetch_by(fetches, TILE).content == PICTURE


@pytest.mark.parametrize("head", ["HTTP/1.1 200 OK\nContent-Type: text/html", "HTTP/1.1 502 Bad"])
def test_unneeded_body_is_not_read_to_its_end(head: str) -> None:
    sent: list[int] = []

    def script(connection: socket.socket) -> None:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        for _ in range(300):
            connection.sendall(b"x" * 4_096)
            sent.append(4_096)
            time.sleep(0.005)

    with (
        run_raw_server(script) as server,
        open_satellite_provider(server.url, limits=ResponseLimits()) as provider,
        closing(provider.open_fetches()) as fetches,
    ):
        with pytest.raises(SatelliteProviderError):
            fetch_by(fetches, TILE)
        assert len(sent) < 300
