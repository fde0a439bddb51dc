"""Exports to a place that others use too: what is theirs stays, however late it appears."""

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from support.archives import MemoryCache, place, tiles_of, wanted
from support.small_disk import CountedDisk

from tileferry.adapters.filesystem.archives import (
    MbtilesSource,
    MbtilesTarget,
    PmtilesSource,
    PmtilesTarget,
    TreeSource,
    TreeTarget,
)
from tileferry.adapters.filesystem.files import FileCalls
from tileferry.application.ports.archives import ArchiveReader, ArchiveTarget
from tileferry.domain.errors import ArchiveError, StorageError

Target = Callable[..., ArchiveTarget]
TARGETS: dict[str, Target] = {
    "a": TreeTarget,
    "a.mbtiles": MbtilesTarget,
    "a.pmtiles": PmtilesTarget,
}
SOURCES: dict[str, Callable[[Path], ArchiveReader]] = {
    "a": TreeSource,
    "a.mbtiles": MbtilesSource,
    "a.pmtiles": PmtilesSource,
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


def count(name: str, path: Path) -> int:
    return len(tiles_of(list(SOURCES[name](path).tiles("sat"))))


# What may be replaced


def database(*statements: str) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        with closing(sqlite3.connect(path)) as opened:
            for statement in statements:
                opened.execute(statement)

    return make


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def folder(about: str | None) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        path.mkdir()
        (path / "letter").write_text("dear")
        if about is not None:
            (path / "archive.json").write_text(about)

    return make


def planted(path: Path) -> None:
    path.mkdir()
    (path / "archive.json").symlink_to("/etc/passwd")


_OTHER_TILES = "CREATE TABLE tiles (game, level)"
_THEIR_TILES = "CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data)"
_THEIR_VIEW = (
    "CREATE VIEW tiles AS SELECT 1 AS zoom_level, 1 AS tile_column, 1 AS tile_row, x AS tile_data"
    " FROM t"
)
NOT_REPLACED: dict[str, Callable[[Path], object]] = {
    "notes": text("remember the milk"),
    "PMTiles of another version": text("PMTiles\x02"),
    "a database": database("CREATE TABLE accounts (x)", "PRAGMA application_id = 0x4d504258"),
    "a database with other tiles": database(_OTHER_TILES),
    "a folder": folder(None),
    "a folder with another archive.json": folder('{"name": "my letters", "type": "mail"}'),
    "a folder with an archive.json that is none": folder("no json"),
    "a folder with a planted archive.json": planted,
}


def everything(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {".": path.read_bytes()}
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.mark.parametrize("what", NOT_REPLACED)
def test_what_is_no_archive_of_the_format_is_not_replaced(
    cache: MemoryCache, tmp_path: Path, name: str, what: str
) -> None:
    path = tmp_path / name
    NOT_REPLACED[what](path)
    before = everything(path)
    with pytest.raises(ArchiveError, match="is not replaced"):
        cache.exporter().export(wanted(), TARGETS[name](path=path, replace=True))
    assert everything(path) == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_archive_of_another_format_is_not_replaced(cache: MemoryCache, tmp_path: Path) -> None:
    for kind, make in TARGETS.items():
        for other, other_target in TARGETS.items():
            path = tmp_path / f"{kind}-{other}"
            cache.exporter().export(wanted(), make(path=path))
            target = other_target(path=path, replace=True)
            if kind == other:
                cache.exporter().export(wanted(), target)
            else:
                with pytest.raises(ArchiveError, match="is not replaced"):
                    cache.exporter().export(wanted(), target)
            assert count(kind, path) == 4


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.mbtiles", text("")),
        ("a.mbtiles", database(_THEIR_TILES)),
        ("a.mbtiles", database("CREATE TABLE t (x)", _THEIR_VIEW)),
        ("a.pmtiles", text("")),
        ("a.pmtiles", text("PMTiles\x03 and a half")),
        ("a", Path.mkdir),
    ],
)
def test_what_is_empty_or_somebody_s_archive_may_be_replaced(
    cache: MemoryCache, tmp_path: Path, name: str, make: Callable[[Path], object]
) -> None:
    path = tmp_path / name
    make(path)
    cache.exporter().export(wanted(), TARGETS[name](path=path, replace=True))
    assert count(name, path) == 4
    assert list(tmp_path.iterdir()) == [path]


# What appears late


def late(call: Callable[..., None], make: Callable[[Path], object]) -> Callable[..., None]:
    """Put something where the archive is to be, just before it is."""

    def called(source: Path, target: Path, **settings: Any) -> None:
        make(target)
        call(source, target, **settings)

    return called


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("make", [text("precious"), folder(None)], ids=["file", "folder"])
def test_what_appears_while_the_archive_gets_its_name_stays(
    cache: MemoryCache,
    tmp_path: Path,
    name: str,
    make: Callable[[Path], object],
    *,
    replace: bool,
) -> None:
    path = tmp_path / name
    calls = (
        FileCalls(rename=late(os.rename, make))
        if name == "a"
        else FileCalls(link=late(os.link, make))
    )
    with pytest.raises(ArchiveError, match="is not replaced"):
        cache.exporter().export(wanted(), TARGETS[name](path=path, replace=replace, calls=calls))
    assert everything(path).popitem()[1] in {b"precious", b"dear"}
    assert list(tmp_path.iterdir()) == [path]


def test_an_archive_that_another_made_meanwhile_stays(
    cache: MemoryCache, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    with pytest.raises(ArchiveError, match="is there already"), ExitStack() as stack:  # noqa: PT012
        draft = stack.enter_context(TARGETS[name](path=path).draft())
        theirs = tmp_path / f"b{name}"
        cache.exporter().export(wanted(), TARGETS[name](path=theirs))
        theirs.rename(path)
        draft.publish()
    assert count(name, path) == 4


@pytest.mark.parametrize("name", ["a.mbtiles", "a.pmtiles"])
def test_a_filesystem_without_links_will_do(cache: MemoryCache, tmp_path: Path, name: str) -> None:
    def no_link(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    path = tmp_path / name
    target = TARGETS[name](path=path, calls=FileCalls(link=no_link))
    cache.exporter().export(wanted(), target)
    assert count(name, path) == 4
    assert list(tmp_path.iterdir()) == [path]


# Two at once


def test_a_folder_that_its_owner_removed_is_not_worked_in(tmp_path: Path, name: str) -> None:
    """The first ends between the second's open and its lock, and a third begins there."""
    path = tmp_path / name
    first, third = ExitStack(), ExitStack()
    first.enter_context(TARGETS[name](path=path).draft())
    opened: list[int] = []

    def open_late(where: Any, *arguments: Any, **settings: Any) -> int:
        fd = os.open(where, *arguments, **settings)
        if where == draft_of(path) and not opened:
            opened.append(fd)
            first.close()
            third.enter_context(TARGETS[name](path=path).draft())
            (draft_of(path) / "third").write_bytes(b"at work")
        return fd

    second = TARGETS[name](path=path, calls=FileCalls(open=open_late))
    with pytest.raises(ArchiveError, match="another export writes there"), second.draft():
        pass
    assert opened
    assert (draft_of(path) / "third").read_bytes() == b"at work"
    third.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("when", ["before it is opened", "after"])
def test_a_folder_that_is_removed_is_made_again(
    cache: MemoryCache, tmp_path: Path, name: str, when: str
) -> None:
    path = tmp_path / name
    opened: list[object] = []

    def open_late(where: Any, *arguments: Any, **settings: Any) -> int:
        if where != draft_of(path) or opened:
            return os.open(where, *arguments, **settings)
        opened.append(where)
        if when == "after":
            fd = os.open(where, *arguments, **settings)
            draft_of(path).rmdir()
            return fd
        draft_of(path).rmdir()
        return os.open(where, *arguments, **settings)

    cache.exporter().export(wanted(), TARGETS[name](path=path, calls=FileCalls(open=open_late)))
    assert opened
    assert count(name, path) == 4
    assert list(tmp_path.iterdir()) == [path]


# What is said when the disk is full


@pytest.mark.parametrize("name", ["a", "a.pmtiles"])
def test_a_full_disk_names_the_archive_and_says_that_it_was_not_kept(
    cache: MemoryCache, tmp_path: Path, name: str
) -> None:
    disk = CountedDisk(tmp_path, size_bytes=200)
    with pytest.raises(StorageError) as caught:
        cache.exporter().export(wanted(), TARGETS[name](path=tmp_path / name, calls=disk.calls))
    assert str(caught.value) == (
        f"could not write to {tmp_path / name}: No space left on device; "
        "free space, then run again: the archive was not kept"
    )


def test_what_the_cache_cannot_read_is_told_as_it_is(cache: MemoryCache, tmp_path: Path) -> None:
    failed = StorageError(
        action="read", path="/cache/1.seg", problem="I/O", remedy="what was confirmed is kept"
    )

    def fails() -> None:
        raise failed

    exporter = cache.exporter()
    exporter.on_tile = fails
    with pytest.raises(StorageError) as caught:
        exporter.export(wanted(), TreeTarget(path=tmp_path / "a"))
    assert caught.value is failed
