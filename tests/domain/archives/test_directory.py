"""Directories of PMTiles, held to what an independent implementation reads and writes."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pmtiles.tile import Entry, deserialize_directory, serialize_directory

from tileferry.domain.archives import (
    HEADER_BYTES,
    ROOT_END,
    DirectoryEntry,
    decode_directory,
    encode_directory,
    gzipped,
    leaf_entries,
)
from tileferry.domain.archives.curve import level_start
from tileferry.domain.archives.directory import gunzipped
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.tile_id import ZOOM_MAX
from tileferry.domain.tiles.tile_set import AREA_TILES_MAX

NUMBER_MAX = level_start(ZOOM_MAX + 1) - 1


@st.composite
def directories(draw: st.DrawFn) -> list[DirectoryEntry]:
    numbers = draw(st.lists(st.integers(0, NUMBER_MAX), min_size=1, max_size=50, unique=True))
    entries: list[DirectoryEntry] = []
    for number in sorted(numbers):
        follows = draw(st.booleans()) and bool(entries)
        offset = (
            entries[-1].offset + entries[-1].length if follows else draw(st.integers(0, 1 << 50))
        )
        length = draw(st.integers(1, (1 << 32) - 1))
        entries.append(DirectoryEntry(number, offset, length, draw(st.integers(0, 1 << 31))))
    return entries


def _plain(entry: DirectoryEntry | Entry) -> tuple[int, int, int, int]:
    if isinstance(entry, Entry):
        return entry.tile_id, entry.offset, entry.length, entry.run_length
    return entry.number, entry.offset, entry.length, entry.run


@given(directories())
def test_others_read_what_is_written(entries: list[DirectoryEntry]) -> None:
    read = deserialize_directory(encode_directory(entries))
    assert list(map(_plain, read)) == list(map(_plain, entries))


@given(directories())
def test_what_others_write_is_read(entries: list[DirectoryEntry]) -> None:
    written = serialize_directory([Entry(*_plain(entry)) for entry in entries])
    assert decode_directory(written) == entries


def test_the_same_directory_is_the_same_bytes_at_any_time() -> None:
    entries = [DirectoryEntry(1, 0, 10, 1), DirectoryEntry(2, 10, 5, 1)]
    assert encode_directory(entries) == encode_directory(entries)
    assert gzip.decompress(encode_directory(entries)) == bytes([2, 1, 1, 1, 1, 10, 5, 1, 0])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"no gzip", "not compressed as it should be"),
        (gzipped(b"\x01\x01\x01\x01\x01")[:-4], "cut off"),
        (gzipped(b""), "does not have the entries"),
        (gzipped(b"\x00"), "does not have the entries"),
        (gzipped(b"\x02\x01\x01\x01\x01"), "does not have the entries"),
        (gzipped(b"\x01\x01\x01\x01\x01\x01"), "does not have the entries"),
        (gzipped(b"\x01\x01\x01\x01\x81"), "ends within a number"),
        (gzipped(b"\xff" * 20), "without an end"),
        (gzipped(b"\x01\x01\x01\x00\x01"), "an entry that cannot be"),
        (gzipped(b"\x02\x01\x00\x01\x01\x01\x01\x01\x00"), "an entry that cannot be"),
    ],
)
def test_what_is_no_directory_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem):
        decode_directory(content)


def test_decompression_is_bounded() -> None:
    with pytest.raises(InvalidValueError, match="too large"):
        gunzipped(gzipped(bytes(1_000_000)), bytes_max=1_000)


def test_the_root_has_room_for_the_leaves_of_the_largest_area() -> None:
    leaves = tiles = 0
    while tiles < AREA_TILES_MAX:
        tiles += leaf_entries(leaves)
        leaves += 1
    # As bad as it gets: numbers far apart, leaves of any length, nothing to compress.
    step = NUMBER_MAX // leaves
    entries = [
        DirectoryEntry(
            number * step + hash((number,)) % 1_000_003,
            number * 200_000_000,
            200_000_000 - hash((number, 1)) % 99_999_989,
            0,
        )
        for number in range(leaves)
    ]
    end, contiguous = 0, []
    for entry in entries:  # leaves lie one behind the other
        contiguous.append(DirectoryEntry(entry.number, end, entry.length, 0))
        end += entry.length
    assert HEADER_BYTES + len(encode_directory(contiguous)) <= ROOT_END
