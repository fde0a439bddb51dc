"""A disk that fails or is full under a whole download: no ack, no partial tile, and it goes on."""

import errno
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from sqlalchemy import text
from support.cache import TILES, Cache, check_cache, content, journal_name, open_cache
from support.disk_faults import CallLog, CountedDisk, SmallDisk, mount_small_disk

from tileferry.adapters.filesystem.files import FileCalls
from tileferry.adapters.filesystem.segments.store import SegmentTileStore
from tileferry.adapters.postgres import Database, PostgresBlobIndex
from tileferry.domain.errors import StorageError
from tileferry.domain.tiles import TileId


class Download:
    """A download in groups of 12 tiles, and what it was promised on the way."""

    def __init__(self, root: Path, database: Database, calls: FileCalls | None = None) -> None:
        self.root = root
        self.database = database
        self.calls = calls or CallLog().calls
        self.acked: list[TileId] = []
        self.tried: list[TileId] = []

    def run(self, tiles_max: int) -> None:
        with open_cache(self.root, self.database, calls=self.calls) as cache:
            try:
                self._store(cache, tiles_max)
            except StorageError:
                assert_store_refuses_writes(cache)
                raise

    def _store(self, cache: Cache, tiles_max: int) -> None:
        wanted = set(TILES[:tiles_max])
        missing = (tile for tile in cache.missing() if tile in wanted)
        while group := list(islice(missing, 12)):
            self.tried += group
            for tile in group:
                cache.add(tile)
            cache.group.flush()
            self.acked += group
        if tiles_max >= len(TILES):
            cache.journal.finish()


def assert_store_refuses_writes(cache: Cache) -> None:
    """After an error of the disk the same stores confirm nothing any more."""

    def try_another() -> None:
        cache.add(TILES[-1])
        cache.group.flush()

    for _ in range(2):
        with pytest.raises(StorageError):
            try_another()


def delete_rows(database: Database) -> None:
    with database.transaction() as connection:
        connection.execute(text("DELETE FROM tiles"))


def prepare_nothing(_root: Path, _database: Database) -> list[TileId]:
    return []


def prepare_torn_tail(root: Path, database: Database) -> list[TileId]:
    """Leave what a crash may leave: some tiles, and the beginning of a record."""
    earlier = Download(root, database)
    earlier.run(tiles_max=12)
    with (root / ".c11/journal" / journal_name(0)).open("ab") as file:
        file.write(b"55 0badc0de {torn")
    return earlier.acked


@pytest.mark.parametrize(
    ("code", "before"),
    [
        (errno.ENOSPC, prepare_nothing),
        (errno.EIO, prepare_nothing),
        (errno.ENOSPC, prepare_torn_tail),
    ],
)
def test_invariants_4_5_failed_call_confirms_nothing_and_the_run_resumes(
    tmp_path: Path,
    database: Database,
    code: int,
    before: Callable[[Path, Database], list[TileId]],
) -> None:
    before(tmp_path / "good", database)
    good = CallLog()
    Download(tmp_path / "good", database, good.calls).run(tiles_max=36)
    kinds = [name for name, _ in good.made]
    assert {"mkdir", "open", "write", "writev", "fdatasync", "fsync"} <= set(kinds)
    groups = sum(kind == "write" for kind in kinds)
    assert sum(kind == "writev" for kind in kinds) > groups, "also in the middle of a group"

    for fail_at, kind in enumerate(kinds):
        delete_rows(database)
        root = tmp_path / f"{fail_at}-{kind}"
        known = before(root, database)
        log = CallLog(fail_at=fail_at, code=code)
        download = Download(root, database, log.calls)
        with pytest.raises(StorageError) as caught:
            download.run(tiles_max=36)
        assert os.strerror(code) in str(caught.value)
        assert is_left_alone_after_failure(log, fail_at)

        done = check_cache(root, database)
        assert {*known, *download.acked} <= done
        assert done <= {*known, *download.tried}, "the one that failed may be there"
        Download(root, database).run(tiles_max=36)
        assert check_cache(root, database) >= set(TILES[:36])


def is_left_alone_after_failure(log: CallLog, fail_at: int) -> bool:
    """Tell whether the file that failed was left alone: neither written nor synced again."""
    writing = {"write", "writev", "fdatasync", "fsync", "ftruncate"}
    later = zip(log.made[fail_at + 1 :], log.paths[fail_at + 1 :], strict=True)
    used = {path for (name, _), path in later if name in writing}
    return log.made[fail_at][0] not in writing or log.paths[fail_at] not in used


def test_invariant_3_tiles_of_a_damaged_journal_record_are_downloaded_again(
    tmp_path: Path, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    Download(tmp_path, database).run(tiles_max=36)
    journal = tmp_path / ".c11/journal" / journal_name(0)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:2], lines[2].replace(b"sat", b"cat"), *lines[3:]]))
    again = Download(tmp_path, database)
    again.run(tiles_max=36)
    assert again.acked == TILES[12:24]
    assert check_cache(tmp_path, database) == set(TILES[:36])
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_invariant_2_rows_are_committed_only_after_their_bytes_are_durable(
    tmp_path: Path, database: Database
) -> None:
    """The bytes' sync, and the journal's first byte: what is visible at each of them."""
    seen: list[tuple[str, int]] = []

    def rows() -> int:
        with database.read_connection() as connection:
            return int(connection.execute(text("SELECT count(*) FROM tiles")).scalar_one())

    def synced(fd: int) -> None:
        seen.append((Path(f"/proc/self/fd/{fd}").readlink().suffix, rows()))

    calls = FileCalls(fdatasync=synced)
    with open_cache(tmp_path, database, calls=calls) as cache, cache.group:
        for tile in TILES[:4]:
            cache.add(tile)
    assert seen == [(".seg", 0), (".json", 4)]


def test_invariant_2_new_directories_and_names_are_synced_before_use(
    tmp_path: Path, database: Database
) -> None:
    synced: list[str] = []

    def noted(fd: int) -> None:
        synced.append(os.path.relpath(Path(f"/proc/self/fd/{fd}").readlink(), tmp_path))

    calls = FileCalls(fsync=noted, fdatasync=noted)
    with open_cache(tmp_path / "a/b", database, calls=calls) as cache, cache.group:
        cache.add(TILES[0])
    segment, journal = "a/b/.c6/segments", "a/b/.c11/journal"
    made = {".", "a", "a/b", "a/b/.c6", segment, "a/b/.c11", journal}
    assert made <= set(synced)
    at_flush = synced[synced.index(f"{segment}/000000001.seg") :]
    assert at_flush == [
        f"{segment}/000000001.seg",
        segment,
        journal,
        f"{journal}/{journal_name(0)}",
    ]


def test_invariant_2_root_created_before_a_crash_is_synced_on_open(
    tmp_path: Path, database: Database
) -> None:
    (tmp_path / "root").mkdir(mode=0o700)
    log = CallLog(fail_at=2)  # the root, what is above it, and its sync
    with (
        pytest.raises(StorageError, match="make durable"),
        open_cache(tmp_path / "root", database, calls=log.calls),
    ):
        pass
    assert [name for name, _ in log.made] == ["open", "open", "fsync"]


@pytest.fixture(params=["a real one if possible", "counted"])
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SmallDisk]:
    """A disk of 512 kB; the counted one stands in where this machine mounts nothing."""
    path = tmp_path / "disk"
    path.mkdir()
    if request.param == "counted":
        yield CountedDisk(path)
        return
    with mount_small_disk(path) as disk:
        yield disk or CountedDisk(path)


def test_invariant_5_full_disk_loses_no_confirmed_tile(
    small_disk: SmallDisk, database: Database
) -> None:
    root = small_disk.path / "cache"
    acked: set[TileId] = set()
    for attempt in range(3):  # who tries again without making room is refused again
        download = Download(root, database, small_disk.calls)
        with pytest.raises(StorageError, match="No space left on device; free space") as caught:
            download.run(tiles_max=len(TILES))
        assert str(small_disk.path) in str(caught.value)
        acked |= set(download.acked)
        assert acked <= check_cache(root, database)
        assert attempt > 0 or len(acked) > 100
    small_disk.enlarge()
    Download(root, database, small_disk.calls).run(tiles_max=len(TILES))
    assert check_cache(root, database) == set(TILES)
    with SegmentTileStore(root=root, index=PostgresBlobIndex(database)) as store:
        assert [store.read_tile(tile) for tile in TILES] == [content(tile, 0) for tile in TILES]
