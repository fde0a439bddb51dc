"""Where archives are made: nothing of another's is harmed, and what a crash leaves is removed."""

import errno
import fcntl
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.archives import MemoryCache, picture, place, tiles_of, wanted
from support.failing_calls import CallLog
from support.small_disk import CountedDisk

from tileferry.adapters.filesystem.archives import (
    MbtilesTarget,
    PmtilesSource,
    PmtilesTarget,
    TreeSource,
    TreeTarget,
)
from tileferry.adapters.filesystem.files import FileCalls
from tileferry.application.ports.archives import ArchiveTarget
from tileferry.domain.errors import ArchiveError, StorageError
from tileferry.domain.tiles import TILE_BYTES_MAX, TileId

Target = Callable[..., ArchiveTarget]
TARGETS: dict[str, Target] = {
    "a": TreeTarget,
    "a.mbtiles": MbtilesTarget,
    "a.pmtiles": PmtilesTarget,
}


@pytest.fixture
def cache() -> MemoryCache:
    cache = MemoryCache()
    for x in range(4):
        cache.has(place(5, x, 7))
    return cache


@pytest.fixture(params=TARGETS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def draft_of(path: Path) -> Path:
    return path.parent / f".{path.name}.tileferry-draft"


def test_what_a_crash_left_is_removed(cache: MemoryCache, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    left = draft_of(path) / "draft"
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"half a tile")
    (draft_of(path) / "leaves").write_bytes(b"half a leaf")
    cache.exporter().export(wanted(), TARGETS[name](path=path))
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_lacks_is_named(cache: MemoryCache, tmp_path: Path, name: str) -> None:
    with pytest.raises(ArchiveError, match="lies in a folder that does not exist"):
        cache.exporter().export(wanted(), TARGETS[name](path=tmp_path / "none" / name))


def test_another_process_at_work_is_not_disturbed(
    cache: MemoryCache, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    draft_of(path).mkdir()
    (draft_of(path) / "draft").write_bytes(b"being written")
    fd = os.open(draft_of(path), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(ArchiveError, match="another export writes there"):
        cache.exporter().export(wanted(), TARGETS[name](path=path))
    assert (draft_of(path) / "draft").read_bytes() == b"being written"
    os.close(fd)


def test_a_planted_link_is_not_followed(cache: MemoryCache, tmp_path: Path, name: str) -> None:
    path, elsewhere = tmp_path / name, tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_bytes(b"mine")
    draft_of(path).symlink_to(elsewhere)
    with pytest.raises(StorageError):
        cache.exporter().export(wanted(), TARGETS[name](path=path))
    assert (elsewhere / "mine").read_bytes() == b"mine"


def test_somebody_else_s_folder_is_not_used(
    cache: MemoryCache, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft_of(tmp_path / name).mkdir()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ArchiveError, match="belongs to somebody else"):
        cache.exporter().export(wanted(), TARGETS[name](path=tmp_path / name))


def test_what_is_no_archive_is_not_replaced(cache: MemoryCache, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    home = tmp_path / "home"
    home.mkdir()
    (home / "letters").write_bytes(b"dear")
    for make in (
        lambda: path.symlink_to(home),
        lambda: home.rename(path),
        lambda: path.write_bytes(b"x") if name == "a" else path.mkdir(),
    ):
        make()
        with pytest.raises(ArchiveError, match="is not replaced"):
            cache.exporter().export(wanted(), TARGETS[name](path=path, replace=True))
        with suppress(OSError):
            path.unlink()
        if path.is_dir() and any(path.iterdir()):
            assert (path / "letters").read_bytes() == b"dear"
            path.rename(home)
    assert (home / "letters").read_bytes() == b"dear"


@pytest.mark.parametrize("suffix", ["-wal", "-journal", "-shm"])
def test_a_journal_of_another_file_gets_into_no_archive(
    cache: MemoryCache, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / "a.mbtiles"
    (tmp_path / f"a.mbtiles{suffix}").write_bytes(b"pages of another")
    with pytest.raises(ArchiveError, match=f"has a.mbtiles{suffix} beside it"):
        cache.exporter().export(wanted(), MbtilesTarget(path=path))
    assert not path.exists()


def test_what_is_too_large_for_a_tile_asks_for_no_room(tmp_path: Path) -> None:
    column = tmp_path / "5" / "6"
    column.mkdir(parents=True)
    (column / "1.png").write_bytes(picture(1))
    with (column / "2.png").open("wb") as sparse:
        sparse.truncate(TILE_BYTES_MAX + 1)
    (tile,) = TreeSource(tmp_path).sizes("other")
    assert str(tile[0]) == "other/5/6/1"


def test_an_empty_folder_may_be_replaced(cache: MemoryCache, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    cache.exporter().export(wanted(), TreeTarget(path=tmp_path / "a", replace=True))
    assert len(list(TreeSource(tmp_path / "a").sizes("sat"))) == 4


def test_half_a_replacement_is_undone(cache: MemoryCache, tmp_path: Path) -> None:
    """Between the two renames that replace a folder, the old one has no name of its own."""
    path = tmp_path / "a"
    cache.exporter().export(wanted(), TreeTarget(path=path))
    draft_of(path).mkdir()
    path.rename(draft_of(path) / "old")
    with pytest.raises(ArchiveError, match="is there already"):
        cache.exporter().export(wanted(), TreeTarget(path=path))
    assert len(list(TreeSource(path).sizes("sat"))) == 4
    assert list(tmp_path.iterdir()) == [path]


def test_a_rename_that_fails_leaves_the_old_archive(cache: MemoryCache, tmp_path: Path) -> None:
    path = tmp_path / "a"
    cache.exporter().export(wanted(), TreeTarget(path=path))
    cache.has(place(5, 9, 9))
    renames: list[object] = []

    def rename(*names: object, **_: object) -> None:
        renames.append(names)
        if len(renames) == 2:
            raise OSError(errno.EIO, "injected")
        os.rename(*names)  # type: ignore[arg-type]  # noqa: PTH104  # as it is called

    target = TreeTarget(path=path, replace=True, calls=FileCalls(rename=rename))
    with pytest.raises(StorageError, match="injected"):
        cache.exporter().export(wanted(), target)
    assert len(list(TreeSource(path).sizes("sat"))) == 4
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["a", "a.pmtiles"])
def test_invariant_05_a_full_disk_leaves_no_half_archive(
    cache: MemoryCache, tmp_path: Path, name: str
) -> None:
    for number in range(60):
        cache.has(place(12, number, 7), picture(number, size=64))
    disk = CountedDisk(tmp_path, size_bytes=6_000)
    target = TARGETS[name](path=tmp_path / name, calls=disk.calls)
    with pytest.raises(StorageError, match="No space left on device"):
        cache.exporter().export(wanted(), target)
    assert list(tmp_path.iterdir()) == []
    disk.enlarge()
    cache.exporter().export(wanted(), target)
    assert list(tmp_path.iterdir()) == [tmp_path / name]


def test_invariant_05_a_full_disk_leaves_no_half_database(
    cache: MemoryCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sqlite3.connect

    def small(*arguments: object, **settings: object) -> sqlite3.Connection:
        database: sqlite3.Connection = real(*arguments, **settings)  # type: ignore[call-overload]
        database.execute("PRAGMA max_page_count = 4")
        return database

    monkeypatch.setattr(sqlite3, "connect", small)
    for number in range(100):
        cache.has(place(12, number, 7), picture(number, size=64))
    with pytest.raises(StorageError, match="disk is full"):
        cache.exporter().export(wanted(), MbtilesTarget(path=tmp_path / "a.mbtiles"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "a.pmtiles"])
def test_whichever_call_fails_the_archive_is_whole_or_absent(
    cache: MemoryCache, tmp_path: Path, name: str
) -> None:
    log = CallLog()
    cache.exporter().export(wanted(), TARGETS[name](path=tmp_path / name, calls=log.calls))
    whole = read(name, tmp_path / name)
    assert len(whole) == 4
    for number in range(len(log.made)):
        path = tmp_path / f"{number}-{name}"
        broken = CallLog(fail_at=number)
        with suppress(StorageError):
            cache.exporter().export(wanted(), TARGETS[name](path=path, calls=broken.calls))
        if path.exists():
            assert read(name, path) == whole
    assert len(list(tmp_path.glob(".*"))) <= 1  # where not even our own folder could be opened


def read(name: str, path: Path) -> dict[TileId, bytes]:
    source = TreeSource(path) if name == "a" else PmtilesSource(path)
    return tiles_of(list(source.tiles("sat")))


def test_an_archive_is_for_others_to_read(cache: MemoryCache, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    mask = os.umask(0o022)
    try:
        cache.exporter().export(wanted(), TARGETS[name](path=path))
    finally:
        os.umask(mask)
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o644}


def test_a_pmtiles_file_that_is_not_there_or_is_another_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="is not there"):
        list(PmtilesSource(tmp_path / "none").tiles("sat"))
    (tmp_path / "other").write_bytes(b"SQLite format 3")
    with pytest.raises(ArchiveError, match="is not of a PMTiles archive"):
        list(PmtilesSource(tmp_path / "other").tiles("sat"))
