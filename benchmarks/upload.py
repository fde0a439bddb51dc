"""Uploads against a loop that does nothing but POST, and what the retries around them cost.

All is real: captured tiles in segment files on the disk of this repository, an embedded Postgres
that syncs as it does by default, a connection over loopback to a sink in a process of its own. The
bare loop has its batches signed and in memory, marks nothing and remembers nothing; ours begins
with a cache that was just opened, and ends when every acknowledgement is durable.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from logging import NullHandler, getLogger
from pathlib import Path

from attrs import define, field

from benchmarks.cache import MEMORY_KIB_MAX
from benchmarks.cache_site import Site, fill_rows, opened, tile_at
from benchmarks.harness import Ratio, seconds_per_call
from benchmarks.processor_time import Spent, compare, measure, rates
from benchmarks.upload_site import FLIGHT, REQUEST, capture, make_pending, sinking, uploading
from tileferry.adapters.memory import MemoryEnvelopeStore, MemoryFdrClient, MemoryTileMetadataStore
from tileferry.adapters.postgres import PostgresTileMetadataStore
from tileferry.adapters.system import SystemClock
from tileferry.application import C11RetryConfig, IdempotentRetryTileUploader
from tileferry.application.ports import TileMetadataStore, TileUploader
from tileferry.domain.tiles import (
    PerTileStatus,
    SignedEnvelope,
    TileMetadata,
    TileUploadStatus,
    UploadBatchReport,
    UploadRequest,
)

TILES, TILE_BYTES = 4_000, 20_480
LINK_TILES, LINK_MBIT_S = 2_000, 100
TILE_S = 130e-6
BARE_LOOPS_MAX = 130 / 47
"""The goal above, as a multiple of what a bare loop took where the goal was set."""
MEMORY_TILES, TINY_BYTES = 100_000, 200
DECORATOR_MICROS_MAX = 50.0
QUERY_ROWS = {"1,000": 1_000, "100,000": 100_000}


@define
class KeptEnvelopes(MemoryEnvelopeStore):
    """Remembers all that were signed."""

    kept: list[SignedEnvelope] = field(factory=list, init=False)

    def save(self, envelope: SignedEnvelope) -> None:
        """Keep an envelope for good."""
        super().save(envelope)
        self.kept.append(envelope)


def signed_batches(
    folder: Path, url: str, sink_url: str
) -> list[tuple[SignedEnvelope, list[bytes]]]:
    """Return the batches of a flight as ours signs them, with their tiles."""
    with opened(folder, url) as cache:
        envelopes = KeptEnvelopes(cache.metadata)
        with uploading(folder, cache, sink_url, envelopes) as ours:
            ours.uploader.upload_pending_tiles(REQUEST)
        return [
            (envelope, [cache.tiles.read_tile(tile.tile_id) for tile in envelope.batch.tiles])
            for envelope in envelopes.kept
        ]


def ours(site: Site, folder: Path, url: str, sink_url: str) -> Spent:
    """Upload all tiles, until every answer is durable."""
    make_pending(url)
    with opened(folder, url) as cache, uploading(folder, cache, sink_url) as upload:
        pending = cache.metadata.count_pending(FLIGHT)
        reports = []
        os.sync()
        spent = measure(
            lambda: reports.append(upload.uploader.upload_pending_tiles(REQUEST)),
            [site.server_pid],
        )
        assert [report.tiles_acknowledged for report in reports] == [pending]
        assert cache.metadata.count_pending(FLIGHT) == 0
    return spent


def bare(
    folder: Path, url: str, sink_url: str, batches: list[tuple[SignedEnvelope, list[bytes]]]
) -> Spent:
    """POST the same batches by the same client, and do nothing else."""
    with opened(folder, url) as cache, uploading(folder, cache, sink_url) as upload:
        answers: list[int] = []

        def post() -> None:
            for envelope, tiles in batches:
                answers.append(len(upload.provider.post_batch(envelope, tiles)))

        os.sync()
        spent = measure(post)
    assert sum(answers) == sum(len(tiles) for _, tiles in batches)
    return spent


def against_bare_loop(site: Site) -> Iterator[Ratio]:
    """Measure tiles as aircraft capture them: over loopback, and over a link as operators have it.

    Over loopback the bare loop is a processor that copies memory, so every statement of ours shows.
    """
    spent = _compare(site, TILES)
    mine, peer = spent["ours"], spent["bare loop"]
    yield Ratio(
        name="uploaded tile of 20 KB: processor time of ours and Postgres / 130 µs",
        ratio=mine.processor_s / TILES / TILE_S,
        goal=1.0,
        detail=f"{rates(spent, TILES)} (own + Postgres)",
    )
    yield Ratio(
        name="uploaded tile of 20 KB, processor time: ours and Postgres / a bare loop of POSTs",
        ratio=mine.processor_s / peer.processor_s,
        goal=BARE_LOOPS_MAX,
    )
    yield _compare_speed("loopback", spent, TILES, goal=0.85)
    spent = _compare(site, LINK_TILES, LINK_MBIT_S * 1e6 / 8)
    yield _compare_speed(f"a link of {LINK_MBIT_S} Mbit/s", spent, LINK_TILES, goal=0.95)


def _compare_speed(link: str, spent: dict[str, Spent], tiles: int, *, goal: float) -> Ratio:
    return Ratio(
        name=f"upload of 20 KB tiles a second, {link}: ours, durable / a bare loop of POSTs",
        ratio=spent["bare loop"].wall_s / spent["ours"].wall_s,
        goal=goal,
        at_least=True,
        detail=rates(spent, tiles),
    )


def _compare(site: Site, tiles: int, bytes_per_s: float = 0.0) -> dict[str, Spent]:
    with site.place() as (folder, url), sinking(bytes_per_s) as sink_url:
        capture(folder, url, tiles, TILE_BYTES)
        batches = signed_batches(folder, url, sink_url)
        return compare(
            {
                "ours": partial(ours, site, folder, url, sink_url),
                "bare loop": partial(bare, folder, url, sink_url, batches),
            }
        )


@define
class Delivered:
    """An uploader that has always just delivered everything."""

    report: UploadBatchReport

    def upload_pending_tiles(self, _request: UploadRequest) -> UploadBatchReport:
        """Report success."""
        return self.report

    def enumerate_pending_tiles(self, _flight_id: str) -> Iterator[TileMetadata]:
        """Nothing waits."""
        return iter(())

    def confirm_flight_state(self) -> None:
        """It is on the ground."""


def retrying(inner: TileUploader, metadata: TileMetadataStore) -> IdempotentRetryTileUploader:
    """Put the retries around an uploader, with a logger that is on, as the product's is."""
    logger = getLogger("benchmarks.upload")
    logger.setLevel("INFO")
    logger.handlers, logger.propagate = [NullHandler()], False
    clock = SystemClock()
    return IdempotentRetryTileUploader(
        inner=inner,
        tile_metadata_store=metadata,
        fdr_client=MemoryFdrClient(clock=clock, records_max=1),
        logger=logger,
        clock=clock,
        config=C11RetryConfig(),
    )


def decorator() -> Ratio:
    """Measure what the retries add to an upload of a hundred tiles that succeeds at once."""
    answers = [
        PerTileStatus(tile_id=tile_at(number), status=TileUploadStatus.ACCEPTED)
        for number in range(100)
    ]
    inner = Delivered(UploadBatchReport.from_statuses(FLIGHT, answers))
    outer = retrying(inner, MemoryTileMetadataStore(clock=SystemClock()))

    def calling(uploader: TileUploader) -> Callable[[int], None]:
        def contender(calls: int) -> None:
            for _ in range(calls):
                assert uploader.upload_pending_tiles(REQUEST) is not None

        return contender

    times = seconds_per_call({"inner": calling(inner), "outer": calling(outer)}, calls=100)
    micros = (times["outer"] - times["inner"]) * 1e6
    return Ratio(
        name="retries around an upload that succeeds at once: µs added / 50 µs",
        ratio=micros / DECORATOR_MICROS_MAX,
        goal=1.0,
        detail=f"{micros:.1f} µs, for a report of {len(answers)} tiles",
    )


def _look(store: PostgresTileMetadataStore) -> bool:
    report = UploadBatchReport.from_statuses(FLIGHT, ())
    outer = retrying(Delivered(report), store)
    return outer._has_more_to_send(REQUEST, report)  # noqa: SLF001  # no public step has it alone


QUESTIONS: dict[str, Callable[[PostgresTileMetadataStore], bool]] = {
    "how many wait, as the command asks once": lambda store: store.count_pending(FLIGHT) > 0,
    "first page of what waits": lambda store: any(True for _ in store.pending_uploads(FLIGHT)),
    "whether any waits, between two passes": _look,
}


def queries(site: Site) -> Iterator[Ratio]:
    """Measure what is asked of Postgres, with few and with many tiles waiting."""
    with ExitStack() as stack:
        stores = {}
        for name, count in QUERY_ROWS.items():
            folder, url = stack.enter_context(site.place())
            fill_rows(url, count, [])
            make_pending(url)
            stores[name] = stack.enter_context(opened(folder, url)).metadata
        for title, ask in QUESTIONS.items():
            contenders = {name: _asking(ask, store) for name, store in stores.items()}
            times = seconds_per_call(contenders, calls=3, rounds=21)
            yield Ratio(
                name=f"{title}: 100,000 tiles / 1,000 tiles",
                ratio=times["100,000"] / times["1,000"],
                goal=1.5,
                detail=", ".join(f"{name} {s * 1e3:.1f} ms" for name, s in times.items()),
            )


def _asking(
    ask: Callable[[PostgresTileMetadataStore], bool], store: PostgresTileMetadataStore
) -> Callable[[int], None]:
    def contender(calls: int) -> None:
        for _ in range(calls):
            assert ask(store)

    return contender


def memory(site: Site) -> Iterator[Ratio]:
    """Measure the peak memory of a process that uploads tiny tiles."""
    few, many = peak_kib(site, 1_000), peak_kib(site, MEMORY_TILES)
    each = (many - few) * 1024 / (MEMORY_TILES - 1_000)
    detail = f"{few / 1024:.1f} and {many / 1024:.1f} MiB: {each:.0f} bytes a tile"
    yield Ratio(
        name=f"peak memory of an upload: {MEMORY_TILES:,} tiles / 1,000 tiles",
        ratio=many / few,
        goal=1.05,
        detail=detail,
    )
    yield Ratio(
        name=f"peak memory of an upload: {MEMORY_TILES:,} tiles / 150 MB",
        ratio=max(few, many) / MEMORY_KIB_MAX,
        goal=1.0,
        detail=detail,
    )


def peak_kib(site: Site, count: int) -> int:
    """Return the peak of a process of its own."""
    with site.place() as (folder, url), sinking() as sink_url:
        capture(folder, url, count, TINY_BYTES)
        command = [sys.executable, "-m", "benchmarks.upload_memory", str(folder), url, sink_url]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  # our own module
    peak, tiles = map(int, done.stdout.split())
    assert tiles == count
    return peak


def run() -> Iterator[Ratio]:
    """All measurements of this file."""
    site = Site.prepared("upload")
    yield from against_bare_loop(site)
    yield decorator()
    yield from queries(site)
    yield from memory(site)
