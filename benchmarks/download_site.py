"""Where benchmarks of downloads take place: tiles on this disk, served by nginx on loopback."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from binascii import crc32
from collections.abc import Container, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from logging import getLogger
from pathlib import Path

import httpx
from attrs import evolve, frozen

from benchmarks.cache_site import Cache
from tileferry.adapters.filesystem import FileCacheLock
from tileferry.adapters.http import (
    CurlTransport,
    HttpTileDownloader,
    HttpTileProvider,
    ProviderAddress,
    new_client,
)
from tileferry.adapters.http.fetches import TileTransport
from tileferry.adapters.http.provider import TILES_PATH
from tileferry.adapters.system import SystemClock
from tileferry.domain.tiles import (
    BBox,
    DownloadRequest,
    EvictionResult,
    SectorClass,
    TileId,
    TileRange,
)

ZOOM = 18
THREADS = 8
"""As many as the product has by default."""
BIN = Path(sys.executable).parent
_ROWS = 1_000
_X, _Y = 150_000, 90_000
_START_S_MAX = 10.0
_NGINX_CONF = """
{user}
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000;
    default_type image/png;
    client_body_temp_path {folder}/tmp;
    proxy_temp_path {folder}/tmp;
    fastcgi_temp_path {folder}/tmp;
    uwsgi_temp_path {folder}/tmp;
    scgi_temp_path {folder}/tmp;
    server {{
        listen 127.0.0.1:{port};
        root {folder};
        location = {tiles_path} {{
            default_type application/json;
            alias {folder}/listing.json;
        }}
        location / {{ autoindex on; }}
    }}
}}
"""


def area(count: int) -> TileRange:
    """Return a block of so many tiles, in columns of at most a thousand."""
    rows = min(count, _ROWS)
    columns, rest = divmod(count, rows)
    assert rest == 0, f"{count} tiles make no whole columns of {rows}"
    return TileRange(zoom=ZOOM, x_min=_X, x_max=_X + columns - 1, y_min=_Y, y_max=_Y + rows - 1)


def tiles_in(block: TileRange) -> list[TileId]:
    """Return the tiles of a block, under the name that the provider's tiles have."""
    return list(block.tiles("satellite"))


def line_of(tile: TileId, size_bytes: int) -> dict[str, object]:
    """Return a tile's line in a listing."""
    return {
        "z": tile.zoom,
        "x": tile.x,
        "y": tile.y,
        "produced_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "resolution_m_per_px": 0.6,
        "estimated_bytes": size_bytes,
    }


class _RoomEnough:
    """A budget that is never used up: what it costs to keep one is measured elsewhere."""

    def reserve_headroom(
        self,
        estimated_bytes: int,
        *,
        keep: Container[TileId] = (),  # noqa: ARG002  # all is kept
    ) -> EvictionResult:
        return EvictionResult(requested_bytes=estimated_bytes, available_bytes=10**15)

    def release_headroom(self) -> None:
        """Nothing is held."""


@contextmanager
def downloader(
    folder: Path,
    cache: Cache,
    url: str,
    *,
    transport: httpx.BaseTransport | None = None,
    lane: TileTransport | None = None,
) -> Iterator[HttpTileDownloader]:
    """Put the downloader together as the product does, with connections of its own.

    Listings go through ``transport`` and tiles through ``lane``, where there is to be no network.
    """
    address = ProviderAddress(url=url, service_api_key="bench", connections=THREADS)
    clock = SystemClock()
    lock = FileCacheLock(root=folder)
    lock.acquire()
    try:
        with new_client(address, transport=transport) as client:
            yield HttpTileDownloader(
                http_client=client,
                provider=HttpTileProvider(
                    client=client, clock=clock, lane=lane or CurlTransport(address)
                ),
                tile_store=cache.tiles,
                tile_metadata_store=cache.metadata,
                budget_enforcer=_RoomEnough(),
                logger=getLogger("benchmarks"),
                clock=clock,
                requests_max=THREADS,
                background=cache.background,
            )
    finally:
        lock.release()


def request_for(bbox: BBox, folder: Path) -> DownloadRequest:
    """Ask for a box, into a cache."""
    return DownloadRequest(
        flight_id="F1",
        bbox=bbox,
        zoom_levels=(ZOOM,),
        sector_class=SectorClass.STABLE_REAR,
        cache_root=folder,
    )


@frozen(kw_only=True)
class TileServer:
    """A running nginx, and the tiles that it has."""

    url: str
    folder: Path
    block: TileRange
    size_bytes: int
    pid: int = 0

    @property
    def file_bytes(self) -> int:
        """The size of a tile's file: its pixels and what makes them an image."""
        return len(picture_of(bytes(self.size_bytes)))

    @property
    def tiles_url(self) -> str:
        """Where the tiles are."""
        return f"{self.url}{TILES_PATH}/"


@contextmanager
def serving(folder: Path, count: int, size_bytes: int) -> Iterator[TileServer]:
    """Serve random tiles from a folder; both are gone when the block ends."""
    nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if nginx is None:
        raise SystemExit("the benchmark of downloads needs nginx; install Debian's package nginx")
    port = _free_port()
    server = TileServer(
        url=f"http://127.0.0.1:{port}", folder=folder, block=area(count), size_bytes=size_bytes
    )
    _write_tiles(server)
    config = folder / "nginx.conf"
    config.write_text(
        _NGINX_CONF.format(
            user="user root;" if os.geteuid() == 0 else "",
            port=port,
            folder=folder,
            tiles_path=TILES_PATH,
        ),
        encoding="utf-8",
    )
    command = [nginx, "-c", str(config), "-e", str(folder / "nginx.log")]
    with subprocess.Popen(command) as process:  # noqa: S603  # ours
        try:
            _await_start(server.url, process)
            yield evolve(server, pid=process.pid)
        finally:
            process.terminate()
            process.wait()
            shutil.rmtree(folder)


def picture_of(content: bytes) -> bytes:
    """Return a PNG image with these bytes as its pixels."""
    chunks = ((b"IHDR", b"\0\0\0\1\0\0\0\1\x08\0\0\0\0"), (b"IDAT", content), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(body).to_bytes(4) + name + body + crc32(name + body).to_bytes(4)
        for name, body in chunks
    )


def _write_tiles(server: TileServer) -> None:
    tiles = tiles_in(server.block)
    root = server.folder / TILES_PATH.lstrip("/")
    for tile in tiles:
        path = root / f"{tile.zoom}/{tile.x}/{tile.y}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture_of(os.urandom(server.size_bytes)))
    lines = [line_of(tile, server.size_bytes) for tile in tiles]
    listing = json.dumps({"tiles": lines, "next": None})
    (server.folder / "listing.json").write_text(listing, encoding="utf-8")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _await_start(url: str, process: "subprocess.Popen[bytes]") -> None:
    ends_s = time.monotonic() + _START_S_MAX
    while time.monotonic() < ends_s and process.poll() is None:
        try:
            httpx.get(f"{url}{TILES_PATH}", trust_env=False).raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"nginx does not serve {url}; see nginx.log beside its tiles")
