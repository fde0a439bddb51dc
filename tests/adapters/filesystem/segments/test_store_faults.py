"""A disk that fails: nothing unconfirmed counts, and everything confirmed stays."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from support.segments import (
    create_content,
    create_failing_calls,
    create_tile,
    list_damages,
    store_tiles,
)

from tileferry.adapters.filesystem.files import Directory, FileCalls
from tileferry.adapters.filesystem.segments.store import SegmentTileStore
from tileferry.adapters.memory import MemoryBlobIndex
from tileferry.domain.errors import InvalidValueError, StorageError

FAULTS = [errno.EIO, errno.ENOSPC]


def fill_until_failure(root: Path, index: MemoryBlobIndex, calls: FileCalls) -> int:
    """Write groups until something fails; return how many were confirmed."""
    confirmed = 0
    with SegmentTileStore(
        root=root, index=index, segment_bytes_max=4_000, buffer_bytes_max=1_500, calls=calls
    ) as store:
        try:
            for group in range(5):
                store_tiles(store, index, range(group * 4, group * 4 + 4))
                confirmed += 1
        except StorageError:
            for refused in (lambda: store.write_tile(create_tile(99), b"x"), store.flush):
                with pytest.raises(StorageError, match="restart; confirmed tiles are kept"):
                    refused()
            assert all(
                store.read_tile(create_tile(n)) == create_content(n) for n in range(confirmed * 4)
            )
    return confirmed


@pytest.mark.parametrize("error", FAULTS, ids=errno.errorcode.get)
@pytest.mark.parametrize("nth", range(1, 8))
@pytest.mark.parametrize("kind", ["writev", "fdatasync"])
def test_invariant_4_5_nothing_is_confirmed_after_a_failed_write_or_sync(
    tmp_path: Path, kind: str, nth: int, error: int
) -> None:
    index = MemoryBlobIndex()
    confirmed = fill_until_failure(tmp_path, index, create_failing_calls(kind, nth, error))
    assert confirmed < 5
    assert sum(length for _, length in index.sum_live_bytes()) == confirmed * 4 * 500
    assert fill_until_failure(tmp_path, index, FileCalls()) == 5  # a new run carries on
    with SegmentTileStore(root=tmp_path, index=index) as store:
        assert list_damages(store.verify()) == []


@pytest.mark.parametrize("error", [*FAULTS, errno.EMFILE], ids=errno.errorcode.get)
@pytest.mark.parametrize("nth", [5, 6])
def test_failed_segment_creation_disables_the_store(tmp_path: Path, nth: int, error: int) -> None:
    index = MemoryBlobIndex()  # four directories are opened first
    assert fill_until_failure(tmp_path, index, create_failing_calls("open", nth, error)) < 5
    assert fill_until_failure(tmp_path, index, FileCalls()) == 5


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["fsync", "mkdir", "open"])
def test_failed_open_raises_and_leaks_no_file_descriptors(
    tmp_path: Path, kind: str, nth: int
) -> None:
    calls = create_failing_calls(kind, nth)
    before = set(Path("/proc/self/fd").iterdir())
    if (kind, nth) in {("mkdir", 3), ("mkdir", 4)}:
        SegmentTileStore(root=tmp_path, index=MemoryBlobIndex(), calls=calls).close()
    else:
        with pytest.raises(StorageError, match=str(tmp_path)):
            SegmentTileStore(root=tmp_path, index=MemoryBlobIndex(), calls=calls)
    assert set(Path("/proc/self/fd").iterdir()) <= before  # none is left open
    SegmentTileStore(root=tmp_path, index=MemoryBlobIndex()).close()


def test_new_segment_name_is_synced(tmp_path: Path) -> None:
    index = MemoryBlobIndex()
    calls = create_failing_calls("fsync", 6)  # five when the directories were made
    with SegmentTileStore(root=tmp_path, index=index, calls=calls) as store:
        with pytest.raises(StorageError, match="segments"):
            store_tiles(store, index, [1])
        assert not store.tile_exists(create_tile(1))


def test_invariant_4_failed_sync_is_never_retried(tmp_path: Path) -> None:
    synced: list[int] = []

    def fails_once(fd: int) -> None:
        synced.append(fd)
        if len(synced) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    calls = FileCalls(fdatasync=fails_once)
    with SegmentTileStore(root=tmp_path, index=MemoryBlobIndex(), calls=calls) as store:
        store.write_tile(create_tile(1), b"x")
        for _ in range(3):
            with pytest.raises(StorageError):
                store.flush()
    assert len(synced) == 1


def test_short_and_interrupted_writes_are_continued(tmp_path: Path) -> None:
    written = 0

    def stumbling(fd: int, parts: list[bytes]) -> int:
        nonlocal written
        written += 1
        if written % 3 == 0:
            raise InterruptedError(errno.EINTR, "interrupted")
        return os.write(fd, b"".join(parts)[: 1 + written * 7])

    index = MemoryBlobIndex()
    with SegmentTileStore(root=tmp_path, index=index, calls=FileCalls(writev=stumbling)) as store:
        store_tiles(store, index, range(20))
        assert [store.read_tile(create_tile(n)) for n in range(20)] == [
            create_content(n) for n in range(20)
        ]
        assert list_damages(store.verify()) == []


def test_short_reads_are_continued(tmp_path: Path) -> None:
    index = MemoryBlobIndex()
    calls = FileCalls(pread=lambda fd, length, offset: os.pread(fd, min(length, 100), offset))
    with SegmentTileStore(root=tmp_path, index=index, calls=calls) as store:
        store_tiles(store, index, [1])
        assert store.read_tile(create_tile(1)) == create_content(1)


def test_read_error_raises_and_a_later_read_succeeds(tmp_path: Path) -> None:
    index = MemoryBlobIndex()
    with SegmentTileStore(root=tmp_path, index=index, calls=create_failing_calls("pread")) as store:
        store_tiles(store, index, [1])
        with pytest.raises(StorageError, match="the disk is failing"):
            store.read_tile(create_tile(1))
        assert store.read_tile(create_tile(1)) == create_content(1)


def test_interrupted_write_disables_the_store(tmp_path: Path) -> None:
    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    calls = FileCalls(writev=interrupted)
    with SegmentTileStore(root=tmp_path, index=MemoryBlobIndex(), calls=calls) as store:
        store.write_tile(create_tile(1), b"x")
        with pytest.raises(KeyboardInterrupt):
            store.flush()
        with pytest.raises(StorageError, match="restart; confirmed tiles are kept"):
            store.flush()


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (errno.ENOSPC, "free space, then re-run; confirmed data is kept"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "give this user"),
        (errno.ELOOP, "symbolic link"),
        (errno.EIO, "the disk is failing"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EXDEV, "check the disk"),
    ],
)
def test_each_os_error_has_a_remedy(tmp_path: Path, error: int, remedy: str) -> None:
    calls = create_failing_calls("rename", 1, error)
    with Directory.open_root(tmp_path, calls) as root:
        root.create_file("a").close()
        with pytest.raises(StorageError, match=remedy) as caught:
            root.rename("a", "b")
        assert caught.value.path == str(tmp_path / "b")
        assert isinstance(caught.value.__cause__, OSError)
        root.rename("a", "b")
        assert root.names() == ["b"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "a\0b"])
def test_invariant_26_names_with_path_parts_are_rejected(tmp_path: Path, name: str) -> None:
    with Directory.open_root(tmp_path, FileCalls()) as root:
        for use in (root.create_file, root.find_file, root.subdirectory, root.unlink):
            with pytest.raises(InvalidValueError, match="plain name"):
                use(name)
