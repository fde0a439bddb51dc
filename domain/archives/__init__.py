"""Archives that other tools read and write: what is in them, and how it is laid out."""

from tileferry.domain.archives.about import (
    ABOUT_BYTES_MAX,
    AboutTally,
    ArchiveAbout,
    describes_archive,
    kind_of,
)
from tileferry.domain.archives.curve import (
    block_start,
    block_tiles,
    tile_number,
    tile_of_number,
)
from tileferry.domain.archives.directory import (
    ROOT_END,
    DirectoryEntry,
    decode_directory,
    encode_directory,
    gunzipped,
    gzipped,
    leaf_entries,
)
from tileferry.domain.archives.facts import (
    LINE_BYTES_MAX,
    TileFacts,
    facts_line,
    parse_facts_line,
)
from tileferry.domain.archives.format import ArchiveFormat, TileOrder, flipped_row, format_of
from tileferry.domain.archives.header import (
    HEADER_BYTES,
    MAGIC,
    Counts,
    Section,
    Sections,
    decode_header,
    encode_header,
)
from tileferry.domain.archives.tally import ContentTally

__all__ = [
    "ABOUT_BYTES_MAX",
    "HEADER_BYTES",
    "LINE_BYTES_MAX",
    "MAGIC",
    "ROOT_END",
    "AboutTally",
    "ArchiveAbout",
    "ArchiveFormat",
    "ContentTally",
    "Counts",
    "DirectoryEntry",
    "Section",
    "Sections",
    "TileFacts",
    "TileOrder",
    "block_start",
    "block_tiles",
    "decode_directory",
    "decode_header",
    "describes_archive",
    "encode_directory",
    "encode_header",
    "facts_line",
    "flipped_row",
    "format_of",
    "gunzipped",
    "gzipped",
    "kind_of",
    "leaf_entries",
    "parse_facts_line",
    "tile_number",
    "tile_of_number",
]
