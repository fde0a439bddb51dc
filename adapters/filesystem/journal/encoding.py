"""The records of a journal.

==========  ========================================================================== header
``{"journal":1}``, the first record; the number is the format's version group
``{"source":"sat","tiles":{"15":[x,y,x,y,…],…}}``, tiles by zoom level terminal
``{"complete":true,"count":100,"crc32":"…","journal":1}``, alone in its file ==========
==========================================================================
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict, TypeGuard
from zlib import crc32

from tileferry.adapters.filesystem.checksummed_lines import parse_json
from tileferry.adapters.filesystem.files import OpenFile
from tileferry.domain.canonical import canonical_json
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import ZOOM_MAX, TileId

VERSION = 1
TILES_PER_RECORD_MAX = 4096
"""Keeps the longest record, at zoom 21, well below the maximum line length."""
_TERMINAL_BYTES_MAX = 256
_ZOOMS = {str(zoom): zoom for zoom in range(ZOOM_MAX + 1)}


class JournalHeader(TypedDict):
    """The first record."""

    journal: int


class JournalTerminal(JournalHeader):
    """The only record of a completed download's journal."""

    complete: bool
    count: int
    crc32: str


HEADER = canonical_json({"journal": VERSION})


def encode_groups(tiles: Sequence[TileId]) -> Iterator[bytes]:
    """Yield the records for ``tiles``: one per source and ``TILES_PER_RECORD_MAX`` tiles."""
    for start in range(0, len(tiles), TILES_PER_RECORD_MAX):
        by_source: dict[str, dict[int, list[int]]] = {}
        for tile in tiles[start : start + TILES_PER_RECORD_MAX]:
            by_zoom = by_source.setdefault(tile.source, {})
            by_zoom.setdefault(tile.zoom, []).extend((tile.x, tile.y))
        for source, by_zoom in by_source.items():
            # Plain JSON: these bytes are never compared, and canonical JSON is slower for each
            # number.
            text = json.dumps({"source": source, "tiles": by_zoom}, separators=(",", ":"))
            yield text.encode("ascii")


def parse_tiles(value: object) -> Sequence[TileId] | None:
    """Return the tiles of a group record; ``None`` if it is invalid."""
    match value:
        case {"source": str(source), "tiles": dict(by_zoom), **rest} if not rest:
            try:
                return [
                    TileId(source=source, zoom=_ZOOMS[zoom], x=x, y=y)
                    for zoom, indices in by_zoom.items()
                    for x, y in zip(indices[::2], indices[1::2], strict=True)
                ]
            except (InvalidValueError, KeyError, TypeError, ValueError):
                return None
        case _:
            return None


def is_header(value: object) -> TypeGuard[JournalHeader]:
    """Return whether this is a journal's first record, of any version."""
    return isinstance(value, dict) and type(value.get("journal")) is int


def encode_terminal(count: int) -> bytes:
    """Return the complete file content for a completed download."""
    state = {"complete": True, "count": count, "journal": VERSION}
    return canonical_json({**state, "crc32": _checksum(state)}) + b"\n"


def read_terminal(file: OpenFile) -> JournalTerminal | None:
    """Return the terminal record if the file has a valid one; this reads only a few bytes."""
    content = file.pread(_TERMINAL_BYTES_MAX + 1, 0)
    if not content.startswith(b"{") or len(content) > _TERMINAL_BYTES_MAX:
        return None
    value = parse_json(content)
    return value if _is_terminal(value) else None


def _is_terminal(value: object) -> TypeGuard[JournalTerminal]:
    match value:
        case {"crc32": str(checksum), **state} if checksum == _checksum(state):
            count, version = state.get("count"), state.get("journal")
            counts = type(count) is int and count >= 0 and type(version) is int
            return counts and state.get("complete") is True
        case _:
            return False


def _checksum(state: Mapping[Any, object]) -> str:
    return f"{crc32(json.dumps(state, sort_keys=True).encode('ascii')):08x}"
