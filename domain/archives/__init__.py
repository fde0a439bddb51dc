"""Archives of tiles: formats, description, tile order and metadata."""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.domain.archives.archive import (
        DESCRIPTION_BYTES_MAX,
        ArchiveDescription,
        ArchiveDescriptionBuilder,
        ArchiveFormat,
        ContentDigest,
        TileOrder,
        detect_format,
        detect_tile_kind,
        flip_row,
        is_archive_description,
    )
    from tileferry.domain.archives.curve import (
        find_block_start,
        get_block_tiles,
        get_level_start,
        number_to_zxy,
        zxy_to_number,
    )
    from tileferry.domain.archives.facts import TileFacts

__all__ = [
    "DESCRIPTION_BYTES_MAX",
    "ArchiveDescription",
    "ArchiveDescriptionBuilder",
    "ArchiveFormat",
    "ContentDigest",
    "TileFacts",
    "TileOrder",
    "detect_format",
    "detect_tile_kind",
    "find_block_start",
    "flip_row",
    "get_block_tiles",
    "get_level_start",
    "is_archive_description",
    "number_to_zxy",
    "zxy_to_number",
]
