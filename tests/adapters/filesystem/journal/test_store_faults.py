"""A disk that fails under a journal, at each call that it makes; and names that lead elsewhere."""

import errno
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from support.disk_faults import CallLog

from tileferry.adapters.filesystem.files import FileCalls
from tileferry.adapters.filesystem.journal.store import FileJournal, FileJournalStore
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


class JournalRun:
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
            assert_journal_refuses_writes(journal)
            raise
        finally:
            journal.close()


def assert_journal_refuses_writes(journal: FileJournal) -> None:
    with pytest.raises(StorageError, match="earlier operation on this journal failed"):
        journal.append(TILES[:1])
    for call in (journal.flush, journal.finish):
        with pytest.raises(StorageError, match="earlier operation on this journal failed"):
            call()


def prepare_torn_tail(root: Path) -> list[TileId]:
    journal = store_at(root).open(NAME)
    journal.append(TILES[:4])
    journal.flush()
    journal.close()
    with (root / ".c11/journal" / NAME).open("ab") as file:
        file.write(b"55 0badc0de {torn")
    return TILES[:4]


def prepare_nothing(_root: Path) -> list[TileId]:
    return []


@pytest.mark.parametrize("before", [prepare_nothing, prepare_torn_tail])
@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
def test_invariants_4_and_5_confirmed_tiles_survive_any_failed_call(
    tmp_path: Path, before: Callable[[Path], list[TileId]], code: int
) -> None:
    before(tmp_path / "good")
    good = CallLog()
    JournalRun(store_at(tmp_path / "good", good.calls)).go()
    assert {"mkdir", "open", "write", "fdatasync", "fsync", "rename"} <= {n for n, _ in good.made}

    for fail_at, (name, _) in enumerate(good.made):
        root = tmp_path / f"{fail_at}-{name}"
        known = before(root)
        log = CallLog(fail_at=fail_at, code=code)
        run = JournalRun(store_at(root, log.calls))
        with pytest.raises(StorageError) as caught:
            run.go()
        assert os.strerror(code) in str(caught.value)
        assert "fdatasync" not in [name for name, _ in log.made[fail_at + 1 :]]
        check_remaining_journal(root, known, run)


def check_remaining_journal(root: Path, known: list[TileId], run: JournalRun) -> None:
    store = store_at(root)
    journal, found = store.open(NAME), TileSet(AREA)
    journal.read_into(found)
    if not journal.complete:  # the rename may have happened, its confirmation not
        left = [tile for tile in TILES if tile in found]
        assert set(known) | set(run.appended[: run.flushed]) <= set(left)
        assert set(left) <= set(known) | set(run.appended)
    journal.close()
    again = JournalRun(store)
    again.go()
    journal = store.open(NAME)
    assert (again.finished, journal.complete, journal.count) == (True, True, 12)
    journal.close()
    assert [file.name for file in (root / ".c11/journal").iterdir()] == [NAME]


def test_interrupted_write_disables_the_journal(tmp_path: Path) -> None:
    def interrupted(fd: int, content: bytes) -> int:
        os.write(fd, content[:5])
        raise KeyboardInterrupt

    journal = store_at(tmp_path, FileCalls(write=interrupted)).open(NAME)
    with pytest.raises(KeyboardInterrupt):
        journal.append(TILES[:1])
    with pytest.raises(StorageError, match="earlier operation on this journal failed"):
        journal.append(TILES[1:2])
    journal.close()
    journal = store_at(tmp_path).open(NAME)
    journal.append(TILES[1:2])
    assert journal.count == 1
    journal.close()


def test_short_writes_are_continued(tmp_path: Path) -> None:
    calls = FileCalls(write=lambda fd, content: os.write(fd, content[:7]))
    journal = store_at(tmp_path, calls).open(NAME)
    journal.append(TILES[:5])
    journal.flush()
    journal.finish()
    journal.close()
    journal = store_at(tmp_path).open(NAME)
    assert (journal.complete, journal.count) == (True, 5)
    journal.close()


def test_invariant_2_new_journal_file_name_is_synced_before_use(tmp_path: Path) -> None:
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


def test_leftover_temp_file_of_a_crashed_finish_is_removed(tmp_path: Path) -> None:
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
def test_invariant_27_symlinked_directory_is_not_followed(tmp_path: Path, where: str) -> None:
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "root"
    elsewhere.mkdir()
    (root / where).parent.mkdir(parents=True)
    (root / where).symlink_to(elsewhere)
    with pytest.raises(StorageError, match="symbolic link"):
        store_at(root).open(NAME)
    assert list(elsewhere.iterdir()) == []


def test_invariant_27_symlinked_journal_is_not_followed(tmp_path: Path) -> None:
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
def test_invariant_27_symlink_planted_before_finish_is_replaced(tmp_path: Path, name: str) -> None:
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


def test_journal_that_is_not_a_regular_file_is_rejected(tmp_path: Path) -> None:
    store_at(tmp_path).open(NAME).close()
    os.mkfifo(tmp_path / ".c11/journal" / NAME)
    with pytest.raises(StorageError, match="regular file"):
        store_at(tmp_path).open(NAME)
