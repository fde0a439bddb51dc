"""Compaction frees dead bytes and loses no live one."""

import errno
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread

import pytest
from support.segments import (
    create_content,
    create_failing_calls,
    create_tile,
    list_damages,
    list_segments,
    store_tiles,
)

from tileferry.adapters.filesystem.files import FileCalls
from tileferry.adapters.filesystem.segments.store import SegmentTileStore
from tileferry.adapters.memory import MemoryBlobIndex
from tileferry.domain.errors import StorageError
from tileferry.domain.tiles import BlobRef, TileId

PER_SEGMENT = 4


@pytest.fixture
def index() -> MemoryBlobIndex:
    return MemoryBlobIndex()


def open_store(
    root: Path, index: MemoryBlobIndex, calls: FileCalls | None = None, locations_max: int = 100
) -> SegmentTileStore:
    return SegmentTileStore(
        root=root, index=index, segment_bytes_max=2_300, calls=calls, locations_max=locations_max
    )


@pytest.fixture
def root(tmp_path: Path, index: MemoryBlobIndex) -> Path:
    """A cache of three segments: one dead, one with a live tile, one full."""
    with open_store(tmp_path, index) as store:
        store_tiles(store, index, range(3 * PER_SEGMENT))
        for number in (0, 1, 2, 3, 4, 5, 7):
            store.delete_tile(create_tile(number))
    assert len(list_segments(tmp_path)) == 3
    return tmp_path


LIVE = (6, 8, 9, 10, 11)


def assert_all_live(store: SegmentTileStore) -> None:
    assert [store.read_tile(create_tile(number)) for number in LIVE] == [*map(create_content, LIVE)]
    assert not store.tile_exists(create_tile(0))
    assert list_damages(store.verify()) == []


def test_invariant_8_segments_of_open_envelopes_are_kept(
    root: Path, index: MemoryBlobIndex
) -> None:
    dead, sparse = 1, 2
    index.envelope_segments = (dead,)
    with open_store(root, index) as store:
        assert [done.segment for done in store.compact()] == [sparse]
        index.envelope_segments = ()
        assert [done.segment for done in store.compact()] == [dead]
        assert_all_live(store)


def test_compaction_removes_dead_segments_and_moves_sparse_ones(
    root: Path, index: MemoryBlobIndex
) -> None:
    with open_store(root, index) as store:
        assert_all_live(store)
        dead, sparse = store.compact()
        assert (dead.segment, dead.removed, dead.moved_tiles) == (1, True, 0)
        assert (sparse.segment, sparse.removed, sparse.moved_tiles) == (2, True, 1)
        assert sparse.moved_bytes == 500
        assert_all_live(store)
        assert store.compact() == []
    assert list_segments(root) == ["000000003.seg", "000000004.seg"]
    with open_store(root, index) as store:
        assert_all_live(store)


def test_full_compaction_moves_all_live_tiles(root: Path, index: MemoryBlobIndex) -> None:
    with open_store(root, index) as store:
        assert sum(done.moved_tiles for done in store.compact(live_share_min=1.0)) == len(LIVE)
        assert_all_live(store)
    assert list_segments(root) == ["000000004.seg", "000000005.seg"]


def test_an_empty_cache_has_nothing_to_compact(tmp_path: Path, index: MemoryBlobIndex) -> None:
    with open_store(tmp_path, index) as store:
        assert store.compact() == []
    assert list_segments(tmp_path) == []


def test_segment_numbers_are_never_reused(root: Path, index: MemoryBlobIndex) -> None:
    with open_store(root, index) as store:
        for number in LIVE:
            store.delete_tile(create_tile(number))
        assert [done.segment for done in store.compact()] == [1, 2, 3]
    assert list_segments(root) == ["000000004.seg"]


def test_segments_awaiting_rows_are_not_compacted(root: Path, index: MemoryBlobIndex) -> None:
    with open_store(root, index) as store:
        rows = [
            (create_tile(n), store.write_tile(create_tile(n), create_content(n)))
            for n in range(20, 30)
        ]
        store.flush()
        store.compact(live_share_min=1.0)
        for tile_id, blob in rows:
            index.add(tile_id, blob)
        assert all(store.read_tile(create_tile(n)) == create_content(n) for n in range(20, 30))


def test_damaged_tile_is_reported_and_not_moved(root: Path, index: MemoryBlobIndex) -> None:
    blob = index.locate(create_tile(9))
    assert blob is not None
    path = root / ".c6/segments/000000003.seg"
    raw = bytearray(path.read_bytes())
    raw[blob.location[1] + 200] ^= 1
    path.write_bytes(raw)
    with open_store(root, index) as store:
        done = {each.segment: each for each in store.compact(live_share_min=1.0)}
        assert not done[3].removed
        assert [error.tile for error in done[3].damaged] == [str(create_tile(9))]
        assert done[3].moved_tiles == 3
        assert [index.locate(create_tile(9)) == blob, path.exists()] == [True, True]
        assert all(store.read_tile(create_tile(n)) == create_content(n) for n in LIVE if n != 9)


class ConcurrentlyChangedIndex(MemoryBlobIndex):
    """Somebody deletes a tile and replaces another just before rows are moved."""

    newer: BlobRef | None = None

    def move(self, moves: Sequence[tuple[TileId, BlobRef, BlobRef]]) -> int:
        if self.newer is not None:
            self.forget([create_tile(8)])
            self.add(create_tile(9), self.newer)
        return super().move(moves)


def test_concurrent_changes_are_not_overwritten_by_compaction(tmp_path: Path) -> None:
    index = ConcurrentlyChangedIndex()
    with open_store(tmp_path, index) as store:
        store_tiles(store, index, range(12))
    with open_store(tmp_path, index) as store:
        index.newer = store.write_tile(create_tile(9), b"newer")
        store.compact(live_share_min=1.0)
        assert not store.tile_exists(create_tile(8))
        assert store.read_tile(create_tile(9)) == b"newer"
        assert store.read_tile(create_tile(10)) == create_content(10)


def test_reads_succeed_during_compaction(tmp_path: Path, index: MemoryBlobIndex) -> None:
    with open_store(tmp_path, index) as store:
        store_tiles(store, index, range(40))
    stop, failures = Event(), list[BaseException]()
    reads = 0

    def read(store: SegmentTileStore) -> None:
        nonlocal reads
        try:
            while not stop.is_set():
                for number in range(40):
                    assert store.read_tile(create_tile(number)) == create_content(number)
                    reads += 1
        except BaseException as error:  # noqa: BLE001  # handed to the main thread
            failures.append(error)

    for _ in range(5):
        with open_store(tmp_path, index, locations_max=20) as store:
            stop.clear()
            threads = [Thread(target=read, args=[store]) for _ in range(3)]
            for thread in threads:
                thread.start()
            assert sum(done.moved_tiles for done in store.compact(live_share_min=1.0)) == 40
            stop.set()
            for thread in threads:
                thread.join()
    assert failures == []
    assert reads


@pytest.mark.parametrize("kind", ["writev", "fdatasync", "fsync", "unlink", "open"])
@pytest.mark.parametrize("nth", range(1, 12))
def test_failed_call_during_compaction_loses_no_tile(
    root: Path, index: MemoryBlobIndex, kind: str, nth: int
) -> None:
    calls = create_failing_calls(kind, nth, errno.ENOSPC)
    try:
        with open_store(root, index, calls) as store:
            store.compact(live_share_min=1.0)
    except StorageError as error:
        assert error.remedy  # noqa: PT017  # some of these calls are never reached
    with open_store(root, index) as store:
        assert_all_live(store)
        store.compact(live_share_min=1.0)
        assert_all_live(store)


def test_full_disk_still_frees_dead_segments(root: Path, index: MemoryBlobIndex) -> None:
    with (
        open_store(root, index, create_failing_calls("writev", 1, errno.ENOSPC)) as store,
        pytest.raises(StorageError, match="free space"),
    ):
        store.compact()
    assert "000000001.seg" not in list_segments(root)
