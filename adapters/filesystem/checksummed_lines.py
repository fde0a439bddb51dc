r"""Checksummed records in an append-only file, one per line: ``<length> <crc32> <json>\n``.

JSON contains no raw line break, so reading can continue at the next line after any damage. Data
without a final line break is the torn tail of an incomplete write.
"""

import json
import re
from collections.abc import Iterator
from zlib import crc32

from attrs import frozen

from tileferry.adapters.filesystem.files import OpenFile

LINE_BYTES_MAX = 128 * 1024
"""Maximum length of a record; a longer line is damage and is not kept in memory."""
_CHUNK_BYTES = 128 * 1024
_FRAME = re.compile(rb"(0|[1-9][0-9]{0,5}) ([0-9a-f]{8}) ")


@frozen(kw_only=True)
class ChecksummedLine:
    """A complete line: its byte range in the file, and its content, ``None`` if damaged."""

    start: int
    end: int
    content: bytes | None


def frame_line(content: bytes, *, line_bytes_max: int = LINE_BYTES_MAX) -> bytes:
    """Return ``content`` with its length, checksum and line break."""
    line = b"%d %08x %b\n" % (len(content), crc32(content), content)
    if (
        len(line) > line_bytes_max
    ):  # callers limit the size; never write a line that cannot be read back
        raise ValueError(f"a record of {len(content)} bytes is too long")
    return line


def read_lines(
    file: OpenFile, *, begin: int = 0, line_bytes_max: int = LINE_BYTES_MAX
) -> Iterator[ChecksummedLine]:
    """Yield every complete line from an offset on, without a torn tail."""
    start = offset = begin
    pending, dropped = b"", False
    while chunk := file.pread(_CHUNK_BYTES, offset):
        first, *others = chunk.split(b"\n")
        pending += first
        for following in others:
            end = offset + len(first) + 1
            yield ChecksummedLine(
                start=start, end=end, content=None if dropped else unframe_line(pending)
            )
            start = offset = end
            first = pending = following
            dropped = False
        offset += len(first)
        if len(pending) > line_bytes_max:
            pending, dropped = b"", True


def parse_json(content: bytes) -> object:
    """Return the parsed JSON of a record; ``None`` if it is invalid."""
    try:
        return json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def unframe_line(line: bytes) -> bytes | None:
    """Return the content of a line without its line break; ``None`` if it is damaged."""
    match = _FRAME.match(line)
    if match is None:
        return None
    content = line[match.end() :]
    sound = int(match[1]) == len(content) and int(match[2], 16) == crc32(content)
    return content if sound else None


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not valid JSON")
