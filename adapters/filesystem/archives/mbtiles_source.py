"""Reading somebody's MBTiles: a database that may be anything, and of which nothing is run.

It is opened to read only, its schema is not trusted, and SQLite is allowed to select and nothing
else; so a view may stand for the table of tiles, as it often does, and can do no harm.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from attrs import frozen

from tileferry.application.ports.archives import ArchivedTile, RefusedEntry
from tileferry.domain.archives import TileFacts, flipped_row
from tileferry.domain.errors import ArchiveError, InvalidValueError
from tileferry.domain.tiles import TILE_BYTES_MAX, TileId
from tileferry.domain.tiles.tile_id import check_zoom
from tileferry.domain.tiles.tile_set import AREA_TILES_MAX

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION}
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
_TABLES = (
    "SELECT name, type FROM sqlite_master WHERE name IN ('tiles', 'tileferry_facts')"
    " AND type IN ('table', 'view') AND sql NOT LIKE 'create%virtual%table%'"
)


@frozen
class MbtilesSource:
    """Reads a ``.mbtiles`` file in the order that it has."""

    path: Path

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

    def _rows(self, database: sqlite3.Connection, query: str) -> Iterator[tuple[object, ...]]:
        """Go through the rows, but not for ever: a view can have more than there are tiles."""
        for number, row in enumerate(database.execute(query)):
            if number >= AREA_TILES_MAX:
                raise self._spoilt(f"has more than {AREA_TILES_MAX:,} tiles")
            yield row

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        if not self.path.is_file():
            raise ArchiveError(path=str(self.path), problem="is no file", remedy="check the path")
        # Not immutable: a file with a write-ahead log beside it would be read without that.
        address = f"file:{quote(str(self.path.resolve()))}?mode=ro"
        try:
            with closing(sqlite3.connect(address, uri=True)) as database:
                database.execute("PRAGMA trusted_schema = OFF")
                database.execute("PRAGMA cell_size_check = ON")
                database.execute("PRAGMA query_only = ON")
                database.text_factory = bytes  # text need not be UTF-8 there
                database.set_authorizer(_authorized)
                if "tiles" not in self._tables(database):
                    raise self._spoilt("has no table of tiles")
                yield database
        except sqlite3.Error as error:
            raise self._spoilt(f"cannot be read as MBTiles: {error}") from error

    @staticmethod
    def _tables(database: sqlite3.Connection) -> dict[str, str]:
        rows = database.execute(_TABLES)
        return {name.decode("ascii"): kind.decode("ascii") for name, kind in rows}

    def _spoilt(self, problem: str) -> ArchiveError:
        return ArchiveError(
            path=str(self.path),
            problem=problem,
            remedy="get the archive again; what was imported of it is kept",
        )


def _authorized(action: int, *_details: object) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _archived(
    key: tuple[object, object, object],
    size: object,
    content: object,
    facts: list[object],
    source: str,
) -> ArchivedTile | RefusedEntry:
    tile = _tile(list(key), source)
    place = "/".join(str(part) for part in key)
    if not isinstance(tile, TileId):
        return RefusedEntry(place=place, problem=tile)
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


def _text(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
