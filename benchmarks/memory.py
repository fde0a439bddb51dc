"""Peak memory of whole commands, with a thousand tiles and with a million.

Commands run in their own processes, with an embedded Postgres and files on the disk of this
repository; a provider on loopback generates the tiles. A million tiles, with ``SOAK=1``, take ten
minutes and 2 GB of disk. Otherwise there are 50,000.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.cache_site import Site
from benchmarks.download_site import ZOOM, area
from benchmarks.harness import Ratio

FEW = 1_000
MANY = 1_000_000 if "SOAK" in os.environ else 50_000
GROWTH_MAX = 1.1
PEAK_BYTES_MAX = 150_000_000
_PEAK = """
import atexit, re
from pathlib import Path
from tileferry.entrypoints.cli.main import main
status = Path("/proc/self/status")
atexit.register(lambda: print(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1]))
main()
"""
"""Runs a command, and prints its own peak at the end; ``wait4`` may count that of its parent."""


@contextmanager
def serve_provider(count: int) -> Iterator[str]:
    """Run a provider in a process of its own; return its address."""
    command = [sys.executable, "-m", "benchmarks.tiny_provider", str(count)]
    with subprocess.Popen(  # noqa: S603  # our own module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()


def measure_peaks(site: Site, count: int) -> dict[str, int]:
    """Run each command on so many tiles; return their peaks in bytes."""
    bounds = area(count).bounds
    box = f"{bounds.west},{bounds.south},{bounds.east},{bounds.north}"
    download = ["download", "--bbox", box, "--zoom", str(ZOOM), "--flight", "F1"]
    download += ["--sector", "stable_rear", "--once"]
    with site.place() as (folder, url):
        steps = {
            "download": download,
            "download of a complete area": download,
            "refresh": [*download, "--refresh"],
            "cache verify": ["cache", "verify"],
            "export to PMTiles": ["cache", "export", str(folder / "out.pmtiles")],
            "export to MBTiles": ["cache", "export", str(folder / "out.mbtiles")],
        }
        peaks = {}
        for name, words in steps.items():
            with serve_provider(count) as provider_url:  # a new one each time: see its docstring
                environment = {
                    **os.environ,
                    "TILEFERRY_DATABASE_URL": url,
                    "TILEFERRY_C11_CACHE_ROOT": str(folder / "cache"),
                    "TILEFERRY_C11_SATELLITE_PROVIDER_URL": provider_url,
                    "TILEFERRY_C11_SERVICE_API_KEY": "bench",
                    "TILEFERRY_LOG_FILE": str(folder / "log"),
                }
                peaks[name] = _run(words, environment)
            for archive in folder.glob("out.*"):
                _check_archive(archive, count)
                archive.unlink()
    return peaks


def _run(words: list[str], environment: dict[str, str]) -> int:
    command = [sys.executable, "-c", _PEAK, *words]
    begun_s = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603  # ours
    assert done.returncode == 0, f"{words}: {done.stderr}"
    peak = int(done.stdout.split()[-1]) * 1024
    took_s = time.monotonic() - begun_s
    print(f"{' '.join(words[:2])}: {peak / 1e6:.1f} MB, {took_s:.0f} s", file=sys.stderr)
    return peak


def _check_archive(archive: Path, count: int) -> None:
    assert archive.stat().st_size > 40 * count, "the export lacks tiles"


def run() -> Iterator[Ratio]:
    """Measure every command, with few and with many tiles."""
    site = Site.prepared("memory")
    few, many = measure_peaks(site, FEW), measure_peaks(site, MANY)
    for name, peak in many.items():
        detail = f"{few[name] / 1e6:.1f} and {peak / 1e6:.1f} MB"
        yield Ratio(
            name=f"peak memory of {name}: {MANY:,} tiles / {FEW:,} tiles",
            ratio=peak / few[name],
            goal=GROWTH_MAX,
            detail=detail,
        )
        yield Ratio(
            name=f"peak memory of {name}: {MANY:,} tiles / 150 MB",
            ratio=peak / PEAK_BYTES_MAX,
            goal=1.0,
            detail=detail,
        )
