"""Compaction frees dead bytes and loses no live one."""

import errno
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread

import pytest
from support.segments import content, damages, failing, segments_of, store_tiles, tile

from tileferry.adapters.filesystem.files import FileCalls
from tileferry.adapters.filesystem.segment_store import SegmentTileStore
from tileferry.adapters.memory import MemoryBlobIndex
from tileferry.domain.errors import StorageError
from tileferry.domain.tiles import BlobRef, TileId

PER_SEGMENT = 4


@pytest.fixture
def index() -> MemoryBlobIndex:
    return MemoryBlobIndex()


def opened(
    root: Path, index: MemoryBlobIndex, calls: FileCalls | None = None, locations_max: int = 100
) -> SegmentTileStore:
    return SegmentTileStore(
        root=root, index=index, segment_bytes_max=2_300, calls=calls, locations_max=locations_max
    )


@pytest.fixture
def root(tmp_path: Path, index: MemoryBlobIndex) -> Path:
    """A cache of three segments: one dead, one with a live tile, one full."""
    with opened(tmp_path, index) as store:
        store_tiles(store, index, range(3 * PER_SEGMENT))
        for number in (0, 1, 2, 3, 4, 5, 7):
            store.delete_tile(tile(number))
    assert len(segments_of(tmp_path)) == 3
    return tmp_path


LIVE = (6, 8, 9, 10, 11)


def assert_all_live(store: SegmentTileStore) -> None:
    assert [store.read_tile(tile(number)) for number in LIVE] == [*map(content, LIVE)]
    assert not store.tile_exists(tile(0))
    assert damages(store.verify()) == []


def test_dead_segments_go_and_sparse_ones_move(root: Path, index: MemoryBlobIndex) -> None:
    with opened(root, index) as store:
        assert_all_live(store)
        dead, sparse = store.compact()
        assert (dead.segment, dead.removed, dead.moved_tiles) == (1, True, 0)
        assert (sparse.segment, sparse.removed, sparse.moved_tiles) == (2, True, 1)
        assert sparse.moved_bytes == 500
        assert_all_live(store)
        assert store.compact() == []
    assert segments_of(root) == ["000000003.seg", "000000004.seg"]
    with opened(root, index) as store:
        assert_all_live(store)


def test_everything_moves_when_asked(root: Path, index: MemoryBlobIndex) -> None:
    with opened(root, index) as store:
        assert sum(done.moved_tiles for done in store.compact(live_share_min=1.0)) == len(LIVE)
        assert_all_live(store)
    assert segments_of(root) == ["000000004.seg", "000000005.seg"]


def test_an_empty_cache_has_nothing_to_compact(tmp_path: Path, index: MemoryBlobIndex) -> None:
    with opened(tmp_path, index) as store:
        assert store.compact() == []
    assert segments_of(tmp_path) == []


def test_no_number_is_used_twice(root: Path, index: MemoryBlobIndex) -> None:
    with opened(root, index) as store:
        for number in LIVE:
            store.delete_tile(tile(number))
        assert [done.segment for done in store.compact()] == [1, 2, 3]
    assert segments_of(root) == ["000000004.seg"]


def test_segments_whose_rows_may_be_still_to_come_stay(root: Path, index: MemoryBlobIndex) -> None:
    with opened(root, index) as store:
        rows = [(tile(n), store.write_tile(tile(n), content(n))) for n in range(20, 30)]
        store.flush()
        store.compact(live_share_min=1.0)
        for tile_id, blob in rows:
            index.add(tile_id, blob)
        assert all(store.read_tile(tile(n)) == content(n) for n in range(20, 30))


def test_a_damaged_tile_stays_where_it_is_and_is_told(root: Path, index: MemoryBlobIndex) -> None:
    blob = index.locate(tile(9))
    assert blob is not None
    path = root / ".c6/segments/000000003.seg"
    raw = bytearray(path.read_bytes())
    raw[blob.offset + 200] ^= 1
    path.write_bytes(raw)
    with opened(root, index) as store:
        done = {each.segment: each for each in store.compact(live_share_min=1.0)}
        assert not done[3].removed
        assert [error.tile for error in done[3].damaged] == [str(tile(9))]
        assert done[3].moved_tiles == 3
        assert [index.locate(tile(9)) == blob, path.exists()] == [True, True]
        assert all(store.read_tile(tile(n)) == content(n) for n in LIVE if n != 9)


class Rival(MemoryBlobIndex):
    """Somebody deletes a tile and replaces another just before rows are moved."""

    newer: BlobRef | None = None

    def move(self, moves: Sequence[tuple[TileId, BlobRef, BlobRef]]) -> int:
        if self.newer is not None:
            self.forget([tile(8)])
            self.add(tile(9), self.newer)
        return super().move(moves)


def test_a_tile_changed_meanwhile_is_not_changed_back(tmp_path: Path) -> None:
    index = Rival()
    with opened(tmp_path, index) as store:
        store_tiles(store, index, range(12))
    with opened(tmp_path, index) as store:
        index.newer = store.write_tile(tile(9), b"newer")
        store.compact(live_share_min=1.0)
        assert not store.tile_exists(tile(8))
        assert store.read_tile(tile(9)) == b"newer"
        assert store.read_tile(tile(10)) == content(10)


def test_readers_go_on_while_tiles_move(tmp_path: Path, index: MemoryBlobIndex) -> None:
    with opened(tmp_path, index) as store:
        store_tiles(store, index, range(40))
    stop, failures = Event(), list[BaseException]()
    reads = 0

    def read(store: SegmentTileStore) -> None:
        nonlocal reads
        try:
            while not stop.is_set():
                for number in range(40):
                    assert store.read_tile(tile(number)) == content(number)
                    reads += 1
        except BaseException as error:  # noqa: BLE001  # handed to the main thread
            failures.append(error)

    for _ in range(5):
        with opened(tmp_path, index, locations_max=20) as store:
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
def test_a_fault_at_any_call_loses_nothing(
    root: Path, index: MemoryBlobIndex, kind: str, nth: int
) -> None:
    calls = failing(kind, nth, errno.ENOSPC)
    try:
        with opened(root, index, calls) as store:
            store.compact(live_share_min=1.0)
    except StorageError as error:
        assert error.remedy  # noqa: PT017  # some of these calls are never reached
    with opened(root, index) as store:
        assert_all_live(store)
        store.compact(live_share_min=1.0)
        assert_all_live(store)


def test_a_full_disk_gets_its_dead_segments_back(root: Path, index: MemoryBlobIndex) -> None:
    with (
        opened(root, index, failing("writev", 1, errno.ENOSPC)) as store,
        pytest.raises(StorageError, match="free space"),
    ):
        store.compact()
    assert "000000001.seg" not in segments_of(root)
