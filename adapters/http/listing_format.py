"""The JSON of a provider's listing: one page of an area's tiles.

A page is decoded into typed lines, which take a seventh of the memory of dictionaries. The decoder
skips unknown fields unseen, and keeps the last of two equal keys. So a page is trusted only if it
has nothing but the known fields, each once; otherwise every line is checked on its own.
"""

import codecs
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import VALUES_MAX, count_values_max, parse_json
from tileferry.domain.tiles import ListingPage, TileId, TileSummary
from tileferry.domain.validation import parse_datetime

_CURSOR_CHARS_MAX = 1_024
_CURSOR_BYTES_MAX = 16 * 1024
"""More than that many characters take, however they are escaped."""
_LINE_BYTES_MAX = 16 * 1024
_REST_BYTES_MAX = 256 * 1024
"""Limit for all of a page but its tiles."""
_EXPLAINED_BYTES_MAX = 4 * 1024 * 1024
"""An invalid page up to this size is parsed again, to name the field."""
_BLOCK_BYTES = 1024 * 1024


class _Line(msgspec.Struct, gc=False):
    z: int
    x: int
    y: int
    produced_at: str
    resolution_m_per_px: float
    estimated_bytes: int
    sha256: str | None = None


class _Page(msgspec.Struct):
    tiles: list[_Line]
    next: msgspec.Raw = msgspec.Raw(b"")  # immutable


class _RawTiles(msgspec.Struct):
    tiles: msgspec.Raw


_PAGE = msgspec.json.Decoder(_Page)
_RAW_TILES = msgspec.json.Decoder(_RawTiles)
_RAW_LINES = msgspec.json.Decoder(list[msgspec.Raw])
_DECODER_ERRORS = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
_DECODER_PATH = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)


def parse_listing_page(content: bytes, *, source: str, bytes_max: int) -> ListingPage:
    """Parse a page; ignore unknown fields, and name the invalid field in errors."""
    if len(content) > bytes_max:
        raise _page_error(content, f"is longer than {bytes_max} bytes")
    try:
        page = _PAGE.decode(content)
        if not _has_only_known_fields(content, page):
            _check_strictly(content)
    except _DECODER_ERRORS as error:
        _explain(content, source)
        said, path = _DECODER_PATH.fullmatch(str(error)).groups()  # type: ignore[union-attr]  # it matches any text
        raise _page_error(content, f"is invalid: {said}", path or "") from None
    cursor = _parse_cursor(bytes(page.next))
    lines = page.tiles[::-1]
    page.tiles.clear()  # each line is dropped once it is parsed
    tiles = tuple(_parse_tile(lines.pop(), index, source) for index in range(len(lines)))
    return ListingPage(tiles=tiles, next=cursor, size_bytes=len(content))


def _has_only_known_fields(content: bytes, page: _Page) -> bool:
    """Return whether no key is unknown or repeated, and no text is escaped.

    Every key has a colon. All fields of a line but the digest are required, so that further keys
    make more colons than these and the ones in texts.
    """
    if not content.isascii() or b"\\" in content:
        return False
    texts = sum(line.produced_at.count(":") for line in page.tiles)
    required = len(_Line.__struct_fields__) - 1
    keys = 1 + sum(required + (line.sha256 is not None) for line in page.tiles)
    cursor = bytes(page.next)
    return content.count(b":") == keys + bool(cursor) + texts + cursor.count(b":")


def _check_strictly(content: bytes) -> None:
    """Check the lines one by one, and the rest of the page: in one piece it may be too large."""
    _check_encoding(content)
    tiles = _RAW_TILES.decode(content).tiles
    # The lines have all of their fields, so there are not too many of them.
    for index, line in enumerate(_RAW_LINES.decode(tiles)):
        parse_json(bytes(line), field=f"listing.tiles[{index}]", bytes_max=_LINE_BYTES_MAX)
    rest = content.replace(bytes(tiles), b"[]", 1)
    parse_json(rest, field="listing", bytes_max=_REST_BYTES_MAX)


def _check_encoding(content: bytes) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(content)
    for start in range(0, len(content), _BLOCK_BYTES):
        decoder.decode(view[start : start + _BLOCK_BYTES])
    decoder.decode(b"", final=True)


def _explain(content: bytes, source: str) -> None:
    """Raise an error that names the invalid field, if the page is small enough to find it."""
    if len(content) > _EXPLAINED_BYTES_MAX or count_values_max(content) > VALUES_MAX:
        return
    data = parse_json(content, field="listing", bytes_max=_EXPLAINED_BYTES_MAX)
    for index, line in enumerate(_get_field(data, "listing", "tiles", list)):
        _parse_tile_by_field(line, f"listing.tiles[{index}]", source)


def _parse_cursor(content: bytes) -> str | None:
    if not content:
        return None
    cursor = parse_json(content, field="listing.next", bytes_max=_CURSOR_BYTES_MAX)
    if cursor is None or (isinstance(cursor, str) and 0 < len(cursor) <= _CURSOR_CHARS_MAX):
        return cursor
    raise InvalidValueError(
        field="listing.next",
        value=cursor,
        problem=f"must be null, or text of 1 to {_CURSOR_CHARS_MAX} characters",
    )


def _page_error(content: bytes, problem: str, path: str = "") -> InvalidValueError:
    return InvalidValueError(field=f"listing{path}", value=f"{len(content)} bytes", problem=problem)


def _parse_tile(line: _Line, index: int, source: str) -> TileSummary:
    try:
        # The constructors validate. Only a line that fails is parsed again field by field, to name
        # the field.
        produced_at = datetime.fromisoformat(line.produced_at)
        if produced_at.tzinfo is UTC:
            return TileSummary(
                tile_id=TileId(source=source, zoom=line.z, x=line.x, y=line.y),
                produced_at=produced_at,
                resolution_m_per_px=line.resolution_m_per_px,
                estimated_bytes=line.estimated_bytes,
                sha256=line.sha256,
            )
    except ValueError:
        pass
    return _parse_tile_by_field(msgspec.structs.asdict(line), f"listing.tiles[{index}]", source)


def _parse_tile_by_field(line: Any, path: str, source: str) -> TileSummary:
    zoom, x, y = (_get_field(line, path, name, int) for name in ("z", "x", "y"))
    produced_at = parse_datetime(
        _get_field(line, path, "produced_at", str), field=f"{path}.produced_at"
    )
    resolution = _get_field(line, path, "resolution_m_per_px", int, float)
    estimated_bytes = _get_field(line, path, "estimated_bytes", int)
    try:
        return TileSummary(
            tile_id=TileId(source=source, zoom=zoom, x=x, y=y),
            produced_at=produced_at,
            resolution_m_per_px=resolution,
            estimated_bytes=estimated_bytes,
            sha256=line.get("sha256"),
        )
    except InvalidValueError as error:
        name = error.field.rpartition(".")[2]
        raise InvalidValueError(
            field=f"{path}.{'z' if name == 'zoom' else name}",
            value=error.value,
            problem=error.problem,
        ) from None


def _get_field(data: Any, path: str, name: str, *kinds: type) -> Any:
    if not isinstance(data, Mapping):
        raise InvalidValueError(field=path, value=type(data).__name__, problem="must be an object")
    value = data.get(name)
    # bool is a subclass of int in Python, but not a number in JSON.
    if not isinstance(value, kinds) or isinstance(value, bool):
        problem = "is missing" if name not in data else f"must be {_name_kind(kinds)}"
        raise InvalidValueError(field=f"{path}.{name}", value=value, problem=problem)
    return value


_NAMES = {int: "a whole number", float: "a number", str: "text", list: "a list"}


def _name_kind(kinds: tuple[type, ...]) -> str:
    return _NAMES[kinds[-1]]
