"""Tile servers that we did not write, on loopback: nginx, tileserver-gl, MapProxy, TiTiler.

``make real-servers`` installs the last three below ``build/real-servers``, for these tests only.
"""

import getpass
import io
import json
import shutil
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from textwrap import dedent

import httpx
import pytest
from PIL import Image

from tileferry.domain.tiles import BBox, TileCoverage, TileId

AREA = BBox(west=36.0, south=50.0, east=36.4, north=50.2)
ZOOMS = [10, 11]
TILES = list(TileCoverage(bbox=AREA, zoom_levels=ZOOMS).tiles("any"))
_INSTALLED = Path(__file__).parents[2] / "build/real-servers"
_PYTHON = _INSTALLED / "bin/python"
_TILESERVER = _INSTALLED / "node_modules/.bin/tileserver-gl"
_START_S = 60.0


def require_installed(program: Path) -> None:
    if not program.exists():
        pytest.skip("not run: `make real-servers` installs these servers and runs their tests")


def draw_tile(tile: TileId, side_px: int = 256) -> bytes:
    """Return an image that no other tile has."""
    colour = (tile.x % 256, tile.y % 256, tile.zoom)
    stream = io.BytesIO()
    Image.new("RGB", (side_px, side_px), colour).save(stream, "PNG")
    return stream.getvalue()


def write_tree(root: Path, *, tms: bool = False) -> None:
    """Write the tiles of the area as files."""
    for tile in TILES:
        row = (1 << tile.zoom) - 1 - tile.y if tms else tile.y
        file = root / f"{tile.zoom}/{tile.x}/{row}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(draw_tile(tile))


@contextmanager
def _run_server(command: list[str], folder: Path, probe: str) -> Iterator[None]:
    """Run a server until the block ends; it begins when the server answers."""
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)  # noqa: S603  # our own command
        try:
            deadline_s = time.monotonic() + _START_S
            while not _answers(probe):
                late = time.monotonic() > deadline_s or process.poll() is not None
                assert not late, log.read_text("utf-8", "replace")
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait(timeout=20)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, timeout=5).is_success
    except httpx.HTTPError:
        return False


def _pick_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port: int = free.getsockname()[1]
        return port


@contextmanager
def run_nginx(folder: Path, locations: str) -> Iterator[str]:
    """Serve a folder's ``tiles`` with nginx, and return the address."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("not run: nginx is not installed")
    port = _pick_port()
    temporary = " ".join(
        f"{name}_temp_path {folder}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"user {getpass.getuser()}; daemon off; worker_processes 1; pid {folder}/pid; "
        f"error_log {folder}/errors; events {{}}"
        f"http {{ access_log off; {temporary} default_type application/octet-stream; "
        f"server {{ listen 127.0.0.1:{port}; root {folder}/tiles; "
        f"location = /up {{ return 204; }} {locations} }} }}"
    )
    command = [program, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
    url = f"http://127.0.0.1:{port}"
    with _run_server(command, folder, f"{url}/up"):
        yield url


@contextmanager
def run_tileserver_gl(folder: Path) -> Iterator[str]:
    """Serve the area from an MBTiles file with tileserver-gl, and return the address."""
    require_installed(_TILESERVER)
    with closing(sqlite3.connect(folder / "imagery.mbtiles")) as database, database:
        database.execute("CREATE TABLE metadata (name TEXT, value TEXT)")
        database.execute(
            "CREATE TABLE tiles (zoom_level INT, tile_column INT, tile_row INT, tile_data BLOB)"
        )
        about = {"name": "imagery", "format": "png", "minzoom": "10", "maxzoom": "11"}
        about["bounds"] = str(AREA)
        database.executemany("INSERT INTO metadata VALUES (?, ?)", about.items())
        database.executemany(
            "INSERT INTO tiles VALUES (?, ?, ?, ?)",
            [(t.zoom, t.x, (1 << t.zoom) - 1 - t.y, draw_tile(t)) for t in TILES],
        )
    for name in ("fonts", "styles"):
        (folder / name).mkdir()
    paths = {"root": str(folder), "fonts": "fonts", "styles": "styles", "mbtiles": ""}
    data = {"imagery": {"mbtiles": "imagery.mbtiles"}}
    config = folder / "config.json"
    config.write_text(json.dumps({"options": {"paths": paths}, "styles": {}, "data": data}))
    port = _pick_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        str(_TILESERVER), "--config", str(config), "--port", str(port), "--bind", "127.0.0.1"
    ]  # fmt: skip
    with _run_server(command, folder, f"{url}/data/imagery.json"):
        yield url


@contextmanager
def run_mapproxy(folder: Path, origin: str) -> Iterator[str]:
    """Serve the tiles of another server with MapProxy as a WMTS, and return the address."""
    require_installed(_PYTHON)
    port = _pick_port()
    config = folder / "mapproxy.yaml"
    config.write_text(
        dedent(
            f"""
            services: {{wmts: {{restful: true, kvp: true}}}}
            sources:
              tree: {{type: tile, url: '{origin}/%(z)s/%(x)s/%(y)s.png', grid: world}}
            grids: {{world: {{base: GLOBAL_WEBMERCATOR}}}}
            caches:
              stored:
                {{grids: [world], sources: [tree], format: image/png, disable_storage: true}}
            layers:
              - {{name: imagery, title: Imagery, sources: [stored]}}
              - {{name: other, title: Other, sources: [stored]}}
            globals: {{cache: {{base_dir: {folder}/cache, meta_size: [1, 1], meta_buffer: 0}}}}
            """
        )
    )
    program = (
        "from mapproxy.wsgiapp import make_wsgi_app; from waitress import serve;"
        f"serve(make_wsgi_app({str(config)!r}), host='127.0.0.1', port={port})"
    )
    url = f"http://127.0.0.1:{port}"
    probe = f"{url}/wmts/1.0.0/WMTSCapabilities.xml"
    with _run_server([str(_PYTHON), "-c", program], folder, probe):
        yield url


@contextmanager
def run_titiler(folder: Path) -> Iterator[str]:
    """Serve a GeoTIFF with TiTiler, and return the address of its TileJSON."""
    require_installed(_PYTHON)
    program = dedent(
        """
        import numpy, rasterio
        from rasterio.transform import from_bounds
        pixels = numpy.random.default_rng(1).integers(0, 255, (3, 512, 512), dtype="uint8")
        place = from_bounds(4006500, 6446000, 4052500, 6481500, 512, 512)
        options = dict(driver="GTiff", height=512, width=512, count=3, dtype="uint8", tiled=True)
        with rasterio.open("image.tif", "w", crs="EPSG:3857", transform=place, **options) as file:
            file.write(pixels)
        """
    )
    subprocess.run([_PYTHON, "-c", program], cwd=folder, check=True)  # noqa: S603  # our own command
    port = _pick_port()
    url = f"http://127.0.0.1:{port}/cog/WebMercatorQuad/tilejson.json?url={folder}/image.tif"
    command = [
        str(_PYTHON), "-m", "uvicorn", "titiler.application.main:app",
        "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    with _run_server(command, folder, url):
        yield url
