"""Exports and imports that are killed or told to stop: no half of one has a name; all goes on."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.archive_operator import ArchiveOperator, create_tile_grid
from support.download_operator import wait_until

from tileferry.adapters.filesystem.archives import MbtilesSource, PmtilesSource, TreeSource
from tileferry.application.ports.archives import ArchiveReader

TILES = create_tile_grid(1_500)
PADDING = 2_000
SOURCES: dict[str, Callable[[Path], ArchiveReader]] = {
    "out": TreeSource,
    "out.mbtiles": MbtilesSource,
    "out.pmtiles": PmtilesSource,
}


@pytest.fixture
def operator(tmp_path: Path, database_url: str) -> ArchiveOperator:
    person = ArchiveOperator(tmp_path, database_url)
    person.store_tiles(TILES, padding=PADDING)
    return person


def draft_files(operator: ArchiveOperator, name: str) -> Iterator[Path]:
    return (operator.home / f".{name}.tileferry-draft").rglob("*")


@pytest.mark.parametrize("name", SOURCES)
def test_invariant_06_killed_export_leaves_no_partial_archive(
    operator: ArchiveOperator, name: str
) -> None:
    process = operator.start("cache", "export", name)
    wait_until(
        lambda: any(path.stat().st_size for path in draft_files(operator, name)), "the draft"
    )
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (operator.home / name).exists()
    assert list(draft_files(operator, name))
    ran = operator.run_in_process("cache", "export", name, "--json")
    assert (ran.code, ran.json["tiles_exported"]) == (0, len(TILES))
    assert len(list(SOURCES[name](operator.home / name).tiles("x"))) == len(TILES)
    assert not (operator.home / f".{name}.tileferry-draft").exists()


def test_invariant_17_stopped_export_removes_its_draft(operator: ArchiveOperator) -> None:
    process = operator.start("cache", "export", "out")
    wait_until(lambda: any(draft_files(operator, "out")), "the draft")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 130
    assert not (operator.home / "out").exists()
    assert not (operator.home / ".out.tileferry-draft").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_invariant_01_interrupted_import_resumes(
    operator: ArchiveOperator, tmp_path: Path, empty_database_url: str, number: signal.Signals
) -> None:
    path = tmp_path / "out.mbtiles"
    assert operator.run_in_process("cache", "export", str(path)).code == 0
    home = tmp_path / "elsewhere"
    home.mkdir()
    other = ArchiveOperator(home, empty_database_url)
    assert other.run_in_process("db", "upgrade").code == 0
    process = other.start("cache", "import", str(path))
    wait_until(lambda: other.count_tiles() > 0, "the first group")
    process.send_signal(number)
    code = process.wait(30)
    assert code in {0, 130 if number is signal.SIGTERM else -signal.SIGKILL}
    stored = other.count_tiles()
    verified = other.run_in_process("cache", "verify", "--json")
    assert (verified.code, verified.json["tiles"]) == (0, stored)
    ran = other.run_in_process("cache", "import", str(path), "--json")
    assert (ran.json["tiles_unchanged"], ran.json["tiles_imported"]) == (
        stored,
        len(TILES) - stored,
    )
    stats = other.run_in_process("cache", "stats", "--json").json
    assert (stats["tiles"], stats["reserved_bytes"]) == (len(TILES), 0)
