"""Downloads against rclone and against the network alone.

All is real: nginx on loopback, the same for all, files on the disk of this repository, an embedded
Postgres that syncs as it does by default. Ours ends when every tile is durable; rclone does not
sync its files, unless told otherwise below. It copies the listed folder, with the settings that are
best for it here. Contenders take turns within one run, and each begins with a disk that has nothing
left to write. Whole commands are compared, start-up included, and the inner loops.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice, product
from logging import getLogger

from attrs import frozen

from benchmarks.cache_site import Site, described, opened
from benchmarks.download_site import (
    BIN,
    THREADS,
    ZOOM,
    TileServer,
    area,
    downloader,
    request_for,
    serving,
    tiles_in,
)
from benchmarks.harness import Ratio, seconds_per_call
from benchmarks.processor_time import (
    COMMAND,
    Spent,
    compare,
    measure,
    measure_command,
    rates,
)
from tileferry.adapters.filesystem import FileJournalStore
from tileferry.adapters.http import (
    CurlTransport,
    HttpTileProvider,
    ProviderAddress,
    new_client,
)
from tileferry.adapters.system import SystemClock
from tileferry.application.ports.provider import FetchedTile, TileRequest
from tileferry.domain.tiles import DownloadOutcome, ResolutionGate, ResolutionVerdict

SMALL_TILES, SMALL_BYTES = 4_000, 20_480
LARGE_BYTES = 1024 * 1024
COMMAND_TILES = {SMALL_BYTES: 16_000, LARGE_BYTES: 2_000}
"""How many tiles a whole command copies."""
GATE_MICROS_MAX = 50.0
JOURNAL_MS_MAX = 5.0
TILE_S = 170e-6


def ours(site: Site, server: TileServer) -> Spent:
    """Download into an empty cache, until all of it is durable."""
    with (
        site.place() as (folder, url),
        opened(folder, url) as cache,
        downloader(folder, cache, server.url) as download,
    ):
        request = request_for(server.block.bounds, folder)
        reports = []
        os.sync()
        spent = measure(
            lambda: reports.append(download.download_tiles_for_area(request)), [site.server_pid]
        )
        (report,) = reports
        assert report.outcome is DownloadOutcome.SUCCESS
        assert report.bytes_downloaded == server.block.count * server.file_bytes
    return spent


def fetch_only(server: TileServer) -> Spent:
    """Fetch the same tiles by the same client, as many at a time, and keep none."""
    address = ProviderAddress(url=server.url, service_api_key="bench", connections=THREADS)
    requests = [TileRequest(tile, None) for tile in tiles_in(server.block)]
    lengths: list[int] = []
    lane = CurlTransport(address)
    with new_client(address) as client, closing(lane):
        provider = HttpTileProvider(client=client, clock=SystemClock(), lane=lane)

        def fetch() -> None:
            upcoming = iter(requests)
            with closing(provider.open_fetches()) as fetches:
                for request in islice(upcoming, THREADS):
                    fetches.start(request)
                while len(lengths) < len(requests):
                    for _, fetched in fetches.wait(1.0):
                        assert isinstance(fetched, FetchedTile), fetched
                        lengths.append(len(fetched.content))
                        for request in islice(upcoming, 1):
                            fetches.start(request)

        os.sync()
        spent = measure(fetch)
    assert lengths == [server.file_bytes] * server.block.count
    return spent


def our_command(site: Site, server: TileServer) -> Spent:
    """Run ``tileferry download`` into an empty cache."""
    with site.place() as (folder, url):
        environment = {
            **os.environ,
            "TILEFERRY_DATABASE_URL": url,
            "TILEFERRY_C11_CACHE_ROOT": str(folder / "cache"),
            "TILEFERRY_C11_SATELLITE_PROVIDER_URL": server.url,
            "TILEFERRY_C11_SERVICE_API_KEY": "bench",
            "TILEFERRY_LOG_FILE": str(folder / "log"),
        }
        bounds = server.block.bounds
        box = f"{bounds.west},{bounds.south},{bounds.east},{bounds.north}"
        command = [
            *COMMAND, "download", "--bbox", box, "--zoom", str(ZOOM), "--flight", "F1",
            "--sector", "stable_rear", "--json",
        ]  # fmt: skip
        os.sync()
        return measure_command(command, environment, servers=[site.server_pid])


@frozen
class Rclone:
    """``rclone copy`` of a listed folder, with some settings."""

    transfers: int
    no_head: bool

    def __str__(self) -> str:
        return f"rclone, {self.transfers} at a time{', no HEAD' if self.no_head else ''}"

    def copy(self, server: TileServer, *, sync: bool = False) -> Spent:
        """Copy all tiles into an empty folder, one file each."""
        target = server.folder.parent / "rclone"
        command = [
            str(BIN / "rclone"), "copy", "--http-url", server.tiles_url, ":http:", str(target),
            "--config", "", "--transfers", str(self.transfers), "--checkers", str(self.transfers),
            *(["--http-no-head"] if self.no_head else []), "-q",
        ]  # fmt: skip
        if sync:
            command = ["sh", "-c", '"$@" && sync', "sh", *command]
        os.sync()
        spent = measure_command(command)
        copied = [path for path in target.rglob("*") if path.is_file()]
        assert len(copied) == server.block.count
        assert all(path.stat().st_size == server.file_bytes for path in copied)
        shutil.rmtree(target)
        return spent


def find_best_rclone(server: TileServer) -> Rclone:
    """Return the settings with which rclone is fastest here."""
    candidates = [Rclone(*settings) for settings in product((8, 16, 32), (True, False))]
    return min(candidates, key=lambda one: one.copy(server).wall_s)


def inner_loops(site: Site) -> Iterator[Ratio]:
    """Measure the download itself against fetching alone."""
    with serving(site.folder / "small", SMALL_TILES, SMALL_BYTES) as server:
        spent = compare(
            {"ours": partial(ours, site, server), "fetch only": partial(fetch_only, server)}
        )
    detail = f"{THREADS} threads each; {rates(spent, SMALL_TILES)} (own + Postgres)"
    mine, bare = spent["ours"], spent["fetch only"]
    yield Ratio(
        name="tile of 20 KB: processor time of ours and Postgres / 170 µs",
        ratio=mine.processor_s / SMALL_TILES / TILE_S,
        goal=1.0,
        detail=detail,
    )
    yield Ratio(
        name="tiles of 20 KB, processor time: fetched and not kept / ours, durable",
        ratio=bare.processor_s / mine.processor_s,
        goal=0.85,
        at_least=True,
    )
    yield Ratio(
        name="tiles of 20 KB a second: ours, durable / fetched and not kept",
        ratio=bare.wall_s / mine.wall_s,
        goal=0.8,
        at_least=True,
    )


def whole_commands(site: Site) -> Iterator[Ratio]:
    """Measure whole commands, start-up included, against rclone."""
    for size_bytes, name, sync, goal in (
        (SMALL_BYTES, "20 KB", False, 1.5),
        (LARGE_BYTES, "1 MB", True, 1.0),
    ):
        count = COMMAND_TILES[size_bytes]
        with serving(site.folder / "many", count, size_bytes) as server:
            peer = find_best_rclone(server)
            our_command(site, server)  # compiles the bytecode
            spent = compare(
                {
                    "ours": partial(our_command, site, server),
                    str(peer): partial(peer.copy, server, sync=sync),
                },
                rounds=3,
            )
        mine, other = spent["ours"], spent[str(peer)]
        yield Ratio(
            name=f"whole command, {count:,} tiles of {name} a second: ours / rclone, "
            f"{'then sync' if sync else 'not synced'}",
            ratio=other.wall_s / mine.wall_s,
            goal=goal,
            at_least=True,
            detail=rates(spent, count),
        )
        if size_bytes == LARGE_BYTES:
            yield Ratio(
                name="own processor time per MB: ours / rclone",
                ratio=mine.own_s / other.own_s,
                goal=1.2,
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
            for number, tile in enumerate(tiles_in(block), 1):
                cache.metadata.insert_metadata(described(tile, cache.tiles.write_tile(tile, b"1")))
                if number % 1_000 == 0:
                    cache.tiles.flush()
                    cache.metadata.flush()
            cache.tiles.flush()
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
    yield from inner_loops(site)
    yield from whole_commands(site)
    yield complete_areas(site)
    yield resolution_gate()
    yield journal(site)
