"""Downloads against rclone and against the network alone.

All is real: a server on loopback, files on the disk of this repository, an embedded Postgres that
syncs as it does by default. Ours ends when every tile is durable; rclone does not sync its files,
unless told otherwise below. Peers take turns within one run, and each begins with a disk that has
nothing left to write. What rclone needs to start is taken off its time.
"""

import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from logging import getLogger
from pathlib import Path

from benchmarks.cache import CHANCE, MEMORY_KIB_MAX, MEMORY_TILES
from benchmarks.cache_site import Site, described, opened
from benchmarks.download_site import (
    BIN,
    THREADS,
    TileServer,
    area,
    downloader,
    request_for,
    serving,
    tiles_in,
)
from benchmarks.harness import Ratio, seconds_per_call
from tileferry.adapters.filesystem import FileJournalStore
from tileferry.adapters.http import (
    HttpTileProvider,
    ProviderAddress,
    PyreqwestTransport,
    new_client,
)
from tileferry.adapters.system import SystemClock
from tileferry.domain.tiles import BlobRef, DownloadOutcome, ResolutionGate, ResolutionVerdict

SMALL_TILES, SMALL_BYTES = 4_000, 20_480
LARGE_TILES, LARGE_BYTES = 300, 1024 * 1024
ROUNDS = 5
TRANSFERS = (4, 8, 16)
GATE_MICROS_MAX = 50.0
JOURNAL_MS_MAX = 5.0


def ours(site: Site, server: TileServer) -> float:
    """Download into an empty cache; return the seconds until all of it was durable."""
    with (
        site.place() as (folder, url),
        opened(folder, url) as cache,
        downloader(folder, cache, server.url) as download,
    ):
        request = request_for(server.block.bounds, folder)
        os.sync()
        begun = time.perf_counter()
        report = download.download_tiles_for_area(request)
        took_s = time.perf_counter() - begun
        assert report.outcome is DownloadOutcome.SUCCESS
        assert report.bytes_downloaded == server.block.count * server.size_bytes
    return took_s


def fetch_only(server: TileServer) -> float:
    """Fetch the same tiles by the same client in as many threads, and keep none."""
    address = ProviderAddress(url=server.url, service_api_key="bench", connections=THREADS)
    tiles = iter(tiles_in(server.block))
    next_of, lengths = threading.Lock(), list[int]()
    with new_client(address) as client:
        provider = HttpTileProvider(
            client=client, clock=SystemClock(), lane=PyreqwestTransport(address)
        )

        def work() -> None:
            while True:
                with next_of:
                    tile = next(tiles, None)
                if tile is None:
                    return
                lengths.append(len(provider.fetch_tile(tile).content))

        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        os.sync()
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took_s = time.perf_counter() - begun
    assert lengths == [server.size_bytes] * server.block.count
    return took_s


def rclone(server: TileServer, transfers: int, *, names: Path, sync: bool = False) -> float:
    """Have rclone copy the tiles that a file names into an empty folder, one file each."""
    target = server.folder / "rclone"
    copy = [
        str(BIN / "rclone"), "copy", "--http-url", server.tiles_url, ":http:", str(target),
        "--config", "", "--http-no-head", "--no-traverse", "--files-from-raw", str(names),
        "--transfers", str(transfers), "--checkers", str(transfers), "-q",
    ]  # fmt: skip
    os.sync()
    begun = time.perf_counter()
    subprocess.run(copy, check=True)  # noqa: S603  # a tool of ours, on files of ours
    if sync:
        subprocess.run(["sync"], check=True)  # noqa: S607  # wherever it is
    took_s = time.perf_counter() - begun
    copied = [path for path in target.rglob("*") if path.is_file()]
    assert len(copied) == len(names.read_text(encoding="utf-8").splitlines())
    assert all(path.stat().st_size == server.size_bytes for path in copied)
    shutil.rmtree(target, ignore_errors=True)
    return took_s


def best_transfers(server: TileServer) -> int:
    """Return how many files rclone should copy at a time."""
    times = {count: rclone(server, count, names=server.names) for count in TRANSFERS}
    return min(times, key=times.__getitem__)


def medians(contenders: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Let contenders, which time themselves, take turns, in another order each time."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name in CHANCE.sample(list(contenders), len(contenders)):
            times[name].append(contenders[name]())
    return {name: statistics.median(values) for name, values in times.items()}


def against_rclone(site: Site, server: TileServer, *, sync: bool) -> dict[str, float]:
    """Return the seconds that each contender takes for all tiles."""
    transfers = best_transfers(server)
    nothing = server.folder / "nothing.txt"
    nothing.touch()
    times = medians(
        {
            "ours": lambda: ours(site, server),
            f"rclone, {transfers} at a time": lambda: rclone(
                server, transfers, names=server.names, sync=sync
            ),
            "rclone's start": lambda: rclone(server, transfers, names=nothing),
            "fetch only": lambda: fetch_only(server),
        }
    )
    start_s = times.pop("rclone's start")
    return {
        name: seconds - start_s if name.startswith("rclone") else seconds
        for name, seconds in times.items()
    }


def rates(times: dict[str, float], count: int) -> str:
    """Write the tiles a second of each contender for the details."""
    return ", ".join(f"{name} {count / seconds:,.0f}/s" for name, seconds in times.items())


def small_tiles(site: Site) -> Iterator[Ratio]:
    """Measure tiles as most providers have them."""
    with serving(site.folder / "small", SMALL_TILES, SMALL_BYTES) as server:
        times = against_rclone(site, server, sync=False)
    (peer,) = (name for name in times if name.startswith("rclone"))
    yield Ratio(
        name="tiles of 20 KB a second: ours, durable / rclone, not synced",
        ratio=times[peer] / times["ours"],
        goal=1.0,
        at_least=True,
        detail=rates(times, SMALL_TILES),
    )
    yield Ratio(
        name="tiles of 20 KB a second: ours, durable / fetched and not kept",
        ratio=times["fetch only"] / times["ours"],
        goal=0.85,
        at_least=True,
        detail=f"{THREADS} threads each; {rates(times, SMALL_TILES)}",
    )


def large_tiles(site: Site) -> Ratio:
    """Measure tiles of which a disk gets tired."""
    with serving(site.folder / "large", LARGE_TILES, LARGE_BYTES) as server:
        times = against_rclone(site, server, sync=True)
    (peer,) = (name for name in times if name.startswith("rclone"))
    return Ratio(
        name="tiles of 1 MB a second: ours, durable / rclone, then sync",
        ratio=times[peer] / times["ours"],
        goal=1.2,
        at_least=True,
        detail=rates(times, LARGE_TILES),
    )


def complete_areas(site: Site) -> Ratio:
    """Measure a run that finds its area complete."""
    with (
        site.place() as (folder, url),
        opened(folder, url) as cache,
        downloader(folder, cache, "http://127.0.0.1:9") as download,
    ):
        journals = FileJournalStore(root=folder, logger=download.logger)
        key_hash = download.provider.key_hash

        def again(count: int) -> Callable[[int], None]:
            block = area(count)
            request = request_for(block.bounds, folder)
            journal = journals.open(request.journal_name(key_hash))
            journal.append(tiles_in(block))
            journal.finish()
            journal.close()
            for number, tile in enumerate(tiles_in(block)):  # rows alone: nobody reads a tile here
                blob = BlobRef(location=(count, number), length=1, sha256="0" * 64)
                cache.metadata.insert_metadata(described(tile, blob))
                if number % 4_096 == 0:
                    cache.metadata.flush()
            cache.metadata.flush()

            def contender(calls: int) -> None:
                for _ in range(calls):
                    report = download.download_tiles_for_area(request)
                    assert report.outcome is DownloadOutcome.IDEMPOTENT_NO_OP
                    assert report.tiles_downloaded == count

            return contender

        times = seconds_per_call({"1,000": again(1_000), "100,000": again(100_000)}, calls=10)
    return Ratio(
        name="running a complete area again: 100,000 tiles / 1,000 tiles",
        ratio=times["100,000"] / times["1,000"],
        goal=3.0,
        detail=", ".join(f"{name} {seconds * 1e6:.0f} µs" for name, seconds in times.items()),
    )


def memory(site: Site) -> Iterator[Ratio]:
    """Measure the peak memory of a process that downloads tiny tiles."""
    few, many = peak_kib(site, 1_000), peak_kib(site, MEMORY_TILES)
    detail = f"{few / 1024:.1f} and {many / 1024:.1f} MiB"
    yield Ratio(
        name=f"peak memory of a download: {MEMORY_TILES:,} tiles / 1,000 tiles",
        ratio=many / few,
        goal=1.1,
        detail=detail,
    )
    yield Ratio(
        name=f"peak memory of a download: {MEMORY_TILES:,} tiles / 150 MB",
        ratio=max(few, many) / MEMORY_KIB_MAX,
        goal=1.0,
        detail=detail,
    )


def peak_kib(site: Site, count: int) -> int:
    """Return the peak of a process of its own."""
    with site.place() as (folder, url):
        command = [sys.executable, "-m", "benchmarks.download_memory", str(folder), url, str(count)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  # our own module
    return int(done.stdout)


def resolution_gate() -> Ratio:
    """Measure what judging a tile's resolution costs."""
    gate = ResolutionGate(max_m_per_px=2.0)

    def contender(calls: int) -> None:
        for _ in range(calls):
            assert gate.judge(0.6) is ResolutionVerdict.ACCEPTED

    micros = seconds_per_call({"gate": contender}, calls=10_000)["gate"] * 1e6
    return Ratio(
        name="resolution gate: µs a tile / 50 µs",
        ratio=micros / GATE_MICROS_MAX,
        goal=1.0,
        detail=f"{micros:.2f} µs",
    )


def journal(site: Site) -> Ratio:
    """Measure the worst case of the journal: every tile by itself, durable before the next."""
    journals = FileJournalStore(root=site.folder, logger=getLogger("benchmarks"))
    with closing(journals.open("F1__0123456789abcdef.json")) as one_by_one:
        tiles = iter(tiles_in(area(1_000)))

        def contender(calls: int) -> None:
            for _ in range(calls):
                one_by_one.append([next(tiles)])
                one_by_one.flush()

        millis = seconds_per_call({"journal": contender}, calls=10)["journal"] * 1e3
    return Ratio(
        name="journal, one tile at a time: ms a tile / 5 ms",
        ratio=millis / JOURNAL_MS_MAX,
        goal=1.0,
        detail=f"{millis:.3f} ms, of which nearly all is the disk's sync",
    )


def run() -> Iterator[Ratio]:
    """All measurements of this file."""
    site = Site.prepared("download")
    yield from small_tiles(site)
    yield large_tiles(site)
    yield complete_areas(site)
    yield from memory(site)
    yield resolution_gate()
    yield journal(site)
