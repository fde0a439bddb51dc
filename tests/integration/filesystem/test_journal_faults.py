"""A disk that fails under a journal, at each call that it makes; and names that lead elsewhere."""

import errno
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from support.failing_calls import CallLog

from tileferry.adapters.filesystem.files import FileCalls
from tileferry.adapters.filesystem.journal import FileJournal, FileJournalStore
from tileferry.domain.errors import StorageError
from tileferry.domain.tiles import BBox, TileCoverage, TileId, TileSet

AREA = TileCoverage(bbox=BBox(west=36.0, south=49.0, east=37.0, north=50.0), zoom_levels=[11, 12])
TILES = list(AREA.tiles("sat"))
NAME = "flight-7__0123456789abcdef.json"
CODES = [errno.EIO, errno.ENOSPC]


def store_at(root: Path, calls: FileCalls | None = None) -> FileJournalStore:
    return FileJournalStore(
        root=root, logger=logging.getLogger("test"), calls=calls or CallLog().calls
    )


class Run:
    """A download's use of its journal, and what it was promised on the way."""

    def __init__(self, store: FileJournalStore) -> None:
        self.store = store
        self.appended: list[TileId] = []
        self.flushed = 0
        self.finished = False

    def go(self) -> None:
        journal = self.store.open(NAME)
        try:
            if journal.complete:
                self.finished = True
                return
            found = TileSet(AREA)
            journal.read_into(found)
            rest = [tile for tile in TILES[:12] if tile not in found]
            for start in range(0, len(rest), 4):
                self.appended += rest[start : start + 4]
                journal.append(rest[start : start + 4])
                journal.flush()
                self.flushed = len(self.appended)
            journal.finish()
            self.finished = True
        except StorageError:
            check_that_it_is_refused(journal)
            raise
        finally:
            journal.close()


def check_that_it_is_refused(journal: FileJournal) -> None:
    with pytest.raises(StorageError, match="earlier operation on it failed"):
        journal.append(TILES[:1])
    for call in (journal.flush, journal.finish):
        with pytest.raises(StorageError, match="earlier operation on it failed"):
            call()


def with_a_torn_tail(root: Path) -> list[TileId]:
    journal = store_at(root).open(NAME)
    journal.append(TILES[:4])
    journal.flush()
    journal.close()
    with (root / ".c11/journal" / NAME).open("ab") as file:
        file.write(b"55 0badc0de {torn")
    return TILES[:4]


def nothing(_root: Path) -> list[TileId]:
    return []


@pytest.mark.parametrize("before", [nothing, with_a_torn_tail])
@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
def test_invariants_4_and_5_whichever_call_fails_nothing_promised_is_lost(
    tmp_path: Path, before: Callable[[Path], list[TileId]], code: int
) -> None:
    before(tmp_path / "good")
    good = CallLog()
    Run(store_at(tmp_path / "good", good.calls)).go()
    assert {"mkdir", "open", "write", "fdatasync", "fsync", "rename"} <= {n for n, _ in good.made}

    for fail_at, (name, _) in enumerate(good.made):
        root = tmp_path / f"{fail_at}-{name}"
        known = before(root)
        log = CallLog(fail_at=fail_at, code=code)
        run = Run(store_at(root, log.calls))
        with pytest.raises(StorageError) as caught:
            run.go()
        assert os.strerror(code) in str(caught.value)
        assert "fdatasync" not in [name for name, _ in log.made[fail_at + 1 :]]
        check_what_is_left(root, known, run)


def check_what_is_left(root: Path, known: list[TileId], run: Run) -> None:
    store = store_at(root)
    journal, found = store.open(NAME), TileSet(AREA)
    journal.read_into(found)
    if not journal.complete:  # the rename may have happened, its confirmation not
        left = [tile for tile in TILES if tile in found]
        assert set(known) | set(run.appended[: run.flushed]) <= set(left)
        assert set(left) <= set(known) | set(run.appended)
    journal.close()
    again = Run(store)
    again.go()
    journal = store.open(NAME)
    assert (again.finished, journal.complete, journal.count) == (True, True, 12)
    journal.close()
    assert [file.name for file in (root / ".c11/journal").iterdir()] == [NAME]


def test_an_interrupt_in_the_middle_of_a_write_ends_the_journal_too(tmp_path: Path) -> None:
    def interrupted(fd: int, content: bytes) -> int:
        os.write(fd, content[:5])
        raise KeyboardInterrupt

    journal = store_at(tmp_path, FileCalls(write=interrupted)).open(NAME)
    with pytest.raises(KeyboardInterrupt):
        journal.append(TILES[:1])
    with pytest.raises(StorageError, match="earlier operation on it failed"):
        journal.append(TILES[1:2])
    journal.close()
    journal = store_at(tmp_path).open(NAME)
    journal.append(TILES[1:2])
    assert journal.count == 1
    journal.close()


def test_short_writes_go_on_where_they_stopped(tmp_path: Path) -> None:
    calls = FileCalls(write=lambda fd, content: os.write(fd, content[:7]))
    journal = store_at(tmp_path, calls).open(NAME)
    journal.append(TILES[:5])
    journal.flush()
    journal.finish()
    journal.close()
    journal = store_at(tmp_path).open(NAME)
    assert (journal.complete, journal.count) == (True, 5)
    journal.close()


def test_invariant_2_a_new_journal_is_named_durably_before_it_is_relied_on(tmp_path: Path) -> None:
    log = CallLog()
    journal = store_at(tmp_path, log.calls).open(NAME)
    before = len(log.made)
    journal.append(TILES[:1])
    journal.flush()
    calls = [name for name, _ in log.made[before:]]
    assert calls[-1] == "fdatasync"
    assert "fsync" in calls[calls.index("open") :]
    journal.flush()
    assert len(log.made) - before == len(calls), "nothing new, so nothing to make durable"
    journal.finish()
    assert [name for name, _ in log.made][-3:] == ["fdatasync", "rename", "fsync"]
    journal.close()


def test_a_finish_that_crashed_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    journal = store_at(tmp_path).open(NAME)
    (tmp_path / ".c11/journal" / f"{NAME}.tmp").write_bytes(b"half of it")
    journal.finish()
    journal.close()
    assert [file.name for file in (tmp_path / ".c11/journal").iterdir()] == [NAME]


def test_invariant_27_directories_are_0700_and_files_0600(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        journal = store_at(tmp_path).open(NAME)
        journal.append(TILES[:1])
        file = tmp_path / ".c11/journal" / NAME
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        journal.finish()
        journal.close()
    finally:
        os.umask(mask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / ".c11").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / ".c11/journal").stat().st_mode) == 0o700


@pytest.mark.parametrize("where", [".c11", ".c11/journal"])
def test_invariant_27_a_planted_directory_link_is_not_followed(tmp_path: Path, where: str) -> None:
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "root"
    elsewhere.mkdir()
    (root / where).parent.mkdir(parents=True)
    (root / where).symlink_to(elsewhere)
    with pytest.raises(StorageError, match="symbolic link"):
        store_at(root).open(NAME)
    assert list(elsewhere.iterdir()) == []


def test_invariant_27_a_planted_journal_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    journal = store_at(tmp_path).open(NAME)
    (tmp_path / ".c11/journal" / NAME).symlink_to(victim)
    with pytest.raises(StorageError, match="symbolic link"):
        journal.append(TILES[:1])
    journal.close()
    with pytest.raises(StorageError, match="symbolic link"):
        store_at(tmp_path).open(NAME)
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize("name", [NAME, f"{NAME}.tmp"])
def test_invariant_27_a_link_planted_before_the_end_is_replaced_not_followed(
    tmp_path: Path, name: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    journal = store_at(tmp_path).open(NAME)
    journal.append(TILES[:1])
    planted = tmp_path / ".c11/journal" / name
    planted.unlink(missing_ok=True)
    planted.symlink_to(victim)
    journal.finish()
    journal.close()
    assert victim.read_bytes() == b"precious"
    assert not (tmp_path / ".c11/journal" / NAME).is_symlink()


def test_what_is_no_file_is_no_journal(tmp_path: Path) -> None:
    store_at(tmp_path).open(NAME).close()
    os.mkfifo(tmp_path / ".c11/journal" / NAME)
    with pytest.raises(StorageError, match="regular file"):
        store_at(tmp_path).open(NAME)
