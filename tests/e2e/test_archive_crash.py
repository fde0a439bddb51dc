"""Exports and imports that are killed or told to stop: no half of one has a name; all goes on."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.archive_operator import ArchiveOperator, grid
from support.area_operator import wait_until

from tileferry.adapters.filesystem.archives import MbtilesSource, PmtilesSource, TreeSource
from tileferry.application.ports.archives import ArchiveReader

TILES = grid(1_500)
PADDING = 2_000
SOURCES: dict[str, Callable[[Path], ArchiveReader]] = {
    "out": TreeSource,
    "out.mbtiles": MbtilesSource,
    "out.pmtiles": PmtilesSource,
}


@pytest.fixture
def operator(tmp_path: Path, database_url: str) -> ArchiveOperator:
    person = ArchiveOperator(tmp_path, database_url)
    person.has(TILES, padding=PADDING)
    return person


def _drafted(operator: ArchiveOperator, name: str) -> Iterator[Path]:
    return (operator.home / f".{name}.tileferry-draft").rglob("*")


@pytest.mark.parametrize("name", SOURCES)
def test_invariant_06_a_killed_export_leaves_no_half_archive(
    operator: ArchiveOperator, name: str
) -> None:
    process = operator.starts("cache", "export", name)
    wait_until(lambda: any(path.stat().st_size for path in _drafted(operator, name)), "the draft")
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (operator.home / name).exists()
    assert list(_drafted(operator, name))
    ran = operator.runs_here("cache", "export", name, "--json")
    assert (ran.code, ran.json["tiles_exported"]) == (0, len(TILES))
    assert len(list(SOURCES[name](operator.home / name).tiles("x"))) == len(TILES)
    assert not (operator.home / f".{name}.tileferry-draft").exists()


def test_invariant_17_an_export_that_is_told_to_stop_tidies_up(operator: ArchiveOperator) -> None:
    process = operator.starts("cache", "export", "out")
    wait_until(lambda: any(_drafted(operator, "out")), "the draft")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 130
    assert not (operator.home / "out").exists()
    assert not (operator.home / ".out.tileferry-draft").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_invariant_01_an_ended_import_goes_on_where_it_was(
    operator: ArchiveOperator, tmp_path: Path, empty_database_url: str, number: signal.Signals
) -> None:
    path = tmp_path / "out.mbtiles"
    assert operator.runs_here("cache", "export", str(path)).code == 0
    home = tmp_path / "elsewhere"
    home.mkdir()
    other = ArchiveOperator(home, empty_database_url)
    assert other.runs_here("db", "upgrade").code == 0
    process = other.starts("cache", "import", str(path))
    wait_until(lambda: other.count() > 0, "the first group")
    process.send_signal(number)
    code = process.wait(30)
    assert code in {0, 130 if number is signal.SIGTERM else -signal.SIGKILL}
    stored = other.count()
    verified = other.runs_here("cache", "verify", "--json")
    assert (verified.code, verified.json["tiles"]) == (0, stored)
    ran = other.runs_here("cache", "import", str(path), "--json")
    assert (ran.json["tiles_unchanged"], ran.json["tiles_imported"]) == (
        stored,
        len(TILES) - stored,
    )
    stats = other.runs_here("cache", "stats", "--json").json
    assert (stats["tiles"], stats["reserved_bytes"]) == (len(TILES), 0)
