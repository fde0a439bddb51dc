"""Judges from its bytes whether content is one whole image, without decoding pixels.

A label can lie, and a connection can break without notice. So content is a tile only if the image
itself is whole: all of its parts are there, and nothing follows its end. The work is linear in the
size.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from struct import Struct
from typing import NoReturn
from zlib import crc32

from attrs import define, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.avif import AvifCutError, AvifError, AvifTrailingError, read_avif
from tileferry.domain.tiles.limits import TILE_BYTES_MAX

SIDE_PX_MAX = 4_096
"""Tiles have 256 or 512 pixels a side; a program that decodes one must not run out of memory."""
PARTS_MAX = 65_536
"""Limit for the chunks or segments of an image: 64 MiB of PNG in blocks of 1 KiB."""
_PNG, _JPEG, _RIFF, _WEBP = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF", b"WEBP"
_KINDS = (
    (re.compile(re.escape(_PNG)), "png"),
    (re.compile(re.escape(_JPEG)), "jpg"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "webp"),
    (re.compile(rb".{4}ftyp(?:avif|.{8}(?:.{4})*?avif)", re.DOTALL), "avif"),
)
_WEBP_HEAD_BYTES = 12
_KIND_BYTES = 64
_TRAILING = "has data after the end of the image"
# Image data is not searched: there, these characters occur by chance.
_MARKUP = re.compile(rb"<(?:script|html|svg|iframe)[\s>/]|<!doctype\s|<\?php\s", re.IGNORECASE)


class PictureFlaw(StrEnum):
    """Why content is not a tile."""

    CUT = "cut"
    """It is the beginning of an image."""
    DAMAGED = "damaged"
    """The structure of an image is broken."""
    UNFIT = "unfit"
    """It is something else, or an image that may not be a tile; the sender meant to send it."""


@define(kw_only=True, eq=False)
class PictureError(InvalidValueError):
    """The content is not one whole image."""

    flaw: PictureFlaw = PictureFlaw.UNFIT


@frozen(kw_only=True)
class Picture:
    """What the header of an image says."""

    kind: str
    """``png``, ``jpg``, ``webp`` or ``avif``."""
    width_px: int
    height_px: int


def detect_image_kind(content: bytes) -> str:
    """Return the format from the first bytes: ``png``, ``jpg``, ``webp`` or ``avif``.

    Raises for any other content.
    """
    if not content:
        raise PictureError(
            field="content", value="0 bytes", problem="is empty", flaw=PictureFlaw.CUT
        )
    if len(content) > TILE_BYTES_MAX:
        raise PictureError(
            field="content", value=f"over {TILE_BYTES_MAX} bytes", problem="is too large for a tile"
        )
    for beginning, kind in _KINDS:
        if beginning.match(content, 0, _KIND_BYTES):
            return kind
    raise PictureError(
        field="content",
        value=f"{len(content)} bytes",
        problem="is not a PNG, JPEG, WebP or AVIF image",
        flaw=PictureFlaw.CUT if _is_beginning(content) else PictureFlaw.UNFIT,
    )


def inspect_picture(content: bytes) -> Picture:
    """Return what content is, if it is exactly one whole image with sides fit for a tile.

    Raises ``PictureError`` for anything else: other formats, a part of an image, damaged structure,
    data after the end, and metadata that a browser could run as a page or a script.
    """
    kind = detect_image_kind(content)
    width_px, height_px = _INSPECTORS[kind](_Reader(content, kind))
    if not (1 <= width_px <= SIDE_PX_MAX and 1 <= height_px <= SIDE_PX_MAX):
        raise PictureError(
            field="content",
            value=f"{width_px} x {height_px} pixels",
            problem=f"has sides outside of 1 to {SIDE_PX_MAX} pixels",
        )
    return Picture(kind=kind, width_px=width_px, height_px=height_px)


def _is_beginning(content: bytes) -> bool:
    if len(content) < _WEBP_HEAD_BYTES and content[:4] == _RIFF[: len(content)]:
        return _WEBP.startswith(content[8:])
    if content[:3] == bytes(3)[: len(content)] and b"ftyp".startswith(content[4:8]):
        return len(content) < max(content[3:4], default=_KIND_BYTES)  # the length of this box
    return _PNG.startswith(content) or _JPEG.startswith(content)


_Side = tuple[int, int]


@define
class _Reader:
    """Walks through the parts of an image."""

    content: bytes
    kind: str
    parts: int = 0

    def begin_part(self, end: int) -> None:
        """Count a part, whose head ends there."""
        self.parts += 1
        if self.parts > PARTS_MAX:
            self.refuse(f"has more than {PARTS_MAX} parts")
        self.require(end)

    def require(self, end: int) -> None:
        """Raise unless the content reaches that far."""
        if end > len(self.content):
            self.refuse("is incomplete", PictureFlaw.CUT)

    def check_end(self, end: int) -> None:
        if end != len(self.content):
            self.refuse(_TRAILING)

    def check_metadata(self, start: int, end: int) -> None:
        """Refuse text that makes a browser run the image as a page or a script."""
        if _MARKUP.search(self.content, start, end):
            self.refuse("has markup or a script in its metadata")

    def refuse_damaged(self, problem: str) -> NoReturn:
        self.refuse(f"is damaged: {problem}", PictureFlaw.DAMAGED)

    def refuse(self, problem: str, flaw: PictureFlaw = PictureFlaw.UNFIT) -> NoReturn:
        raise PictureError(
            field="content",
            value=f"{self.kind}, {len(self.content)} bytes",
            problem=problem,
            flaw=flaw,
        )


_PNG_CHUNK = Struct(">I4s")
_PNG_CHECKSUM = Struct(">I")
_PNG_HEADER = Struct(">II")
_PNG_HEADER_BYTES = 13
_PNG_FRAME_BYTES = 12
"""Length, name and checksum of a chunk."""
_PNG_PIXELS = {b"IHDR", b"PLTE", b"IDAT", b"fdAT"}


def _inspect_png(reader: _Reader) -> _Side:
    content, view = reader.content, memoryview(reader.content)
    start, has_pixels = len(_PNG), False
    while True:
        reader.begin_part(start + _PNG_FRAME_BYTES)
        length, name = _PNG_CHUNK.unpack_from(content, start)
        is_header = start == len(_PNG)
        if is_header != (name == b"IHDR") or (is_header and length != _PNG_HEADER_BYTES):
            reader.refuse_damaged("a PNG image has one header, at its beginning")
        if not name.isalpha():
            reader.refuse_damaged("a chunk of the PNG image has no valid name")
        end = start + _PNG_FRAME_BYTES + length
        reader.require(end)
        if (crc32(view[start + 4 : end - 4]),) != _PNG_CHECKSUM.unpack_from(content, end - 4):
            reader.refuse_damaged("a checksum of the PNG image does not match")
        if name == b"IEND":
            break
        has_pixels |= name == b"IDAT"
        if name not in _PNG_PIXELS:
            reader.check_metadata(start, end)
        start = end
    reader.check_end(end)
    if length or not has_pixels:
        reader.refuse_damaged("the PNG image has no pixels")
    width_px, height_px = _PNG_HEADER.unpack_from(content, len(_PNG) + _PNG_CHUNK.size)
    return width_px, height_px


_JPEG_MARKER = re.compile(rb"\xff++([^\x00\xff])")
_JPEG_NEXT_MARKER = re.compile(rb"\xff(?=[\x01-\xcf\xd8-\xfe])")
"""The end of a scan: within it, 0xFF is followed by 0x00 or is a restart marker."""
_JPEG_FRAME = Struct(">BHH")
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_TEXT = frozenset(range(0xE0, 0xF0)) | {0xFE}
_JPEG_EOI, _JPEG_SOS = 0xD9, 0xDA
_JPEG_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})
"""Markers without a segment; none of them belongs between segments."""
_JPEG_LENGTH_MIN, _JPEG_FRAME_LENGTH_MIN = 2, 8
_SCRIPT_COMMENT = b"/*"


def _inspect_jpeg(reader: _Reader) -> _Side:
    content = reader.content
    if content[4:6] == _SCRIPT_COMMENT and b"*/" in content:
        reader.refuse("is a JPEG image and a script at the same time")
    start, side, has_pixels = 2, None, False
    while True:
        marker, start = _read_jpeg_marker(reader, start)
        if marker == _JPEG_EOI:
            break
        reader.require(start + 2)
        length = int.from_bytes(content[start : start + 2])
        is_frame = marker in _JPEG_FRAMES
        if length < (_JPEG_FRAME_LENGTH_MIN if is_frame else _JPEG_LENGTH_MIN):
            reader.refuse_damaged("a segment of the JPEG image is too short")
        end = start + length
        reader.require(end)
        if is_frame and side is not None:
            reader.refuse_damaged("the JPEG image has two frames")
        if is_frame:
            _, height_px, width_px = _JPEG_FRAME.unpack_from(content, start + 2)
            side = width_px, height_px
        elif marker in _JPEG_TEXT:
            reader.check_metadata(start, end)
        elif marker == _JPEG_SOS:
            has_pixels = True
            found = _JPEG_NEXT_MARKER.search(content, end)
            end = found.start() if found else len(content)
        start = end
    reader.check_end(start)
    if side is None or not has_pixels:
        reader.refuse_damaged("the JPEG image has no pixels")
    return side


def _read_jpeg_marker(reader: _Reader, start: int) -> tuple[int, int]:
    """Return the marker there, and where it ends; markers may be padded."""
    reader.begin_part(start + 2)
    found = _JPEG_MARKER.match(reader.content, start)
    if found is None:
        if not reader.content[start:].strip(b"\xff"):
            reader.require(len(reader.content) + 1)  # only padding is left
        reader.refuse_damaged("the JPEG image lacks a marker")
    if found[1][0] in _JPEG_ALONE:
        reader.refuse_damaged("the JPEG image has a misplaced marker")
    return found[1][0], found.end()


_WEBP_CHUNK = Struct("<4sI")
_WEBP_SIDE_AT = _WEBP_HEAD_BYTES + _WEBP_CHUNK.size
_WEBP_PIXELS = {b"VP8 ", b"VP8L", b"ANMF"}
_WEBP_DATA = _WEBP_PIXELS | {b"VP8X", b"ALPH"}


def _inspect_webp(reader: _Reader) -> _Side:
    content = reader.content
    end_of_file = 8 + int.from_bytes(content[4:8], "little")
    reader.require(end_of_file)
    reader.check_end(end_of_file)
    start, names = _WEBP_HEAD_BYTES, []
    while start < end_of_file:
        if start + _WEBP_CHUNK.size > end_of_file:
            reader.refuse_damaged("a chunk of the WebP image is cut off")
        name, length = _WEBP_CHUNK.unpack_from(content, start)
        end = start + _WEBP_CHUNK.size + length + length % 2
        if end > end_of_file:
            reader.refuse_damaged("a chunk of the WebP image is cut off")
        reader.begin_part(end)
        if name not in _WEBP_DATA:
            reader.check_metadata(start, end)
        names.append(name)
        start = end
    if _WEBP_PIXELS.isdisjoint(names):
        reader.refuse_damaged("the WebP image has no pixels")
    read = _WEBP_SIDES.get(names[0])
    head = content[_WEBP_SIDE_AT : _WEBP_SIDE_AT + 10].ljust(10, b"\0")
    side = read(head) if read else None
    if side is None:
        reader.refuse_damaged("the WebP image has no valid header")
    return side


def _read_lossy_side(head: bytes) -> _Side | None:
    if head[0] & 1 or head[3:6] != b"\x9d\x01\x2a":
        return None  # not a key frame
    width_px, height_px = Struct("<HH").unpack_from(head, 6)
    return width_px & 0x3FFF, height_px & 0x3FFF


def _read_lossless_side(head: bytes) -> _Side | None:
    if head[0] != 0x2F:  # noqa: PLR2004  # the format's signature
        return None
    bits = int.from_bytes(head[1:5], "little")
    return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1


def _read_canvas_side(head: bytes) -> _Side:
    return int.from_bytes(head[4:7], "little") + 1, int.from_bytes(head[7:10], "little") + 1


_WEBP_SIDES: dict[bytes, Callable[[bytes], _Side | None]] = {
    b"VP8 ": _read_lossy_side,
    b"VP8L": _read_lossless_side,
    b"VP8X": _read_canvas_side,
}


def _inspect_avif(reader: _Reader) -> _Side:
    try:
        width_px, height_px, others = read_avif(reader.content)
    except AvifCutError:
        reader.refuse("is incomplete", PictureFlaw.CUT)
    except AvifTrailingError:
        reader.refuse(_TRAILING)
    except AvifError as error:
        reader.refuse_damaged(f"{error}")
    for box in others:
        reader.check_metadata(box.start, box.end)
    return width_px, height_px


_INSPECTORS: dict[str, Callable[[_Reader], _Side]] = {
    "png": _inspect_png,
    "jpg": _inspect_jpeg,
    "webp": _inspect_webp,
    "avif": _inspect_avif,
}
