"""Reading somebody's MBTiles: a database that may be anything, and of which nothing is run.

A view may stand for the table of tiles, as it often does.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import field, frozen

from tileferry.adapters.filesystem.archives.foreign_database import (
    ForeignDatabase,
    foreign_database,
    spoilt,
)
from tileferry.application.ports.archives import ArchivedTile, RefusedEntry
from tileferry.domain.archives import TileFacts, flipped_row
from tileferry.domain.errors import ArchiveError, InvalidValueError
from tileferry.domain.text import printable
from tileferry.domain.tiles import TILE_BYTES_MAX, TileId
from tileferry.domain.tiles.tile_id import check_zoom
from tileferry.domain.tiles.tile_set import AREA_TILES_MAX

_KEY = ("zoom_level", "tile_column", "tile_row")
_SIZE = "CASE typeof(tiles.tile_data) WHEN 'blob' THEN length(tiles.tile_data) END"
_CONTENT = f"CASE WHEN {_SIZE} <= {TILE_BYTES_MAX} THEN tiles.tile_data END"
_WHERE = ", ".join(f"tiles.{column}" for column in _KEY)
_SIZES = f"SELECT {_WHERE}, {_SIZE} FROM tiles"  # noqa: S608  # names of ours
_TILES = f"SELECT {_WHERE}, {_SIZE}, {_CONTENT}, NULL, NULL, NULL FROM tiles"  # noqa: S608  # as above
_TILES_AND_FACTS = (
    f"SELECT {_WHERE}, {_SIZE}, {_CONTENT},"  # noqa: S608  # as above
    " facts.produced_at, facts.resolution_m_per_px, facts.sha256"
    " FROM tiles LEFT JOIN tileferry_facts AS facts USING (zoom_level, tile_column, tile_row)"
)
_PART_CHARS_MAX = 40
"""Of what stands where a number should: a refusal names it, and may be kept for long."""
_TABLES = (
    "SELECT name, type, sql FROM sqlite_master WHERE name IN ('tiles', 'tileferry_facts')"
    " AND type IN ('table', 'view')"
)
_VIRTUAL = re.compile(rb"(?i)\s*create\b.*\bvirtual\b.*\btable\b", re.DOTALL)


@frozen
class MbtilesSource:
    """Reads a ``.mbtiles`` file in the order that it has."""

    path: Path
    check: Callable[[], object] = field(default=lambda: None, kw_only=True)
    """Is called again and again; raises ``KeyboardInterrupt`` for who wants it to end."""

    def is_one(self) -> bool:
        """Tell whether the file has tiles, or a place for them."""
        try:
            with self._opened() as database:
                return not list(database.rows(f"{_SIZES} LIMIT 0"))
        except ArchiveError:
            return False

    def sizes(self, source: str) -> Iterator[tuple[TileId, int]]:
        """Yield what can be a tile."""
        with self._opened() as database:
            for *key, size in self._rows(database, _SIZES):
                tile = _tile(key, source)
                if isinstance(tile, TileId) and isinstance(size, int) and size <= TILE_BYTES_MAX:
                    yield tile, size

    def tiles(self, source: str) -> Iterator[ArchivedTile | RefusedEntry]:
        """Yield each row as a tile, or why it is none."""
        with self._opened() as database:
            has_facts = self._tables(database).get("tileferry_facts") == "table"
            query = _TILES_AND_FACTS if has_facts else _TILES
            for zoom, column, row, size, content, *facts in self._rows(database, query):
                yield _archived((zoom, column, row), size, content, facts, source)

    def _rows(self, database: ForeignDatabase, query: str) -> Iterator[tuple[object, ...]]:
        """Go through the rows, but not for ever: a view can have more than there are tiles."""
        for number, row in enumerate(database.rows(query)):
            if number >= AREA_TILES_MAX:
                raise spoilt(self.path, f"has more than {AREA_TILES_MAX:,} tiles")
            yield row

    @contextmanager
    def _opened(self) -> Iterator[ForeignDatabase]:
        with foreign_database(self.path, self.check) as database:
            if "tiles" not in self._tables(database):
                raise spoilt(self.path, "has no table of tiles")
            yield database

    @staticmethod
    def _tables(database: ForeignDatabase) -> dict[str, str]:
        rows = database.connection.execute(_TABLES)
        return {
            name.decode("ascii"): kind.decode("ascii")
            for name, kind, sql in rows
            if isinstance(sql, bytes) and not _VIRTUAL.match(sql)
        }


def _archived(
    key: tuple[object, object, object],
    size: object,
    content: object,
    facts: list[object],
    source: str,
) -> ArchivedTile | RefusedEntry:
    tile = _tile(list(key), source)
    if not isinstance(tile, TileId):
        return RefusedEntry(place="/".join(_short(part) for part in key), problem=tile)
    if not isinstance(content, bytes):
        problem = "is no blob" if size is None else f"has {size} bytes, too many for a tile"
        return RefusedEntry(place=str(tile), problem=problem)
    try:
        told = TileFacts.read(*(_text(fact) for fact in facts))
    except InvalidValueError as error:
        return RefusedEntry(place=str(tile), problem=str(error))
    return ArchivedTile(tile_id=tile, content=content, facts=told)


def _tile(key: list[object], source: str) -> TileId | str:
    """Return the tile that a row is about, or why it is none; rows are counted from the south."""
    zoom, column, row = key
    if not (type(zoom) is int and type(column) is int and type(row) is int):
        return "zoom_level, tile_column and tile_row must be whole numbers"
    try:
        y = flipped_row(check_zoom(zoom), row)
        return TileId(source=source, zoom=zoom, x=column, y=y)
    except InvalidValueError as error:
        return str(error)


def _short(part: object) -> str:
    """Write a part of a key, which can be of any kind and size, as far as it names the row."""
    text = part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part)
    return printable(text, limit=_PART_CHARS_MAX)


def _text(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
