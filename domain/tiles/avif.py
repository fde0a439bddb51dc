"""The structure of an AVIF image: boxes, of which one says where the others' data is.

Only what is needed to judge whether the image is whole: no pixels are decoded.
"""

from collections.abc import Iterator
from struct import Struct, error

from attrs import frozen

_HEAD = Struct(">I4s")
_LARGE = Struct(">Q")
_SIDE = Struct(">II")
_FULL_BYTES = 4
"""Version and flags of a box that has them."""
_TOP_LEVEL = {b"ftyp", b"meta", b"mdat", b"free", b"skip"}
_SIZES = {0, 4, 8}
"""How long a number in the table of items may be."""
_PARTS_MAX = 1_024


class AvifError(ValueError):
    """The boxes are not those of an AVIF image."""


class AvifCutError(AvifError):
    """The image ends too early."""


class AvifTrailingError(AvifError):
    """Data follows the image."""


@frozen
class Box:
    """A part of the image."""

    name: bytes
    start: int
    """Where its content begins."""
    end: int
    is_open: bool
    """Whether it has no length, and so extends to the end of the file."""


def read_avif(content: bytes) -> tuple[int, int, list[Box]]:
    """Return width, height and the parts that are not image data; raise unless it is whole."""
    boxes = _list_top_level(content)
    end = boxes[-1].end if boxes else 0
    found = {box.name: box for box in boxes}
    if not {b"ftyp", b"meta", b"mdat"} <= found.keys():
        raise AvifCutError("it lacks a header or pixels")
    try:
        width, height, items_end = _read_meta(content, found[b"meta"])
    except error:
        raise AvifError("its properties are cut off") from None
    if items_end > end:
        raise AvifCutError("it is incomplete")
    if (items_end if boxes[-1].is_open else end) != len(content):
        raise AvifTrailingError("data follows the image")
    return width, height, [box for box in boxes if box.name != b"mdat"]


def _list_top_level(content: bytes) -> list[Box]:
    """Return the parts of the file, up to the first that is cut off or not one of an image."""
    boxes: list[Box] = []
    try:
        for box in _iter_boxes(content, 0, len(content)):
            if box.name not in _TOP_LEVEL:
                break
            boxes.append(box)
    except AvifError:
        pass  # what is missing decides whether the image is cut off, or something follows it
    return boxes


def _iter_boxes(content: bytes, start: int, end: int) -> Iterator[Box]:
    found = 0
    while start < end:
        found += 1
        if found > _PARTS_MAX:
            raise AvifError("it has too many parts")
        if start + _HEAD.size > end:
            raise AvifCutError("it is incomplete")
        size, name = _HEAD.unpack_from(content, start)
        inner = start + _HEAD.size
        if size == 1:
            if inner + _LARGE.size > end:
                raise AvifCutError("it is incomplete")
            (size,) = _LARGE.unpack_from(content, inner)
            inner += _LARGE.size
        stop = end if size == 0 else start + size
        if stop < inner:
            raise AvifError("a part has no valid length")
        if stop > end:
            raise AvifCutError("it is incomplete")
        yield Box(name, inner, stop, size == 0)
        start = stop


def _read_meta(content: bytes, meta: Box) -> tuple[int, int, int]:
    """Return the sides of the image, and where the data of its items ends."""
    parts = {box.name: box for box in _iter_boxes(content, meta.start + _FULL_BYTES, meta.end)}
    if not {b"iloc", b"iprp"} <= parts.keys():
        raise AvifError("it has no table of items or no properties")
    sides = [
        _SIDE.unpack_from(content, box.start + _FULL_BYTES)
        for properties in _iter_boxes(content, parts[b"iprp"].start, parts[b"iprp"].end)
        if properties.name == b"ipco"
        for box in _iter_boxes(content, properties.start, properties.end)
        if box.name == b"ispe"
    ]
    if not sides:
        raise AvifError("it does not say how large it is")
    largest = max(width for width, _ in sides), max(height for _, height in sides)
    return *largest, _find_items_end(content, parts[b"iloc"])


def _find_items_end(content: bytes, table: Box) -> int:
    """Return where the last byte of any item is, by the table of items."""
    version, sizes = (
        content[table.start],
        int.from_bytes(content[table.start + 4 : table.start + 6]),
    )
    offset_size, length_size, base_size, index_size = (sizes >> bits & 15 for bits in (12, 8, 4, 0))
    if not {offset_size, length_size, base_size} <= _SIZES or version > 2:  # noqa: PLR2004  # known
        raise AvifError("its table of items has an unknown form")
    reader = _Numbers(content, table.start + 6)
    long_size = 4 if version == 2 else 2  # noqa: PLR2004  # the version
    count = reader.take(long_size)
    if count > _PARTS_MAX:
        raise AvifError("it has too many items")
    last = 0
    for _ in range(count):
        reader.take(long_size)  # the item's number
        method = reader.take(2) & 15 if version else 0
        reader.take(2)  # which file the data is in: always this one
        base = reader.take(base_size)
        extents = reader.take(2)
        if extents > _PARTS_MAX:
            raise AvifError("it has too many items")
        for _ in range(extents):
            reader.take(index_size if version else 0)
            end = base + reader.take(offset_size) + reader.take(length_size)
            last = max(last, end if method == 0 else 0)
        if reader.place > table.end:
            raise AvifError("its table of items is cut off")
    return last


class _Numbers:
    """Reads big-endian numbers one after another."""

    def __init__(self, content: bytes, place: int) -> None:
        self._content = content
        self.place = place

    def take(self, size: int) -> int:
        found = self._content[self.place : self.place + size]
        self.place += size
        return int.from_bytes(found)
