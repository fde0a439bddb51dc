"""PMTiles version 3: the 127 bytes that a file begins with."""

import struct

from attrs import frozen

from tileferry.domain.archives.about import ArchiveAbout
from tileferry.domain.errors import InvalidValueError

HEADER_BYTES = 127
MAGIC = b"PMTiles\x03"
_LAYOUT = struct.Struct("<8s11Q6B4iB2i")
_GZIPPED, _PLAIN = 2, 1
_KINDS = {"png": 2, "jpg": 3, "webp": 4}
_MIXED = 0
_E7 = 10_000_000


@frozen
class Section:
    """A stretch of the file."""

    offset: int
    length: int


@frozen(kw_only=True)
class Sections:
    """Where everything is."""

    root: Section
    metadata: Section
    leaves: Section
    tiles: Section


@frozen(kw_only=True)
class Counts:
    """How much there is of it."""

    tiles: int
    entries: int
    contents: int


def encode_header(sections: Sections, counts: Counts, about: ArchiveAbout) -> bytes:
    """Write the header; the tiles lie in the order of their numbers."""
    box, (lon, lat, zoom) = about.bounds, about.center
    parts = (sections.root, sections.metadata, sections.leaves, sections.tiles)
    kind = about.only_kind
    return _LAYOUT.pack(
        MAGIC,
        *(number for part in parts for number in (part.offset, part.length)),
        *(counts.tiles, counts.entries, counts.contents),
        *(True, _GZIPPED, _PLAIN, _KINDS.get(kind or "", _MIXED)),
        *(about.zoom_min, about.zoom_max),
        *(round(edge * _E7) for edge in (box.west, box.south, box.east, box.north)),
        zoom,
        *(round(lon * _E7), round(lat * _E7)),
    )


def decode_header(content: bytes) -> tuple[Sections, Counts]:
    """Read where everything is; what is no archive of this kind is refused."""
    if len(content) < HEADER_BYTES or not content.startswith(MAGIC):
        raise InvalidValueError(
            field="PMTiles header", value=content[:8], problem="is not of a PMTiles archive, v3"
        )
    fields = _LAYOUT.unpack(content[:HEADER_BYTES])
    if fields[13] != _GZIPPED:
        raise InvalidValueError(
            field="PMTiles header", value=fields[13], problem="names a compression that is not gzip"
        )
    root, metadata, leaves, tiles = (Section(*fields[at : at + 2]) for at in (1, 3, 5, 7))
    return (
        Sections(root=root, metadata=metadata, leaves=leaves, tiles=tiles),
        Counts(tiles=fields[9], entries=fields[10], contents=fields[11]),
    )
