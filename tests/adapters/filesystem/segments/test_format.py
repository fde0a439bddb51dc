"""How segments lie on the disk, and how a store opens and reads them."""

import stat
import struct
import zlib
from hashlib import sha256
from pathlib import Path

import pytest
import xxhash
from support.segments import create_content, create_tile, list_segments, store_tiles

from tileferry.adapters.filesystem.files import FileCalls
from tileferry.adapters.filesystem.segments.format import parse_segment_number, segment_name
from tileferry.adapters.filesystem.segments.reader import LocationCache
from tileferry.adapters.filesystem.segments.store import SegmentTileStore
from tileferry.adapters.memory import MemoryBlobIndex
from tileferry.application.cache.group_commit import GROUP_TILES_MAX
from tileferry.domain.errors import StorageError, TileNotFoundError
from tileferry.domain.tiles import BlobRef, TileId


def test_segment_bytes_match_the_documented_format(tmp_path: Path) -> None:
    index = MemoryBlobIndex()
    with SegmentTileStore(root=tmp_path, index=index) as store:
        first = store.write_tile(create_tile(7), b"payload")
        second = store.write_tile(create_tile(8), b"")
        store.flush()
    fields = struct.pack("<8sI", b"TILEFSEG", 1)
    expected = fields + struct.pack("<I", zlib.crc32(fields))
    assert first.location[1] == len(expected) == 16
    for name, payload in (b"osm/21/7/7", b"payload"), (b"osm/21/8/8", b""):
        head = struct.pack(
            "<4sHIQ32s",
            b"TILE",
            len(name),
            len(payload),
            xxhash.xxh3_64_intdigest(payload),
            sha256(payload).digest(),
        )
        expected += head + struct.pack("<I", zlib.crc32(head + name)) + name + payload
    assert (tmp_path / ".c6/segments/000000001.seg").read_bytes() == expected
    assert second.location[1] == first.location[1] + 54 + 10 + 7


def test_created_files_are_private_to_their_owner(tmp_path: Path) -> None:
    root = tmp_path / "new" / "root"
    with SegmentTileStore(root=root, index=MemoryBlobIndex()) as store:
        store.write_tile(create_tile(1), b"x")
        store.flush()
    made = [root.parent, root, *root.rglob("*")]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made}
    assert modes == {
        "new": 0o700,
        "root": 0o700,
        ".c6": 0o700,
        "segments": 0o700,
        "000000001.seg": 0o600,
    }


def test_each_store_starts_a_new_segment(tmp_path: Path) -> None:
    index = MemoryBlobIndex()
    for number in range(3):
        with SegmentTileStore(root=tmp_path, index=index) as store:
            store_tiles(store, index, [number])
    assert list_segments(tmp_path) == ["000000001.seg", "000000002.seg", "000000003.seg"]
    with SegmentTileStore(root=tmp_path, index=index) as store:
        assert [store.read_tile(create_tile(number)) for number in range(3)] == [
            *map(create_content, range(3))
        ]
    assert len(list_segments(tmp_path)) == 3  # who only reads makes none


def test_torn_tail_and_unknown_files_are_ignored(tmp_path: Path) -> None:
    index = MemoryBlobIndex()
    with SegmentTileStore(root=tmp_path, index=index) as store:
        store_tiles(store, index, [1])
    with (tmp_path / ".c6/segments/000000001.seg").open("ab") as segment:
        segment.write(b"TILE torn")
    for name in ("000000002.seg", "notes.txt", "7.seg", "000000000.seg", "0000000009.seg"):
        (tmp_path / ".c6/segments" / name).touch()
    with SegmentTileStore(root=tmp_path, index=index) as store:
        store_tiles(store, index, [2])
        assert store.read_tile(create_tile(1)) == create_content(1)
        located = index.locate(create_tile(2))
        assert located is not None
        assert located.location[0] == 3


def test_segments_roll_over_when_full(tmp_path: Path) -> None:
    index = MemoryBlobIndex()
    with SegmentTileStore(root=tmp_path, index=index, segment_bytes_max=2_000) as store:
        store_tiles(store, index, range(60))  # one group in 20 segments
        blob = store.write_tile(
            create_tile(60), bytes(5_000)
        )  # larger than any: has one of its own
        store.flush()
        index.add(create_tile(60), blob)
        store_tiles(store, index, [61])
        assert all(
            store.read_tile(create_tile(number)) == create_content(number) for number in range(60)
        )
        assert store.read_tile(create_tile(60)) == bytes(5_000)
    sizes = [path.stat().st_size for path in sorted((tmp_path / ".c6/segments").iterdir())]
    assert len(sizes) == 22
    assert [size for size in sizes if size > 2_000] == [sizes[20]]


def test_opening_the_store_reads_no_segment(tmp_path: Path) -> None:
    index = MemoryBlobIndex()
    with SegmentTileStore(root=tmp_path, index=index, segment_bytes_max=2_000) as store:
        store_tiles(store, index, range(60))
    opened: list[object] = []
    real = FileCalls().open

    def counted(path: object, *args: int, **named: int) -> int:
        opened.append(path)
        return real(path, *args, **named)

    with SegmentTileStore(root=tmp_path, index=index, calls=FileCalls(open=counted)):
        assert opened == [tmp_path, "..", ".c6", "segments"]


def test_open_files_are_limited(tmp_path: Path) -> None:
    index = MemoryBlobIndex()
    with SegmentTileStore(
        root=tmp_path, index=index, segment_bytes_max=1, open_files_max=3
    ) as store:
        store_tiles(store, index, range(20))
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(2):
            assert all(
                store.read_tile(create_tile(number)) == create_content(number)
                for number in range(20)
            )
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 3


def test_closed_store_raises(tmp_path: Path) -> None:
    index = MemoryBlobIndex()
    store = SegmentTileStore(root=tmp_path, index=index)
    store_tiles(store, index, [1])
    store.close()
    store.close()
    with pytest.raises(StorageError, match="closed"):
        store.read_tile(create_tile(1))
    with pytest.raises(StorageError, match="closed"):
        store.write_tile(create_tile(2), b"")
    with pytest.raises(StorageError, match="closed"):
        store.flush()


def test_externally_removed_rows_are_seen_after_forget_locations(tmp_path: Path) -> None:
    index = MemoryBlobIndex()
    with SegmentTileStore(root=tmp_path, index=index) as store:
        store_tiles(store, index, [1])
        store.read_tile(create_tile(1))
        index.forget([create_tile(1)])
        store.forget_locations()
        with pytest.raises(TileNotFoundError):
            store.read_tile(create_tile(1))


def test_cached_locations_are_bounded(tmp_path: Path) -> None:
    index = MemoryBlobIndex()
    with SegmentTileStore(root=tmp_path, index=index, locations_max=10) as store:
        store_tiles(store, index, range(50))
        for _ in range(2):
            assert all(store.read_tile(create_tile(n)) == create_content(n) for n in range(50))
        assert len(store._locations._known) == 10


def test_stale_location_is_not_cached() -> None:
    old, new = (BlobRef(location=(n, 16), length=5, sha256="ab" * 32) for n in (1, 2))
    locations = LocationCache(entries_max=10)
    asked_early = locations.changes  # and the index said: the old one
    locations.note_written([create_tile(1)], [new.location])
    locations.remember(create_tile(1), new, changes=locations.changes)  # its row has changed
    locations.remember(create_tile(1), old, changes=asked_early)
    assert locations.get(create_tile(1)) == new


def test_old_location_of_a_tile_awaiting_its_row_is_not_cached() -> None:
    """Two groups may wait for their rows; the old place of none of them is remembered."""
    old, new = (BlobRef(location=(n, 16), length=5, sha256="ab" * 32) for n in (1, 2))
    locations = LocationCache(entries_max=10)
    for number in range(2 * GROUP_TILES_MAX):
        locations.note_written([create_tile(number)], [new.location])
    locations.remember(create_tile(0), old, changes=locations.changes)
    assert locations.get(create_tile(0)) is None


@pytest.mark.parametrize("number", [1, 7, 999_999_999])
def test_segment_name_and_number_round_trip(number: int) -> None:
    assert parse_segment_number(segment_name(number)) == number
    assert len(segment_name(number)) == len("000000001.seg")


def test_segment_number_of_a_missing_file_is_not_reused(tmp_path: Path) -> None:
    """Rows may outlive their files, as in a folder emptied by hand; they must stay apart."""
    index = MemoryBlobIndex()
    index.add(
        TileId(source="sat", zoom=1, x=0, y=0),
        BlobRef(location=(41, 16), length=3, sha256="ab" * 32),
    )
    with SegmentTileStore(root=tmp_path, index=index) as store:
        blob = store.write_tile(TileId(source="sat", zoom=1, x=1, y=0), b"new")
    assert blob.location[0] == 42
