"""The binary format of segments, version 1; all numbers are little-endian.

A segment is a file header (magic, version, crc32 of both), followed by records. A record is its
head (magic, length of the tile id, length of the payload, xxh3 and sha256 of the payload, crc32 of
all this and the tile id), the tile id's text, and the payload. ``BlobRef.location`` is the number
of the segment and the offset of the record; ``BlobRef.length`` is the payload's length.

Readers check every byte by xxh3, because sha256 costs more than the read itself.
"""

import re
import struct
import zlib
from hashlib import sha256

import xxhash

from tileferry.domain.errors import DamagedTileError
from tileferry.domain.tiles import BlobRef, TileId

SEGMENT_NUMBER_MAX = 999_999_999
_NAME = re.compile(r"([0-9]{9})\.seg", re.ASCII)
_FILE = struct.Struct("<8sI")
_FIELDS = struct.Struct("<4sHIQ32s")
_CRC = struct.Struct("<I")
_RECORD_MAGIC = b"TILE"
_file_fields = _FILE.pack(b"TILEFSEG", 1)
FILE_HEADER = _file_fields + _CRC.pack(zlib.crc32(_file_fields))
RECORD_HEAD_BYTES = _FIELDS.size + _CRC.size
"""Without the tile id."""


def segment_name(number: int) -> str:
    return f"{number:09d}.seg"


def parse_segment_number(name: str) -> int | None:
    """Return the number in a segment's file name; ``None`` for other files."""
    match = _NAME.fullmatch(name)
    return (int(match[1]) or None) if match else None


def encode_record_head(tile: bytes, payload: bytes | bytearray, digest: bytes) -> bytes:
    """Return the bytes before the payload."""
    fields = _FIELDS.pack(
        _RECORD_MAGIC, len(tile), len(payload), xxhash.xxh3_64_intdigest(payload), digest
    )
    return fields + _CRC.pack(zlib.crc32(tile, zlib.crc32(fields))) + tile


def record_size(tile_id: TileId, blob: BlobRef) -> int:
    """Return the size of a tile's record in bytes."""
    return RECORD_HEAD_BYTES + len(str(tile_id)) + blob.length


def extract_payload(record: bytes, tile: bytes, blob: BlobRef) -> bytes:
    """Return the payload of the record of ``blob``; raise an error that says how it differs."""
    payload = record[RECORD_HEAD_BYTES + len(tile) :]
    # The row determines the whole head except the xxh3, so one comparison checks every bit.
    head = encode_record_head(tile, payload, bytes.fromhex(blob.sha256))
    if len(payload) != blob.length or not record.startswith(head):
        raise DamagedTileError(tile=tile.decode(), problem=_describe_difference(record, tile, blob))
    return payload


def check_digest(payload: bytes, tile_id: TileId, blob: BlobRef) -> None:
    """Check the payload against the blob's sha256."""
    if sha256(payload).hexdigest() != blob.sha256:
        raise DamagedTileError(tile=str(tile_id), problem="its bytes do not match their sha256")


def _describe_difference(record: bytes, tile: bytes, blob: BlobRef) -> str:
    segment, offset = blob.location
    if len(record) < RECORD_HEAD_BYTES + len(tile) + blob.length:
        return f"segment {segment} ends before the end of the tile"
    magic, tile_bytes, length, _, digest = _FIELDS.unpack_from(record)
    if magic != _RECORD_MAGIC:
        return f"no record starts at {offset} in segment {segment}"
    head = record[: _FIELDS.size]
    id_text = record[RECORD_HEAD_BYTES : RECORD_HEAD_BYTES + tile_bytes]
    (crc,) = _CRC.unpack_from(record, _FIELDS.size)
    if crc != zlib.crc32(id_text, zlib.crc32(head)):
        return "the head of its record does not match its checksum"
    if id_text != tile:
        return f"its row points to the record of {id_text.decode(errors='replace')}"
    if length != blob.length or digest.hex() != blob.sha256:
        return "its row points to another version of the tile"
    return "its bytes do not match their checksum"
