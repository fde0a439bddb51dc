"""What only the transport of libcurl can get wrong."""

import socket
import time
from contextlib import closing
from typing import Any

from support.hostile_provider import PICTURE, WHOLE, run_raw_server
from support.tile_providers import open_satellite_provider

from tileferry.adapters.http.fetches import CurlTileFetches
from tileferry.application.ports.provider import FetchedTile, TileRequest
from tileferry.domain.tiles import TileId

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
