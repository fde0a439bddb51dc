"""The beginning of a PMTiles file, as an independent reader sees it."""

import pytest
from pmtiles.tile import Compression, TileType, deserialize_header

from tileferry.adapters.filesystem.archives.pmtiles_format import (
    HEADER_BYTES,
    ArchiveCounts,
    FileLayout,
    FileSection,
    decode_header,
    encode_header,
)
from tileferry.domain.archives import ArchiveDescription
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BBox

SECTIONS = FileLayout(
    root=FileSection(127, 50),
    metadata=FileSection(9_000, 80),
    leaves=FileSection(8_000, 1_000),
    tiles=FileSection(16_384, 5),
)
COUNTS = ArchiveCounts(tiles=7, entries=6, contents=5)


def about(**kinds: int) -> ArchiveDescription:
    return ArchiveDescription(
        name="area",
        attribution=None,
        kinds=kinds,
        bounds=BBox(west=36.1, south=-49.9, east=36.4, north=50.1),
        zoom_min=14,
        zoom_max=16,
    )


def test_pmtiles_library_reads_every_header_field() -> None:
    header = encode_header(SECTIONS, COUNTS, about(png=7))
    assert len(header) == HEADER_BYTES
    assert deserialize_header(header) == {
        "version": 3,
        "root_offset": 127,
        "root_length": 50,
        "metadata_offset": 9_000,
        "metadata_length": 80,
        "leaf_directory_offset": 8_000,
        "leaf_directory_length": 1_000,
        "tile_data_offset": 16_384,
        "tile_data_length": 5,
        "addressed_tiles_count": 7,
        "tile_entries_count": 6,
        "tile_contents_count": 5,
        "clustered": True,
        "internal_compression": Compression.GZIP,
        "tile_compression": Compression.NONE,
        "tile_type": TileType.PNG,
        "min_zoom": 14,
        "max_zoom": 16,
        "min_lon_e7": 361_000_000,
        "min_lat_e7": -499_000_000,
        "max_lon_e7": 364_000_000,
        "max_lat_e7": 501_000_000,
        "center_zoom": 14,
        "center_lon_e7": 362_500_000,
        "center_lat_e7": 1_000_000,
    }


@pytest.mark.parametrize(
    ("kinds", "kind"),
    [
        ({"jpg": 1}, TileType.JPEG),
        ({"webp": 1}, TileType.WEBP),
        ({"bin": 1}, TileType.UNKNOWN),
        ({"png": 5, "jpg": 1}, TileType.UNKNOWN),
    ],
)
def test_tile_type_is_set_only_for_single_kind(kinds: dict[str, int], kind: TileType) -> None:
    assert deserialize_header(encode_header(SECTIONS, COUNTS, about(**kinds)))["tile_type"] is kind


def test_header_round_trips() -> None:
    assert decode_header(encode_header(SECTIONS, COUNTS, about(png=1))) == (SECTIONS, COUNTS)


def test_invalid_header_is_rejected() -> None:
    header = encode_header(SECTIONS, COUNTS, about(png=1))
    brotli = bytearray(header)
    brotli[97] = 3
    for content, problem in (
        (b"PMTiles\x02" + header[8:], "is not a PMTiles v3 header"),
        (header[:-1], "is not a PMTiles v3 header"),
        (bytes(brotli), "compression of directories other than gzip"),
    ):
        with pytest.raises(InvalidValueError, match=problem):
            decode_header(content)
