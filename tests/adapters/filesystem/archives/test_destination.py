"""Where archives are made: nothing of another's is harmed, and what a crash leaves is removed."""

import errno
import fcntl
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.archives import (
    MemoryCache,
    collect_tiles,
    create_export_request,
    create_image,
    create_tile_id,
    list_others,
)
from support.disk_faults import CallLog, CountedDisk

from tileferry.adapters.filesystem.archives import (
    GeopackageTarget,
    MbtilesTarget,
    PmtilesSource,
    PmtilesTarget,
    QgcTarget,
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
    "a.gpkg": GeopackageTarget,
    "a.qgctiledb": QgcTarget,
}


@pytest.fixture
def cache() -> MemoryCache:
    cache = MemoryCache()
    for x in range(4):
        cache.put(create_tile_id(5, x, 7))
    return cache


@pytest.fixture(params=TARGETS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def draft_path(path: Path) -> Path:
    return path.parent / f".{path.name}.tileferry-draft"


def test_draft_left_by_a_crash_is_removed(cache: MemoryCache, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    left = draft_path(path) / "draft"
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"half a tile")
    (draft_path(path) / "leaves").write_bytes(b"half a leaf")
    cache.create_exporter().export(create_export_request(), TARGETS[name](path=path))
    assert list_others(tmp_path, path) == []


def test_missing_parent_folder_is_reported(cache: MemoryCache, tmp_path: Path, name: str) -> None:
    with pytest.raises(ArchiveError, match="the folder does not exist"):
        cache.create_exporter().export(
            create_export_request(), TARGETS[name](path=tmp_path / "none" / name)
        )


def test_draft_locked_by_another_process_is_left_alone(
    cache: MemoryCache, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    draft_path(path).mkdir()
    (draft_path(path) / "draft").write_bytes(b"being written")
    fd = os.open(draft_path(path), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(ArchiveError, match="another export is writing there"):
        cache.create_exporter().export(create_export_request(), TARGETS[name](path=path))
    assert (draft_path(path) / "draft").read_bytes() == b"being written"
    os.close(fd)


def test_symlinked_draft_folder_is_not_followed(
    cache: MemoryCache, tmp_path: Path, name: str
) -> None:
    path, elsewhere = tmp_path / name, tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_bytes(b"mine")
    draft_path(path).symlink_to(elsewhere)
    with pytest.raises(StorageError):
        cache.create_exporter().export(create_export_request(), TARGETS[name](path=path))
    assert (elsewhere / "mine").read_bytes() == b"mine"


def test_draft_folder_of_another_user_is_rejected(
    cache: MemoryCache, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft_path(tmp_path / name).mkdir()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ArchiveError, match="belongs to another user"):
        cache.create_exporter().export(create_export_request(), TARGETS[name](path=tmp_path / name))


def test_symlink_or_foreign_path_is_not_replaced(
    cache: MemoryCache, tmp_path: Path, name: str
) -> None:
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
            cache.create_exporter().export(
                create_export_request(), TARGETS[name](path=path, replace=True)
            )
        with suppress(OSError):
            path.unlink()
        if path.is_dir() and any(path.iterdir()):
            assert (path / "letters").read_bytes() == b"dear"
            path.rename(home)
    assert (home / "letters").read_bytes() == b"dear"


@pytest.mark.parametrize("suffix", ["-wal", "-journal", "-shm"])
def test_leftover_sqlite_sidecar_file_is_rejected(
    cache: MemoryCache, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / "a.mbtiles"
    (tmp_path / f"a.mbtiles{suffix}").write_bytes(b"pages of another")
    with pytest.raises(ArchiveError, match=f"SQLite would apply a.mbtiles{suffix}"):
        cache.create_exporter().export(create_export_request(), MbtilesTarget(path=path))
    assert not path.exists()


def test_oversized_file_is_excluded_from_sizes(tmp_path: Path) -> None:
    column = tmp_path / "5" / "6"
    column.mkdir(parents=True)
    (column / "1.png").write_bytes(create_image(1))
    with (column / "2.png").open("wb") as sparse:
        sparse.truncate(TILE_BYTES_MAX + 1)
    (tile,) = TreeSource(tmp_path).iter_sizes("other")
    assert str(tile[0]) == "other/5/6/1"


def test_empty_folder_can_be_replaced(cache: MemoryCache, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    cache.create_exporter().export(
        create_export_request(), TreeTarget(path=tmp_path / "a", replace=True)
    )
    assert len(list(TreeSource(tmp_path / "a").iter_sizes("sat"))) == 4


def test_interrupted_replacement_is_rolled_back(cache: MemoryCache, tmp_path: Path) -> None:
    """Between the two renames that replace a folder, the old one has no name of its own."""
    path = tmp_path / "a"
    cache.create_exporter().export(create_export_request(), TreeTarget(path=path))
    draft_path(path).mkdir()
    path.rename(draft_path(path) / "old")
    with pytest.raises(ArchiveError, match="already exists"):
        cache.create_exporter().export(create_export_request(), TreeTarget(path=path))
    assert len(list(TreeSource(path).iter_sizes("sat"))) == 4
    assert list_others(tmp_path, path) == []


def test_failed_rename_keeps_the_old_archive(cache: MemoryCache, tmp_path: Path) -> None:
    path = tmp_path / "a"
    cache.create_exporter().export(create_export_request(), TreeTarget(path=path))
    cache.put(create_tile_id(5, 9, 9))
    renames: list[object] = []

    def rename(*names: object, **_: object) -> None:
        renames.append(names)
        if len(renames) == 2:
            raise OSError(errno.EIO, "injected")
        os.rename(*names)  # type: ignore[arg-type]  # noqa: PTH104  # as it is called

    target = TreeTarget(path=path, replace=True, calls=FileCalls(rename=rename))
    with pytest.raises(StorageError, match="injected"):
        cache.create_exporter().export(create_export_request(), target)
    assert len(list(TreeSource(path).iter_sizes("sat"))) == 4
    assert list_others(tmp_path, path) == []


@pytest.mark.parametrize("name", ["a", "a.pmtiles"])
def test_invariant_05_full_disk_leaves_no_partial_archive(
    cache: MemoryCache, tmp_path: Path, name: str
) -> None:
    for number in range(60):
        cache.put(create_tile_id(12, number, 7), create_image(number, size=64))
    disk = CountedDisk(tmp_path, size_bytes=6_000)
    target = TARGETS[name](path=tmp_path / name, calls=disk.calls)
    with pytest.raises(StorageError, match="No space left on device"):
        cache.create_exporter().export(create_export_request(), target)
    assert list(tmp_path.iterdir()) == []
    disk.enlarge()
    cache.create_exporter().export(create_export_request(), target)
    assert list_others(tmp_path, tmp_path / name) == []


def test_invariant_05_full_disk_leaves_no_partial_database(
    cache: MemoryCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sqlite3.connect

    def small(*arguments: object, **settings: object) -> sqlite3.Connection:
        database: sqlite3.Connection = real(*arguments, **settings)  # type: ignore[call-overload]
        database.execute("PRAGMA max_page_count = 4")
        return database

    monkeypatch.setattr(sqlite3, "connect", small)
    for number in range(100):
        cache.put(create_tile_id(12, number, 7), create_image(number, size=64))
    with pytest.raises(StorageError, match="disk is full"):
        cache.create_exporter().export(
            create_export_request(), MbtilesTarget(path=tmp_path / "a.mbtiles")
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "a.pmtiles"])
def test_archive_is_complete_or_absent_whichever_call_fails(
    cache: MemoryCache, tmp_path: Path, name: str
) -> None:
    log = CallLog()
    cache.create_exporter().export(
        create_export_request(), TARGETS[name](path=tmp_path / name, calls=log.calls)
    )
    whole = read_archive(name, tmp_path / name)
    assert len(whole) == 4
    for number in range(len(log.made)):
        path = tmp_path / f"{number}-{name}"
        broken = CallLog(fail_at=number)
        with suppress(StorageError):
            cache.create_exporter().export(
                create_export_request(), TARGETS[name](path=path, calls=broken.calls)
            )
        if path.exists():
            assert read_archive(name, path) == whole
    assert len(list(tmp_path.glob(".*"))) <= 2  # where our own folder was not opened, or locked


def read_archive(name: str, path: Path) -> dict[TileId, bytes]:
    source = TreeSource(path) if name == "a" else PmtilesSource(path)
    return collect_tiles(list(source.tiles("sat")))


def test_archive_files_are_world_readable(cache: MemoryCache, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    mask = os.umask(0o022)
    try:
        cache.create_exporter().export(create_export_request(), TARGETS[name](path=path))
    finally:
        os.umask(mask)
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o644}


def test_missing_or_foreign_pmtiles_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="does not exist"):
        list(PmtilesSource(tmp_path / "none").tiles("sat"))
    (tmp_path / "other").write_bytes(b"SQLite format 3")
    with pytest.raises(ArchiveError, match="is not a PMTiles v3 header"):
        list(PmtilesSource(tmp_path / "other").tiles("sat"))
