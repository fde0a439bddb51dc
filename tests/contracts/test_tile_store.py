"""What every TileStore must do, the one on disk and the one in memory."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest
from attrs import evolve

from tileferry.adapters.filesystem.segments.store import SegmentTileStore
from tileferry.adapters.memory import MemoryBlobIndex, MemoryTileStore
from tileferry.application.ports.tiles import TileStore
from tileferry.domain.errors import DamagedTileError, TileNotFoundError, TileTooLargeError
from tileferry.domain.tiles import TILE_BYTES_MAX, BlobRef, TileId

TILE = TileId(source="osm", zoom=3, x=1, y=2)
OTHER = TileId(source="osm", zoom=3, x=2, y=1)


@pytest.fixture
def index() -> MemoryBlobIndex:
    return MemoryBlobIndex()


def make_memory_store(_: Path, index: MemoryBlobIndex) -> MemoryTileStore:
    return MemoryTileStore(index)


def make_segment_store(root: Path, index: MemoryBlobIndex) -> SegmentTileStore:
    return SegmentTileStore(root=root, index=index)


@pytest.fixture(params=[make_memory_store, make_segment_store])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, index: MemoryBlobIndex
) -> Iterator[TileStore]:
    make: Callable[[Path, MemoryBlobIndex], TileStore] = request.param
    made = make(tmp_path, index)
    yield made
    if isinstance(made, SegmentTileStore):
        made.close()


def test_store_implements_port(store: TileStore) -> None:
    assert isinstance(store, TileStore)


@pytest.mark.parametrize("size", [0, 1, 20_000, 3_000_000])
def test_written_tile_is_read_back(store: TileStore, index: MemoryBlobIndex, size: int) -> None:
    content = bytes(size)
    blob = store.write_tile(TILE, content)
    store.flush()
    index.add(TILE, blob)
    assert (blob.length, blob.sha256) == (size, sha256(content).hexdigest())
    assert store.tile_exists(TILE)
    assert store.read_tile(TILE) == store.read_tile(TILE) == content


def test_read_with_stale_blob_falls_back_to_index(store: TileStore, index: MemoryBlobIndex) -> None:
    blob = store.write_tile(TILE, b"bytes")
    index.add(TILE, blob)
    assert store.read_tile(TILE, blob=blob) == b"bytes"
    # What is there no more is where the index says.
    gone = BlobRef(location=(7, 99), length=5, sha256=blob.sha256)
    assert store.read_tile(TILE, blob=gone) == b"bytes"
    index.forget([TILE])
    with pytest.raises(TileNotFoundError):
        store.read_tile(TILE, blob=gone)


def test_older_version_is_readable_by_its_blob(store: TileStore, index: MemoryBlobIndex) -> None:
    """An upload whose answer was lost is repeated with it."""
    older, newer = store.write_tile(TILE, b"older"), store.write_tile(TILE, b"newer")
    index.add(TILE, newer)
    store.flush()
    assert (store.read_tile(TILE, blob=older), store.read_tile(TILE)) == (b"older", b"newer")


def test_lost_bytes_are_noticed_without_reading(store: TileStore) -> None:
    blob = store.write_tile(TILE, b"bytes")
    assert store.has_bytes(TILE, blob)
    store.flush()
    assert store.has_bytes(TILE, blob)
    assert not store.has_bytes(TILE, evolve(blob, location=(7, 99)))
    assert not store.has_bytes(TILE, evolve(blob, location=(blob.location[0], 10**6)))


def test_several_tiles_are_written_together(store: TileStore, index: MemoryBlobIndex) -> None:
    contents = [b"first", b""]
    digests = [sha256(content).digest() for content in contents]
    locations = store.write_tiles([TILE, OTHER], contents, digests=digests)
    for tile_id, content, location in zip([TILE, OTHER], contents, locations, strict=True):
        digest = sha256(content).hexdigest()
        index.add(tile_id, BlobRef(location=location, length=len(content), sha256=digest))
        assert store.read_tile(tile_id) == content


def test_tile_can_be_written_in_chunks(store: TileStore, index: MemoryBlobIndex) -> None:
    blob = store.write_tile(TILE, (chunk for chunk in [b"ab", b"", b"cde"]))
    index.add(TILE, blob)
    assert blob.sha256 == sha256(b"abcde").hexdigest()
    assert store.read_tile(TILE) == b"abcde"


@pytest.mark.parametrize("content", [b"", b"bytes", [b"by", b"tes"]])
def test_given_digest_gives_same_blob(
    store: TileStore, index: MemoryBlobIndex, content: bytes | list[bytes]
) -> None:
    whole = b"".join(content) if isinstance(content, list) else content
    blob = store.write_tile(TILE, content, digest=sha256(whole).digest())
    index.add(TILE, blob)
    assert (blob.length, blob.sha256) == (len(whole), sha256(whole).hexdigest())
    assert store.read_tile(TILE) == whole


def test_given_digest_is_not_recomputed(store: TileStore) -> None:
    told = sha256(b"what somebody says").digest()
    assert store.write_tile(TILE, b"bytes", digest=told).sha256 == told.hex()


def test_tile_without_row_is_not_found(store: TileStore) -> None:
    store.write_tile(TILE, b"bytes")
    store.flush()
    assert not store.tile_exists(TILE)
    with pytest.raises(TileNotFoundError, match="osm/3/1/2"):
        store.read_tile(TILE)


def test_tile_is_readable_before_flush(store: TileStore, index: MemoryBlobIndex) -> None:
    index.add(TILE, store.write_tile(TILE, b"bytes"))
    assert store.read_tile(TILE) == b"bytes"


def test_deleted_tile_is_not_found(store: TileStore, index: MemoryBlobIndex) -> None:
    index.add(TILE, store.write_tile(TILE, b"bytes"))
    index.add(OTHER, store.write_tile(OTHER, b"stays"))
    assert store.read_tile(TILE) == b"bytes"
    assert store.delete_tile(TILE)
    assert not store.delete_tile(TILE)
    assert not store.tile_exists(TILE)
    with pytest.raises(TileNotFoundError):
        store.read_tile(TILE)
    assert store.read_tile(OTHER) == b"stays"


def test_deleted_tile_can_be_written_again(store: TileStore, index: MemoryBlobIndex) -> None:
    index.add(TILE, store.write_tile(TILE, b"first"))
    store.delete_tile(TILE)
    index.add(TILE, store.write_tile(TILE, b"second"))
    assert store.read_tile(TILE) == b"second"


def test_new_version_is_visible_only_with_its_row(store: TileStore, index: MemoryBlobIndex) -> None:
    index.add(TILE, store.write_tile(TILE, b"old"))
    assert store.read_tile(TILE) == b"old"
    blob = store.write_tile(TILE, b"new")
    store.flush()
    assert store.read_tile(TILE) == store.read_tile(TILE) == b"old"
    index.add(TILE, blob)
    assert store.read_tile(TILE) == store.read_tile(TILE) == b"new"


def test_tile_above_size_limit_is_rejected(store: TileStore, index: MemoryBlobIndex) -> None:
    index.add(TILE, store.write_tile(TILE, bytes(TILE_BYTES_MAX)))
    assert len(store.read_tile(TILE)) == TILE_BYTES_MAX
    with pytest.raises(TileTooLargeError, match="osm/3/2/1"):
        store.write_tile(OTHER, bytes(TILE_BYTES_MAX + 1))


def test_endless_tile_is_rejected_once_too_large(store: TileStore) -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield bytes(TILE_BYTES_MAX // 4)

    with pytest.raises(TileTooLargeError):
        store.write_tile(TILE, endless())
    assert taken == 5


def test_broken_stream_leaves_nothing_behind(store: TileStore, index: MemoryBlobIndex) -> None:
    def breaking() -> Iterator[bytes]:
        yield b"half"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        store.write_tile(TILE, breaking())
    index.add(OTHER, store.write_tile(OTHER, b"whole"))
    store.flush()
    assert store.read_tile(OTHER) == b"whole"


@pytest.mark.parametrize("changed", ["another tile's", "another digest", "beyond the end"])
def test_row_not_matching_its_bytes_raises_damaged(
    store: TileStore, index: MemoryBlobIndex, changed: str
) -> None:
    blob = store.write_tile(TILE, b"bytes")
    other = store.write_tile(OTHER, b"other")
    store.flush()
    wrong = {
        "another tile's": other,
        "another digest": BlobRef(location=blob.location, length=blob.length, sha256="0" * 64),
        "beyond the end": BlobRef(
            location=(blob.location[0], 10**6), length=blob.length, sha256=blob.sha256
        ),
    }
    index.add(TILE, wrong[changed])
    with pytest.raises(DamagedTileError, match="osm/3/1/2"):
        store.read_tile(TILE)
    index.add(TILE, blob)
    assert store.read_tile(TILE) == b"bytes"


def test_flush_without_tiles_is_allowed(store: TileStore) -> None:
    store.flush()
    store.flush()


def test_store_can_be_shared_by_threads(store: TileStore, index: MemoryBlobIndex) -> None:
    tiles = [TileId(source="osm", zoom=9, x=number, y=0) for number in range(400)]

    def work(tile_id: TileId) -> None:
        blob = store.write_tile(tile_id, str(tile_id).encode() * 50)
        store.flush()
        index.add(tile_id, blob)
        assert store.read_tile(tile_id) == str(tile_id).encode() * 50

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, tiles))
    assert all(store.read_tile(tile_id) == str(tile_id).encode() * 50 for tile_id in tiles)
