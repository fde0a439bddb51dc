"""Exports against a plain copy of the same bytes, which is what the disk allows."""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.cache_site import Site, describe_batch, opened, tile_at
from benchmarks.export_memory import exported
from benchmarks.harness import Ratio
from tileferry.application import GroupLimits

TILES = 10_000
TILE_BYTES = 20_480
ROUNDS = 5
GOALS = {"pmtiles": 5.0, "mbtiles": 5.0}
"""Each tile is looked up, read, hashed and written, then read and hashed once more."""


def run() -> Iterator[Ratio]:
    """Measure exports to each format."""
    yield from speed(Site.prepared("export"))


def speed(site: Site) -> Iterator[Ratio]:
    """Measure exports and copies of one cache, in turns."""
    with site.place() as (folder, url):
        _fill(folder, url)
        contenders: dict[str, Callable[[Path], object]] = {
            "copy": partial(_copy, folder),
            **{form: partial(exported, folder, url) for form in GOALS},
        }
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for number in range(ROUNDS):
            for name, contender in contenders.items():
                dest = folder / f"{number}.{name}"
                begun = time.perf_counter()
                contender(dest)
                times[name].append(time.perf_counter() - begun)
                dest.unlink()
    copied = statistics.median(times["copy"])
    for form, goal in GOALS.items():
        taken = statistics.median(times[form])
        yield Ratio(
            name=f"export to {form} / copy of the same bytes",
            ratio=taken / copied,
            goal=goal,
            detail=f"{TILES:,} tiles of 20 KB, verified: {TILES / taken:,.0f} tiles/s",
        )


def _fill(folder: Path, url: str) -> None:
    with opened(folder, url) as cache, cache.group_commit(GroupLimits()) as commit:
        for number in range(TILES):
            tile_id = tile_at(number)
            content = os.urandom(64) * (TILE_BYTES // 64)
            commit.add(describe_batch([(tile_id, content)]))


def _copy(folder: Path, dest: Path) -> None:
    """Write all segments to one file, durably."""
    with dest.open("wb") as file:
        for segment in sorted((folder / ".c6" / "segments").iterdir()):
            file.write(segment.read_bytes())
        file.flush()
        os.fsync(file.fileno())
