"""The binary format of PMTiles version 3: directories and header."""

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from tileferry.domain.archives import ArchiveDescription
from tileferry.domain.errors import InvalidValueError

ROOT_END = 16_384
"""Header and root directory end before this offset, so that a reader gets both in one read."""
LEAF_ENTRIES = 4_096
LEAVES_A_STEP = 200
_GZIP = 31
_VARINT_BITS_MAX = 63
_DIRECTORY_BYTES_MAX = 64 * 1024 * 1024


@frozen
class DirectoryEntry:
    """The content of a run of consecutive tiles; run 0 points to a leaf directory."""

    number: int
    offset: int
    length: int
    run: int


def compute_leaf_entries(leaves_before: int) -> int:
    """Return the number of entries of the next leaf directory.

    It doubles every 200 leaves. A small archive therefore has small leaves, the writer need not
    know the total, and 50 million tiles make 1,200 leaves: at 13 bytes each (number 7, run 1,
    length 4, offset 1) the root directory fits before ``ROOT_END`` even if it cannot be compressed.
    """
    return LEAF_ENTRIES << leaves_before // LEAVES_A_STEP


def encode_directory(entries: Sequence[DirectoryEntry]) -> bytes:
    """Encode a directory: column by column, numbers as differences, gzipped."""
    return gzip_compress(b"".join(_encode_columns(entries)))


def _encode_columns(entries: Sequence[DirectoryEntry]) -> Iterator[bytes]:
    yield _encode_varints([len(entries)])
    before = [0, *(entry.number for entry in entries)]
    yield _encode_varints(entry.number - last for entry, last in zip(entries, before, strict=False))
    yield _encode_varints(entry.run for entry in entries)
    yield _encode_varints(entry.length for entry in entries)
    yield _encode_varints(_encode_offsets(entries))


def _encode_offsets(entries: Sequence[DirectoryEntry]) -> Iterator[int]:
    """Yield 0 for an entry that directly follows the previous one, otherwise its offset + 1."""
    end = None
    for entry in entries:
        yield 0 if entry.offset == end else entry.offset + 1
        end = entry.offset + entry.length


def decode_directory(content: bytes) -> list[DirectoryEntry]:
    """Decode a directory; reject invalid data."""
    count, *numbers = _decode_varints(gzip_decompress(content)) or [0]
    if count == 0 or len(numbers) != 4 * count:
        raise _build_error("does not have the declared number of entries")
    columns = [numbers[count * column : count * (column + 1)] for column in range(4)]
    entries: list[DirectoryEntry] = []
    number = end = 0
    for difference, run, length, place in zip(*columns, strict=True):
        number += difference
        offset = place - 1 if place else end
        if length == 0 or offset < 0 or (entries and difference == 0):
            raise _build_error("has an invalid entry")
        entries.append(DirectoryEntry(number, offset, length, run))
        end = offset + length
    return entries


def gzip_compress(content: bytes) -> bytes:
    """Compress deterministically: the same content always gives the same bytes."""
    compressor = zlib.compressobj(wbits=_GZIP)
    return compressor.compress(content) + compressor.flush()


def gzip_decompress(content: bytes, *, bytes_max: int = _DIRECTORY_BYTES_MAX) -> bytes:
    """Decompress to at most ``bytes_max`` bytes."""
    reader = zlib.decompressobj(wbits=_GZIP)
    try:
        plain = reader.decompress(content, bytes_max)
    except zlib.error as error:
        raise _build_error("is not valid gzip") from error
    if not reader.eof:
        raise _build_error("is truncated or too large")
    return plain


def _encode_varints(numbers: Iterable[int]) -> bytes:
    """Encode numbers as varints: seven bits per byte, lowest first, high bit set on all but the
    last.
    """
    written = bytearray()
    for number in numbers:
        rest = number
        while rest > 0x7F:  # noqa: PLR2004  # seven bits
            written.append(rest & 0x7F | 0x80)
            rest >>= 7
        written.append(rest)
    return bytes(written)


def _decode_varints(content: bytes) -> list[int]:
    numbers = []
    number = shift = 0
    for byte in content:
        if shift > _VARINT_BITS_MAX:
            raise _build_error("has a number that is too long")
        number |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
        else:
            numbers.append(number)
            number = shift = 0
    if shift:
        raise _build_error("ends within a number")
    return numbers


def _build_error(problem: str) -> InvalidValueError:
    return InvalidValueError(field="PMTiles directory", value=None, problem=problem)


HEADER_BYTES = 127
MAGIC = b"PMTiles\x03"
_LAYOUT = struct.Struct("<8s11Q6B4iB2i")
_GZIPPED, _PLAIN, _UNKNOWN = 2, 1, 0
_KINDS = {"png": 2, "jpg": 3, "webp": 4, "avif": 5}
_MIXED = 0
_E7 = 10_000_000


@frozen
class FileSection:
    """Offset and length of a section of the file."""

    offset: int
    length: int


@frozen(kw_only=True)
class FileLayout:
    """The sections of the file."""

    root: FileSection
    metadata: FileSection
    leaves: FileSection
    tiles: FileSection


@frozen(kw_only=True)
class ArchiveCounts:
    """Numbers of tiles, entries and distinct contents."""

    tiles: int
    entries: int
    contents: int


def encode_header(sections: FileLayout, counts: ArchiveCounts, about: ArchiveDescription) -> bytes:
    """Encode the header of an archive whose tiles are stored in the order of their numbers."""
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


def decode_header(content: bytes) -> tuple[FileLayout, ArchiveCounts]:
    """Decode the header; reject anything but a PMTiles v3 archive."""
    if len(content) < HEADER_BYTES or not content.startswith(MAGIC):
        raise InvalidValueError(
            field="PMTiles header", value=content[:8], problem="is not a PMTiles v3 header"
        )
    fields = _LAYOUT.unpack(content[:HEADER_BYTES])
    if fields[13] != _GZIPPED:
        raise InvalidValueError(
            field="PMTiles header",
            value=fields[13],
            problem="names a compression of directories other than gzip",
        )
    if fields[14] not in {_UNKNOWN, _PLAIN}:
        raise InvalidValueError(
            field="PMTiles header", value=fields[14], problem="names a compression of tiles"
        )
    root, metadata, leaves, tiles = (FileSection(*fields[at : at + 2]) for at in (1, 3, 5, 7))
    return (
        FileLayout(root=root, metadata=metadata, leaves=leaves, tiles=tiles),
        ArchiveCounts(tiles=fields[9], entries=fields[10], contents=fields[11]),
    )
