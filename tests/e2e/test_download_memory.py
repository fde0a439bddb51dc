"""How much memory a download takes, however many tiles there are."""

import subprocess
import sys
from pathlib import Path

from sqlalchemy.engine import make_url
from support.crash_processes import SOAK_FACTOR

ROOT = Path(__file__).parents[2]
MEMORY_KIB_MAX = 150 * 1_000_000 // 1024
MANY = 1_000_000 if SOAK_FACTOR > 1 else 15_000


def measure_peak_kib(folder: Path, url: str, count: int) -> int:
    folder.mkdir()
    done = subprocess.run(  # noqa: S603  # our own module
        [sys.executable, "-m", "benchmarks.download_memory", str(folder), url, str(count)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return int(done.stdout)


def test_invariant_25_download_memory_is_independent_of_tile_count(
    tmp_path: Path, database_url: str
) -> None:
    url = make_url(database_url).render_as_string(hide_password=False)
    few = measure_peak_kib(tmp_path / "few", url, 1_000)
    many = measure_peak_kib(tmp_path / "many", url, MANY)
    assert many <= 1.1 * few
    assert many <= MEMORY_KIB_MAX
