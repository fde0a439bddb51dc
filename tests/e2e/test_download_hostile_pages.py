"""How much memory ``tileferry download`` takes for pages that are made to use it."""

import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest
from support.crash_processes import SOAK_FACTOR
from support.download_operator import FLIGHT, DownloadOperator
from support.hostile_pages import PAGE_BYTES, PAGES
from support.hostile_provider import RawServer, run_raw_server

from tileferry.domain.tiles import BBox, TileCoverage

TESTS = Path(__file__).parents[1]
MEMORY_KIB_MAX = 150 * 1_000_000 // 1024
AREA = BBox(west=36.0, south=50.0, east=36.6, north=50.4)
ZOOM = 18
LINE = (
    b'{"z":18,"x":%d,"y":%d,"produced_at":"2026-10-01T12:00:00.%06dZ",'
    b'"resolution_m_per_px":0.6,"estimated_bytes":1}'
)
LINE_BYTES = len(LINE % (100_000, 10_000, 0)) + len(",")
LAST = list(PAGES) if SOAK_FACTOR > 1 else ["tiles with a field more"]
"""What comes after the valid pages; of all of them, this one took most."""


def list_tiles(number: int) -> bytes:
    """Return a valid page of as many tiles as fit; no two are alike."""
    head = b'{"next":"%d","tiles":[' % (number + 1)
    count = (PAGE_BYTES - len(head) - len("]}")) // LINE_BYTES
    coverage = TileCoverage(bbox=AREA, zoom_levels=[ZOOM])
    tiles = islice(coverage.tiles("satellite"), number * count, (number + 1) * count)
    lines = (LINE % (tile.x, tile.y, moment) for moment, tile in enumerate(tiles))
    return head + b",".join(lines) + b"]}"


@contextmanager
def serve_pages(pages: Sequence[bytes]) -> Iterator[RawServer]:
    """Serve the page whose number is the cursor."""

    def script(connection: socket.socket) -> None:
        cursor = re.search(rb"cursor=(\d+)", server.requests[-1])
        body = pages[int(cursor[1]) if cursor else 0]
        head = f"Content-Type: application/json\r\nContent-Length: {len(body)}"
        connection.sendall(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode() + body)

    with run_raw_server(script) as server:
        yield server


@pytest.mark.parametrize("last", LAST)
def test_invariants_25_30_download_takes_little_memory_for_any_page(
    tmp_path: Path, database_url: str, last: str
) -> None:
    pages = [list_tiles(0), list_tiles(1), list_tiles(2), PAGES[last][0]]
    assert {len(page) // LINE_BYTES for page in pages[:3]} == {PAGE_BYTES // LINE_BYTES}
    area = ("--bbox", str(AREA), "--zoom", str(ZOOM))
    with serve_pages(pages) as server:
        operator = DownloadOperator(tmp_path, database_url, server.url)
        done = subprocess.run(  # noqa: S603  # our own command
            [sys.executable, "-m", "support.command_memory", "download", *area, *FLIGHT, "--once"],
            env={**operator.environment, "PYTHONPATH": str(TESTS)},
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
            timeout=100,  # on a busy machine
        )
    assert len(server.requests) == len(pages), "every page was read"
    assert done.returncode == 5, done.stderr
    assert int(done.stderr.split()[-1]) < MEMORY_KIB_MAX
