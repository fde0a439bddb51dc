"""Exports to a place that others use too: what is theirs stays, however late it appears."""

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from support.archives import (
    MemoryCache,
    collect_tiles,
    create_export_request,
    create_tile_id,
    list_others,
)
from support.disk_faults import CountedDisk

from tileferry.adapters.filesystem.archives import (
    GeopackageSource,
    GeopackageTarget,
    MbtilesSource,
    MbtilesTarget,
    PmtilesSource,
    PmtilesTarget,
    QgcSource,
    QgcTarget,
    TreeSource,
    TreeTarget,
)
from tileferry.adapters.filesystem.files import FileCalls
from tileferry.application.ports.archives import ArchiveReader, ArchiveTarget
from tileferry.application.ports.progress import ProgressEvent
from tileferry.domain.errors import ArchiveError, StorageError

Target = Callable[..., ArchiveTarget]
TARGETS: dict[str, Target] = {
    "a": TreeTarget,
    "a.mbtiles": MbtilesTarget,
    "a.pmtiles": PmtilesTarget,
    "a.gpkg": GeopackageTarget,
    "a.qgctiledb": QgcTarget,
}
SOURCES: dict[str, Callable[[Path], ArchiveReader]] = {
    "a": TreeSource,
    "a.mbtiles": MbtilesSource,
    "a.pmtiles": PmtilesSource,
    "a.gpkg": GeopackageSource,
    "a.qgctiledb": QgcSource,
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


def count_tiles(name: str, path: Path) -> int:
    return len(collect_tiles(list(SOURCES[name](path).tiles("sat"))))


# What may be replaced


def create_database(*statements: str) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        with closing(sqlite3.connect(path)) as opened:
            for statement in statements:
                opened.execute(statement)

    return make


def create_text_file(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def create_folder(about: str | None) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        path.mkdir()
        (path / "letter").write_text("dear")
        if about is not None:
            (path / "archive.json").write_text(about)

    return make


def create_folder_with_symlink(path: Path) -> None:
    path.mkdir()
    (path / "archive.json").symlink_to("/etc/passwd")


_OTHER_TILES = "CREATE TABLE tiles (game, level)"
_THEIR_TILES = "CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data)"
_THEIR_VIEW = (
    "CREATE VIEW tiles AS SELECT 1 AS zoom_level, 1 AS tile_column, 1 AS tile_row, x AS tile_data"
    " FROM t"
)
NOT_REPLACED: dict[str, Callable[[Path], object]] = {
    "notes": create_text_file("remember the milk"),
    "PMTiles of another version": create_text_file("PMTiles\x02"),
    "a database": create_database(
        "CREATE TABLE accounts (x)", "PRAGMA application_id = 0x4d504258"
    ),
    "a database with other tiles": create_database(_OTHER_TILES),
    "a folder": create_folder(None),
    "a folder with another archive.json": create_folder('{"name": "my letters", "type": "mail"}'),
    "a folder with an archive.json that is none": create_folder("no json"),
    "a folder with a planted archive.json": create_folder_with_symlink,
}


def read_all_files(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {".": path.read_bytes()}
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.mark.parametrize("what", NOT_REPLACED)
def test_path_that_is_not_an_archive_of_the_format_is_not_replaced(
    cache: MemoryCache, tmp_path: Path, name: str, what: str
) -> None:
    path = tmp_path / name
    NOT_REPLACED[what](path)
    before = read_all_files(path)
    with pytest.raises(ArchiveError, match="is not replaced"):
        cache.create_exporter().export(
            create_export_request(), TARGETS[name](path=path, replace=True)
        )
    assert read_all_files(path) == before
    assert list_others(tmp_path, path) == []


def test_archive_of_another_format_is_not_replaced(cache: MemoryCache, tmp_path: Path) -> None:
    for kind, make in TARGETS.items():
        for other, other_target in TARGETS.items():
            path = tmp_path / f"{kind}-{other}"
            cache.create_exporter().export(create_export_request(), make(path=path))
            target = other_target(path=path, replace=True)
            if kind == other:
                cache.create_exporter().export(create_export_request(), target)
            else:
                with pytest.raises(ArchiveError, match="is not replaced"):
                    cache.create_exporter().export(create_export_request(), target)
            assert count_tiles(kind, path) == 4


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.mbtiles", create_text_file("")),
        ("a.mbtiles", create_database(_THEIR_TILES)),
        ("a.mbtiles", create_database("CREATE TABLE t (x)", _THEIR_VIEW)),
        ("a.pmtiles", create_text_file("")),
        ("a.pmtiles", create_text_file("PMTiles\x03 and a half")),
        ("a", Path.mkdir),
    ],
)
def test_empty_path_or_foreign_archive_can_be_replaced(
    cache: MemoryCache, tmp_path: Path, name: str, make: Callable[[Path], object]
) -> None:
    path = tmp_path / name
    make(path)
    cache.create_exporter().export(create_export_request(), TARGETS[name](path=path, replace=True))
    assert count_tiles(name, path) == 4
    assert list_others(tmp_path, path) == []


# What appears late


def create_before_call(
    call: Callable[..., None], make: Callable[[Path], object]
) -> Callable[..., None]:
    """Put something where the archive is to be, just before it is."""

    def called(source: Path, target: Path, **settings: Any) -> None:
        make(target)
        call(source, target, **settings)

    return called


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize(
    "make", [create_text_file("precious"), create_folder(None)], ids=["file", "folder"]
)
def test_path_created_during_publish_is_not_overwritten(
    cache: MemoryCache,
    tmp_path: Path,
    name: str,
    make: Callable[[Path], object],
    *,
    replace: bool,
) -> None:
    path = tmp_path / name
    calls = (
        FileCalls(rename=create_before_call(os.rename, make))
        if name == "a"
        else FileCalls(link=create_before_call(os.link, make))
    )
    with pytest.raises(ArchiveError, match="is not replaced"):
        cache.create_exporter().export(
            create_export_request(), TARGETS[name](path=path, replace=replace, calls=calls)
        )
    assert read_all_files(path).popitem()[1] in {b"precious", b"dear"}
    assert list_others(tmp_path, path) == []


def test_archive_created_concurrently_is_not_overwritten(
    cache: MemoryCache, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    with pytest.raises(ArchiveError, match="already exists"), ExitStack() as stack:  # noqa: PT012
        draft = stack.enter_context(TARGETS[name](path=path).open_draft())
        theirs = tmp_path / f"b{name}"
        cache.create_exporter().export(create_export_request(), TARGETS[name](path=theirs))
        theirs.rename(path)
        draft.publish()
    assert count_tiles(name, path) == 4


@pytest.mark.parametrize("name", ["a.mbtiles", "a.pmtiles"])
def test_publish_works_without_hard_link_support(
    cache: MemoryCache, tmp_path: Path, name: str
) -> None:
    def no_link(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    path = tmp_path / name
    target = TARGETS[name](path=path, calls=FileCalls(link=no_link))
    cache.create_exporter().export(create_export_request(), target)
    assert count_tiles(name, path) == 4
    assert list_others(tmp_path, path) == []


# Two at once


def test_draft_folder_removed_and_recreated_by_others_is_not_used(
    tmp_path: Path, name: str
) -> None:
    """The first ends between the second's open and its lock, and a third begins there."""
    path = tmp_path / name
    first, third = ExitStack(), ExitStack()
    first.enter_context(TARGETS[name](path=path).open_draft())
    opened: list[int] = []

    def open_late(where: Any, *arguments: Any, **settings: Any) -> int:
        fd = os.open(where, *arguments, **settings)
        if where == draft_path(path) and not opened:
            opened.append(fd)
            first.close()
            third.enter_context(TARGETS[name](path=path).open_draft())
            (draft_path(path) / "third").write_bytes(b"at work")
        return fd

    second = TARGETS[name](path=path, calls=FileCalls(open=open_late))
    with pytest.raises(ArchiveError, match="another export is writing there"), second.open_draft():
        pass
    assert opened
    assert (draft_path(path) / "third").read_bytes() == b"at work"
    third.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("when", ["before it is opened", "after"])
def test_removed_draft_folder_is_recreated(
    cache: MemoryCache, tmp_path: Path, name: str, when: str
) -> None:
    path = tmp_path / name
    opened: list[object] = []

    def open_late(where: Any, *arguments: Any, **settings: Any) -> int:
        if where != draft_path(path) or opened:
            return os.open(where, *arguments, **settings)
        opened.append(where)
        if when == "after":
            fd = os.open(where, *arguments, **settings)
            draft_path(path).rmdir()
            return fd
        draft_path(path).rmdir()
        return os.open(where, *arguments, **settings)

    cache.create_exporter().export(
        create_export_request(), TARGETS[name](path=path, calls=FileCalls(open=open_late))
    )
    assert opened
    assert count_tiles(name, path) == 4
    assert list_others(tmp_path, path) == []


# What is said when the disk is full


@pytest.mark.parametrize("name", ["a", "a.pmtiles"])
def test_disk_full_error_names_the_archive_and_says_it_was_discarded(
    cache: MemoryCache, tmp_path: Path, name: str
) -> None:
    disk = CountedDisk(tmp_path, size_bytes=200)
    with pytest.raises(StorageError) as caught:
        cache.create_exporter().export(
            create_export_request(), TARGETS[name](path=tmp_path / name, calls=disk.calls)
        )
    assert str(caught.value) == (
        f"cannot write to {tmp_path / name}: No space left on device; "
        "free space, then re-run; the archive was not kept"
    )


def test_cache_read_error_is_passed_through_unchanged(cache: MemoryCache, tmp_path: Path) -> None:
    failed = StorageError(
        action="read", path="/cache/1.seg", problem="I/O", remedy="confirmed data is kept"
    )

    def fails(_event: ProgressEvent) -> None:
        raise failed

    exporter = cache.create_exporter()
    exporter.progress = fails
    with pytest.raises(StorageError) as caught:
        exporter.export(create_export_request(), TreeTarget(path=tmp_path / "a"))
    assert caught.value is failed
