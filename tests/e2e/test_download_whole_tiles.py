"""Invariant 42: what arrives only in part, or is not an image, never becomes a tile."""

import base64
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha512
from pathlib import Path

import httpx
import pytest
from support.download_env import DERKACHI, ZOOM
from support.download_operator import AREA, DOWNLOAD, DownloadOperator
from support.hostile_provider import RawServer, run_raw_server
from support.scripted_provider import KEY, TILES, ScriptedProvider, tile_content

Spoil = Callable[[bytes], bytes]
TILE_HEAD = (
    "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nConnection: close\r\n"
    "X-Resolution-M-Per-Px: 0.6\r\nX-Produced-At: 2026-10-01T00:00:00Z\r\n{}\r\n"
)


@contextmanager
def serve_until_close(
    provider: ScriptedProvider, spoil: Spoil, headers: Callable[[bytes], str]
) -> Iterator[RawServer]:
    """Serve tiles whose end is the end of the connection; the first one is spoilt."""
    servers: list[RawServer] = []

    def script(connection: socket.socket) -> None:
        path = servers[0].requests[-1].split(b" ")[1].decode()
        request = httpx.Request(
            "GET", f"http://localhost{path}", headers={"authorization": f"Bearer {KEY}"}
        )
        content = provider(request).content
        if request.url.path == TILES:
            head = (
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
                f"Content-Length: {len(content)}\r\n\r\n"
            )
            connection.sendall(head.encode() + content)
        else:
            sent = spoil(content) if content == tile_content(provider.tiles[0]) else content
            connection.sendall(TILE_HEAD.format(headers(content)).encode() + sent)
        connection.shutdown(socket.SHUT_RDWR)

    with run_raw_server(script) as server:
        servers.append(server)
        yield server


def declare_sha512(content: bytes) -> str:
    return f"Repr-Digest: sha-512=:{base64.b64encode(sha512(content).digest()).decode()}:\r\n"


@pytest.mark.parametrize(
    ("spoil", "headers"),
    [
        (lambda content: content[: len(content) // 2], declare_sha512),
        (lambda content: content[: len(content) // 2], lambda _: "Repr-Digest: md5=:AAAA:\r\n"),
        (lambda content: content[:-1], lambda _: ""),
        (lambda _: b"<html>sorry</html>", lambda _: ""),
        (lambda content: content + b"<script>alert(1)</script>", lambda _: ""),
    ],
    ids=["half, sha-512", "half, other digest", "one byte less", "a page", "a page behind it"],
)
def test_invariant_42_download_stores_only_whole_images(
    tmp_path: Path, database_url: str, spoil: Spoil, headers: Callable[[bytes], str]
) -> None:
    provider = ScriptedProvider.for_area(DERKACHI, ZOOM, 3)
    settings = {"TILEFERRY_C11_MAX_5XX_RETRIES": "0", "TILEFERRY_C11_MAX_CONCURRENT_REQUESTS": "1"}
    with serve_until_close(provider, spoil, headers) as server:
        operator = DownloadOperator(tmp_path, database_url, server.url, settings)
        ran = operator.run_in_process(*DOWNLOAD, "--once", "--json")
    assert ran.code == 3
    assert (ran.json["tiles_downloaded"], ran.json["tiles_requested"]) == (2, 3)
    verdict = operator.run_in_process("cache", "verify", *AREA, "--json")
    assert verdict.code == 3
    assert operator.read_stored_tiles(provider.tiles[1:]) == [
        tile_content(tile) for tile in provider.tiles[1:]
    ]
