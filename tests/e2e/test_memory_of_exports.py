"""How much memory an export takes, however many tiles there are."""

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url
from support.soak import TIMES

ROOT = Path(__file__).parents[2]
MEMORY_KIB_MAX = 150 * 1_000_000 // 1024
FEW, MANY = 1_000, 1_000_000 if TIMES > 1 else 5_000
NAMES = ["out.pmtiles", "out.mbtiles"] if TIMES > 1 else ["out.pmtiles"]


def _run(*arguments: str) -> int:
    done = subprocess.run(  # noqa: S603  # our own module
        [sys.executable, "-m", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return int(done.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_invariant_25_an_export_takes_the_same_memory_for_any_number_of_tiles(
    tmp_path: Path, database_url: str, name: str
) -> None:
    url = make_url(database_url).render_as_string(hide_password=False)
    peaks = []
    for count in (FEW, MANY):  # the first tiles of the second cache are those of the first
        _run("benchmarks.cache_memory", str(tmp_path), url, str(count))
        dest = tmp_path / f"{count}-{name}"
        peaks.append(_run("benchmarks.export_memory", str(tmp_path), url, str(dest)))
        assert dest.stat().st_size > 64 * count
    few, many = peaks
    assert many <= 1.1 * few
    assert many <= MEMORY_KIB_MAX
