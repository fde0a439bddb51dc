"""``python -m benchmarks.tiny_provider count``: a provider of made-up tiles, each of 57 bytes.

Prints its port, and serves until its input ends. Nothing is stored, so a million tiles take no
space, and a tile takes a fraction of what the reference provider needs for one. Every hundredth
tile is another one for each process: so a refresh finds some that have changed.
"""

import asyncio
import json
import os
import re
import sys
from binascii import crc32
from datetime import UTC, datetime
from typing import cast
from urllib.parse import parse_qs, urlsplit

import uvloop

from benchmarks.download_site import area, line_of, picture_of
from tileferry.domain.tiles import TileId

PAGE_TILES = 1_000
CHANGED_EVERY = 100
_TILE = re.compile(rb"GET /api/satellite/tiles/(\d+)/(\d+)/(\d+) ")
_ETAG = re.compile(rb"\r\nif-none-match: *(\S+)", re.IGNORECASE)
_END = b"\r\n\r\n"
_PRODUCED_AT = datetime.now(UTC).isoformat(timespec="seconds").encode()


class TinyProvider(asyncio.Protocol):
    """One connection."""

    def __init__(self, count: int) -> None:
        self._block = area(count)
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is of another class

    def data_received(self, data: bytes) -> None:
        """Answer every whole request."""
        *requests, self._rest = (self._rest + data).split(_END)
        self._transport.write(b"".join(map(self._answer, requests)))

    def _answer(self, request: bytes) -> bytes:
        tile = _TILE.match(request)
        if tile is None:
            return _format_answer(b"application/json", self._build_page(request))
        name = b"/".join(tile.groups())
        if int(tile[3]) % CHANGED_EVERY == 0:
            name += b" %d" % os.getpid()
        etag = b'"%08x"' % crc32(name)
        known = _ETAG.search(request)
        if known is not None and known[1] == etag:
            return b"HTTP/1.1 304 Not Modified\r\nETag: %s\r\n\r\n" % etag
        return _format_answer(b"image/png", picture_of(name), etag)

    def _build_page(self, request: bytes) -> bytes:
        query = parse_qs(urlsplit(request.split()[1].decode()).query)
        block = self._block
        rows = block.y_max - block.y_min + 1
        start = int(query.get("cursor", ["0"])[0])
        end = min(start + PAGE_TILES, block.count)
        tiles = (
            TileId(
                source="satellite",
                zoom=block.zoom,
                x=block.x_min + number // rows,
                y=block.y_min + number % rows,
            )
            for number in range(start, end)
        )
        cursor = None if end == block.count else str(end)
        return json.dumps({"tiles": [line_of(tile, 64) for tile in tiles], "next": cursor}).encode()


def _format_answer(kind: bytes, body: bytes, etag: bytes = b'""') -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\nETag: %s\r\n"
        b"X-Resolution-M-Per-Px: 0.6\r\nX-Produced-At: %s\r\n\r\n%s"
        % (kind, len(body), etag, _PRODUCED_AT, body)
    )


async def serve(count: int) -> None:
    """Serve until nobody holds our input any more."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: TinyProvider(count), "127.0.0.1", 0)
    async with server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
