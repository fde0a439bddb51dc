"""How much memory an export takes, however many tiles there are."""

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url
from support.crash_processes import SOAK_FACTOR

ROOT = Path(__file__).parents[2]
MEMORY_KIB_MAX = 150 * 1_000_000 // 1024
FEW, MANY = 1_000, 1_000_000 if SOAK_FACTOR > 1 else 5_000
NAMES = ["out.pmtiles", "out.mbtiles"] if SOAK_FACTOR > 1 else ["out.pmtiles"]


def run_benchmark(*arguments: str) -> int:
    done = subprocess.run(  # noqa: S603  # our own module
        [sys.executable, "-m", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return int(done.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_invariant_25_export_memory_is_independent_of_tile_count(
    tmp_path: Path, database_url: str, name: str
) -> None:
    url = make_url(database_url).render_as_string(hide_password=False)
    peaks = []
    for count in (FEW, MANY):  # the first tiles of the second cache are those of the first
        run_benchmark("benchmarks.cache_memory", str(tmp_path), url, str(count))
        dest = tmp_path / f"{count}-{name}"
        peaks.append(run_benchmark("benchmarks.export_memory", str(tmp_path), url, str(dest)))
        assert dest.stat().st_size > 64 * count
    few, many = peaks
    assert many <= 1.1 * few
    assert many <= MEMORY_KIB_MAX
