"""Verification finds whatever differs from what was stored."""

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from support.segments import create_content, create_tile, list_damages, list_segments, store_tiles

from tileferry.adapters.filesystem.segments.format import encode_record_head
from tileferry.adapters.filesystem.segments.store import SegmentTileStore
from tileferry.adapters.memory import MemoryBlobIndex
from tileferry.application.ports.inventory import (
    DamagedBlob,
    DamagedSegment,
    SegmentTally,
)
from tileferry.application.ports.progress import ItemsProcessed, ProgressEvent, Task
from tileferry.domain.errors import DamagedTileError


@pytest.fixture
def index() -> MemoryBlobIndex:
    return MemoryBlobIndex()


def test_verifying_an_intact_cache_yields_only_tallies(
    tmp_path: Path, index: MemoryBlobIndex
) -> None:
    with SegmentTileStore(root=tmp_path, index=index) as store:
        store_tiles(store, index, range(600))  # more than two pages of rows
        events: list[ProgressEvent] = []
        assert list(store.verify(events.append)) == [
            SegmentTally(
                segment=1,
                size_bytes=(tmp_path / ".c6/segments" / list_segments(tmp_path)[0]).stat().st_size,
                live_tiles=600,
                live_bytes=600 * 500,
                dead_bytes=0,
            )
        ]
        assert events == [ItemsProcessed(task=Task.VERIFY_CACHE)] * 600


def test_dead_bytes_are_counted_per_segment(tmp_path: Path, index: MemoryBlobIndex) -> None:
    with SegmentTileStore(root=tmp_path, index=index, segment_bytes_max=1_200) as store:
        store_tiles(store, index, [10, 11, 12, 13, 14, 15])
        for number in (10, 12, 13):
            store.delete_tile(create_tile(number))
    (tmp_path / ".c6/segments/000000009.seg").write_bytes(b"torn")
    record = 54 + len("osm/21/10/10") + 500
    with SegmentTileStore(root=tmp_path, index=index) as store:
        tallies = [item for item in store.verify() if isinstance(item, SegmentTally)]
        assert list_damages(store.verify()) == []
    assert [(tally.segment, tally.live_tiles, tally.dead_bytes) for tally in tallies] == [
        (1, 1, record),
        (2, 0, 2 * record),
        (3, 2, 0),
        (9, 0, 0),
    ]


def test_invariant_6_every_flipped_bit_of_a_live_record_is_detected(
    tmp_path: Path, index: MemoryBlobIndex
) -> None:
    with SegmentTileStore(root=tmp_path, index=index) as store:
        for number in (1, 2, 3):
            index.add(
                create_tile(number),
                store.write_tile(create_tile(number), create_content(number, 20)),
            )
        store.flush()
    start, end = (
        blob.location[1] for blob in map(index.locate, [create_tile(2), create_tile(3)]) if blob
    )
    path = tmp_path / ".c6/segments/000000001.seg"
    sound = path.read_bytes()
    with (
        SegmentTileStore(root=tmp_path, index=index, locations_max=0) as store,
        path.open("r+b", buffering=0) as segment,
    ):
        for bit in range(start * 8, end * 8):
            segment.seek(bit // 8)
            segment.write(bytes([sound[bit // 8] ^ (1 << bit % 8)]))
            (damage,) = list_damages(store.verify())
            assert isinstance(damage, DamagedBlob)
            assert damage.tile_id == create_tile(2)
            with pytest.raises(DamagedTileError):
                store.read_tile(create_tile(2))
            assert store.read_tile(create_tile(1)) == create_content(1, 20)
            segment.seek(bit // 8)
            segment.write(sound[bit // 8 : bit // 8 + 1])
        assert list_damages(store.verify()) == []


def test_flipped_bit_in_a_segment_header_is_detected(
    tmp_path: Path, index: MemoryBlobIndex
) -> None:
    with SegmentTileStore(root=tmp_path, index=index) as store:
        store_tiles(store, index, [1])
    path = tmp_path / ".c6/segments/000000001.seg"
    sound = path.read_bytes()
    with SegmentTileStore(root=tmp_path, index=index) as store:
        for bit in range(16 * 8):
            changed = bytearray(sound)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            assert list_damages(store.verify()) == [
                DamagedSegment(segment=1, problem="its file header is damaged")
            ]
            assert store.read_tile(create_tile(1)) == create_content(1)  # the tile itself is sound


def test_wrong_digest_passed_by_the_caller_is_detected(
    tmp_path: Path, index: MemoryBlobIndex
) -> None:
    with SegmentTileStore(root=tmp_path, index=index) as store:
        index.add(create_tile(1), store.write_tile(create_tile(1), b"bytes", digest=bytes(32)))
        (damage,) = list_damages(store.verify())
        assert "sha256" in damage.problem


def test_forged_checksum_is_detected_by_the_digest(tmp_path: Path, index: MemoryBlobIndex) -> None:
    """Bytes and fast checksum changed together pass a read, and not a verification."""
    with SegmentTileStore(root=tmp_path, index=index) as store:
        blob = store.write_tile(create_tile(1), b"forged")
        store.flush()
        path = tmp_path / ".c6/segments/000000001.seg"
        forged = encode_record_head(
            str(create_tile(1)).encode(), b"FORGED", bytes.fromhex(blob.sha256)
        )
        path.write_bytes(path.read_bytes()[: blob.location[1]] + forged + b"FORGED")
        index.add(create_tile(1), blob)
        (damage,) = list_damages(store.verify())
        assert "sha256" in damage.problem


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"location": (7, 16)}, "its segment 7 is missing"),
        ({"location": (1, 10**9)}, "ends before the end of the tile"),
        ({"length": 501}, "ends before the end of the tile"),
        ({"length": 499}, "another version of the tile"),
        ({"sha256": "0" * 64}, "another version of the tile"),
        ({"location": (1, 17)}, "no record starts at 17"),
    ],
)
def test_rows_with_wrong_locations_are_detected(
    tmp_path: Path, index: MemoryBlobIndex, change: dict[str, Any], problem: str
) -> None:
    with SegmentTileStore(root=tmp_path, index=index) as store:
        store_tiles(store, index, [0, 1])
        blob = index.locate(create_tile(1))
        assert blob is not None
        wrong = evolve(blob, **change)
        index.add(create_tile(1), wrong)
        (damage,) = list_damages(store.verify())
        assert isinstance(damage, DamagedBlob)
        assert (damage.tile_id, damage.segment) == (create_tile(1), wrong.location[0])
        assert problem in damage.problem
        with pytest.raises(DamagedTileError, match=problem):
            store.read_tile(create_tile(1))


def test_row_pointing_to_another_tile_is_detected(tmp_path: Path, index: MemoryBlobIndex) -> None:
    with SegmentTileStore(root=tmp_path, index=index) as store:
        store_tiles(store, index, [1, 2])
        other = index.locate(create_tile(2))
        assert other is not None
        index.add(create_tile(1), other)
        (damage,) = list_damages(store.verify())
        assert "the record of osm/21/2/2" in damage.problem


def test_lost_segment_is_reported_for_each_tile(tmp_path: Path, index: MemoryBlobIndex) -> None:
    with SegmentTileStore(root=tmp_path, index=index) as store:
        store_tiles(store, index, range(5))
    (tmp_path / ".c6/segments/000000001.seg").unlink()
    with SegmentTileStore(root=tmp_path, index=index) as store:
        found = [item.tile_id for item in store.verify() if isinstance(item, DamagedBlob)]
    assert found == [create_tile(number) for number in range(5)]
