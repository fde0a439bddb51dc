"""``python -m benchmarks.quick [--store]``: processor times against those stored in quick.json.

A figure is processor time divided by that of a fixed loop, run beside it, so that the speed of the
machine cancels out. The least of several rounds counts: other work on the machine only adds. A
figure that is more than 15 % above the stored one fails. ``--store`` stores what was measured.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg

from benchmarks.cache import GROUP, contents, write_in_groups
from benchmarks.cache_site import Site
from benchmarks.processor_time import COMMAND, compute_calibration_s, measure, measure_command
from benchmarks.queue import BATCH, FILL, GATE, PAYLOAD, worker_on
from benchmarks.retry import ours as call_with_retry
from benchmarks.retry import repeated
from benchmarks.upload import TILE_BYTES
from benchmarks.upload import ours as upload_tiles
from benchmarks.upload_site import capture, sinking
from tileferry.adapters.postgres import Database

STORED = Path(__file__).with_name("quick.json")
TOLERANCE = 1.15
ROUNDS = 7
RUNS, RETRIES, UPLOADED = 1_000, 20_000, 1_000
COMMANDS = ("--help", "runs list", "flight list", "audit tail", "config show")
Work = Callable[[], float]
"""Does something, and returns its processor time in seconds."""


def measure_figures(site: Site) -> dict[str, float]:
    """Return every figure: processor time as a multiple of the fixed loop's."""
    server = [site.server_pid]
    with (
        site.place() as (folder, url),
        site.cache() as cache,
        closing_database(url) as database,
        site.place() as captured,
        sinking() as sink_url,
    ):
        environment = {
            **os.environ,
            "TILEFERRY_DATABASE_URL": url,
            "TILEFERRY_C11_CACHE_ROOT": str(folder / "cache"),
        }
        write = write_in_groups(cache, contents(2 * GROUP))
        works: dict[str, Work] = {
            f"tileferry {words}": partial(_run_command, [*COMMAND, *words.split()], environment)
            for words in COMMANDS
        }
        works[f"{GROUP} durable tiles"] = lambda: measure(partial(write, GROUP), server).processor_s
        capture(*captured, UPLOADED, TILE_BYTES)
        upload = partial(upload_tiles, site, *captured, sink_url)
        works[f"{UPLOADED} uploaded tiles"] = lambda: upload().processor_s
        works[f"{RUNS} runs"] = partial(_process_runs, database, url, server)
        retries = partial(repeated(call_with_retry), RETRIES)
        works[f"{RETRIES} calls, no retry"] = lambda: measure(retries).processor_s
        return _take_turns(works)


@contextmanager
def closing_database(url: str) -> Iterator[Database]:
    """Open a database for a block."""
    database = Database.from_url(url)
    yield database
    database.close()


def _process_runs(database: Database, url: str, server: Sequence[int]) -> float:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DELETE FROM runs")
        connection.execute(GATE)
        connection.execute(FILL, {"name": "quick", "payload": PAYLOAD, "count": RUNS})
        connection.execute("VACUUM ANALYZE")  # all tables, or plans depend on autovacuum
    return measure(worker_on(database, BATCH).run, server).processor_s


def _take_turns(works: Mapping[str, Work]) -> dict[str, float]:
    for work in works.values():
        work()  # compiles bytecode, and opens connections
    spent: dict[str, list[float]] = {name: [] for name in works}
    loops: list[float] = []
    for _ in range(ROUNDS):
        for name, work in works.items():
            loops.append(compute_calibration_s())
            spent[name].append(work())
    return {name: min(times) / min(loops) for name, times in spent.items()}


def _run_command(command: Sequence[str], environment: Mapping[str, str]) -> float:
    return measure_command(command, environment).own_s


def compare(
    figures: Mapping[str, float], stored: Mapping[str, float]
) -> Iterator[tuple[str, bool]]:
    """Yield a line for each figure, and whether it is a regression."""
    for name, figure in figures.items():
        before = stored.get(name)
        if before is None:
            yield f"{name:<22} {figure:8.2f}  new; store it with --store", True
            continue
        worse = figure > before * TOLERANCE
        said = "REGRESSION" if worse else "ok"
        yield (
            f"{name:<22} {figure:8.2f}  stored {before:.2f}  {figure / before - 1:+.0%}  {said}",
            worse,
        )


def main(options: Sequence[str]) -> int:
    """Measure and compare; return the exit code."""
    figures = measure_figures(Site.prepared("quick"))
    if "--store" in options:
        lines = {name: round(figure, 3) for name, figure in figures.items()}
        STORED.write_text(json.dumps(lines, indent=2) + "\n", encoding="utf-8")
        print(f"stored in {STORED.name}: {lines}")
        return 0
    results = list(compare(figures, json.loads(STORED.read_text(encoding="utf-8"))))
    for line, _ in results:
        print(line)
    return 1 if any(worse for _, worse in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
