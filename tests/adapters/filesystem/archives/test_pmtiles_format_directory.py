"""Directories of PMTiles, held to what an independent implementation reads and writes."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pmtiles.tile import Entry, deserialize_directory, serialize_directory

from tileferry.adapters.filesystem.archives.pmtiles_format import (
    HEADER_BYTES,
    ROOT_END,
    DirectoryEntry,
    compute_leaf_entries,
    decode_directory,
    encode_directory,
    gzip_compress,
    gzip_decompress,
)
from tileferry.domain.archives.curve import get_level_start
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.limits import AREA_TILES_MAX
from tileferry.domain.tiles.tile_id import ZOOM_MAX

NUMBER_MAX = get_level_start(ZOOM_MAX + 1) - 1


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


def _to_tuple(entry: DirectoryEntry | Entry) -> tuple[int, int, int, int]:
    if isinstance(entry, Entry):
        return entry.tile_id, entry.offset, entry.length, entry.run_length
    return entry.number, entry.offset, entry.length, entry.run


@given(directories())
def test_pmtiles_library_reads_encoded_directory(entries: list[DirectoryEntry]) -> None:
    read = deserialize_directory(encode_directory(entries))
    assert list(map(_to_tuple, read)) == list(map(_to_tuple, entries))


@given(directories())
def test_directory_from_pmtiles_library_is_decoded(entries: list[DirectoryEntry]) -> None:
    written = serialize_directory([Entry(*_to_tuple(entry)) for entry in entries])
    assert decode_directory(written) == entries


def test_directory_encoding_is_deterministic() -> None:
    entries = [DirectoryEntry(1, 0, 10, 1), DirectoryEntry(2, 10, 5, 1)]
    assert encode_directory(entries) == encode_directory(entries)
    assert gzip.decompress(encode_directory(entries)) == bytes([2, 1, 1, 1, 1, 10, 5, 1, 0])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"no gzip", "not valid gzip"),
        (gzip_compress(b"\x01\x01\x01\x01\x01")[:-4], "is truncated"),
        (gzip_compress(b""), "does not have the declared number of entries"),
        (gzip_compress(b"\x00"), "does not have the declared number of entries"),
        (gzip_compress(b"\x02\x01\x01\x01\x01"), "does not have the declared number of entries"),
        (
            gzip_compress(b"\x01\x01\x01\x01\x01\x01"),
            "does not have the declared number of entries",
        ),
        (gzip_compress(b"\x01\x01\x01\x01\x81"), "ends within a number"),
        (gzip_compress(b"\xff" * 20), "a number that is too long"),
        (gzip_compress(b"\x01\x01\x01\x00\x01"), "an invalid entry"),
        (gzip_compress(b"\x02\x01\x00\x01\x01\x01\x01\x01\x00"), "an invalid entry"),
    ],
)
def test_invalid_directory_is_rejected(content: bytes, problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem):
        decode_directory(content)


def test_decompression_is_bounded() -> None:
    with pytest.raises(InvalidValueError, match="too large"):
        gzip_decompress(gzip_compress(bytes(1_000_000)), bytes_max=1_000)


def test_root_directory_fits_leaves_of_largest_area() -> None:
    leaves = tiles = 0
    while tiles < AREA_TILES_MAX:
        tiles += compute_leaf_entries(leaves)
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
