"""Reading somebody's MBTiles: a database that may be anything, and of which nothing is run.

A view may stand for the table of tiles, as it often does.
"""

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from attrs import define, field, frozen

from tileferry.adapters.filesystem.archives.destination import (
    DRAFT,
    ArchiveWorkspace,
    FileArchiveTarget,
    apply_umask_mode,
    is_regular_file,
)
from tileferry.adapters.filesystem.archives.untrusted_database import (
    UntrustedDatabase,
    archive_error,
    open_untrusted_database,
)
from tileferry.adapters.filesystem.files import Directory
from tileferry.application.ports.archives import ArchivedTile, RefusedEntry
from tileferry.domain.archives import ArchiveDescription, TileFacts, TileOrder, flip_row
from tileferry.domain.errors import ArchiveError, InvalidValueError, StorageError
from tileferry.domain.text import printable
from tileferry.domain.tiles import TILE_BYTES_MAX, TileId
from tileferry.domain.tiles.coverage import AREA_TILES_MAX
from tileferry.domain.tiles.tile_id import check_zoom

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

    def is_mbtiles(self) -> bool:
        """Tell whether the file has tiles, or a place for them."""
        try:
            with self._open() as database:
                return not list(database.fetch_rows(f"{_SIZES} LIMIT 0"))
        except ArchiveError:
            return False

    def iter_sizes(self, source: str) -> Iterator[tuple[TileId, int]]:
        """Yield what can be a tile."""
        with self._open() as database:
            for *key, size in self._fetch_rows(database, _SIZES):
                tile = _parse_tile_id(key, source)
                if isinstance(tile, TileId) and isinstance(size, int) and size <= TILE_BYTES_MAX:
                    yield tile, size

    def tiles(self, source: str) -> Iterator[ArchivedTile | RefusedEntry]:
        """Yield each row as a tile, or why it is none."""
        with self._open() as database:
            has_facts = self._read_tables(database).get("tileferry_facts") == "table"
            query = _TILES_AND_FACTS if has_facts else _TILES
            for zoom, column, row, size, content, *facts in self._fetch_rows(database, query):
                yield _parse_row((zoom, column, row), size, content, facts, source)

    def _fetch_rows(self, database: UntrustedDatabase, query: str) -> Iterator[tuple[object, ...]]:
        """Go through the rows, but not for ever: a view can have more than there are tiles."""
        for number, row in enumerate(database.fetch_rows(query)):
            if number >= AREA_TILES_MAX:
                raise archive_error(self.path, f"has more than {AREA_TILES_MAX:,} tiles")
            yield row

    @contextmanager
    def _open(self) -> Iterator[UntrustedDatabase]:
        with open_untrusted_database(self.path, self.check) as database:
            if "tiles" not in self._read_tables(database):
                raise archive_error(self.path, "has no table of tiles")
            yield database

    @staticmethod
    def _read_tables(database: UntrustedDatabase) -> dict[str, str]:
        rows = database.connection.execute(_TABLES)
        return {
            name.decode("ascii"): kind.decode("ascii")
            for name, kind, sql in rows
            if isinstance(sql, bytes) and not _VIRTUAL.match(sql)
        }


def _parse_row(
    key: tuple[object, object, object],
    size: object,
    content: object,
    facts: list[object],
    source: str,
) -> ArchivedTile | RefusedEntry:
    tile = _parse_tile_id(list(key), source)
    if not isinstance(tile, TileId):
        return RefusedEntry(place="/".join(_shorten(part) for part in key), problem=tile)
    if not isinstance(content, bytes):
        problem = "is no blob" if size is None else f"has {size} bytes, too many for a tile"
        return RefusedEntry(place=str(tile), problem=problem)
    try:
        told = TileFacts.parse(*(_decode_text(fact) for fact in facts))
    except InvalidValueError as error:
        return RefusedEntry(place=str(tile), problem=str(error))
    return ArchivedTile(tile_id=tile, content=content, facts=told)


def _parse_tile_id(key: list[object], source: str) -> TileId | str:
    """Return the tile that a row is about, or why it is none; rows are counted from the south."""
    zoom, column, row = key
    if not (type(zoom) is int and type(column) is int and type(row) is int):
        return "zoom_level, tile_column and tile_row must be whole numbers"
    try:
        y = flip_row(check_zoom(zoom), row)
        return TileId(source=source, zoom=zoom, x=column, y=y)
    except InvalidValueError as error:
        return str(error)


def _shorten(part: object) -> str:
    """Write a part of a key, which can be of any kind and size, as far as it names the row."""
    text = part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part)
    return printable(text, limit=_PART_CHARS_MAX)


def _decode_text(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


__all__ = ["MbtilesSource", "MbtilesTarget"]

# A draft is thrown away after a crash, so SQLite need not be careful with it; one sync ends it.
_CREATE = """
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    PRAGMA application_id = 0x4d504258;
    CREATE TABLE metadata (name text, value text);
    CREATE TABLE tiles (
        zoom_level integer, tile_column integer, tile_row integer, tile_data blob
    );
    CREATE TABLE tileferry_facts (
        zoom_level integer, tile_column integer, tile_row integer,
        produced_at text, resolution_m_per_px real, sha256 text,
        PRIMARY KEY (zoom_level, tile_column, tile_row)
    ) WITHOUT ROWID;
"""
_FINISH = "CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row)"


@frozen(kw_only=True)
class MbtilesTarget(FileArchiveTarget):
    """A ``.mbtiles`` file to be."""

    @property
    def order(self) -> TileOrder:
        """As its index is ordered: column by column."""
        return TileOrder.COLUMNS

    @contextmanager
    def open_draft(self) -> "Iterator[_MbtilesDraft]":
        """Begin the file, in a folder beside it."""
        place = self._workspace(_is_mbtiles)
        _check_no_sidecars(self.path)
        with (
            place.folder() as folder,
            _translate_sqlite_errors(self.path),
            closing(sqlite3.connect(folder.path / DRAFT, isolation_level=None)) as database,
        ):
            database.executescript(_CREATE)
            database.execute("BEGIN")
            yield _MbtilesDraft(place=place, folder=folder, database=database)


def _is_mbtiles(path: Path) -> bool:
    """Tell whether a file is MBTiles, or empty: any other is not for us to replace."""
    return is_regular_file(path) and (not path.stat().st_size or MbtilesSource(path).is_mbtiles())


def _check_no_sidecars(path: Path) -> None:
    """Refuse a name beside which a journal lies: SQLite would take that into the new file."""
    for suffix in ("-journal", "-wal", "-shm"):
        if os.path.lexists(f"{path}{suffix}"):
            raise ArchiveError(
                path=str(path),
                problem=f"has {path.name}{suffix} beside it, which SQLite would read into it",
                remedy="close what has it open, or remove that file, or name another place",
            )


@define(kw_only=True)
class _MbtilesDraft:
    """The file while it is written."""

    place: ArchiveWorkspace
    folder: Directory
    database: sqlite3.Connection

    def add(self, tile: ArchivedTile) -> None:
        """Write a tile and what is known of it."""
        tile_id = tile.tile_id
        key = tile_id.zoom, tile_id.x, flip_row(tile_id.zoom, tile_id.y)
        self.database.execute("INSERT INTO tiles VALUES (?, ?, ?, ?)", (*key, tile.content))
        self.database.execute(
            "INSERT INTO tileferry_facts VALUES (?, ?, ?, ?, ?, ?)", (*key, *tile.facts.to_texts())
        )

    def seal(self, about: ArchiveDescription) -> MbtilesSource:
        """Describe it, index it, and make it durable."""
        self.database.executemany("INSERT INTO metadata VALUES (?, ?)", about.to_texts().items())
        self.database.execute(_FINISH)
        self.database.execute("COMMIT")
        self.database.close()
        with self.folder.open_file(DRAFT) as file:
            apply_umask_mode(file.fd)
            file.fdatasync()
        return MbtilesSource(self.folder.path / DRAFT)

    def publish(self) -> None:
        """Give the file its name."""
        _check_no_sidecars(self.place.path)
        self.place.publish(self.folder)


@contextmanager
def _translate_sqlite_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite says into an error of ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(
            action="write",
            path=str(path),
            problem=str(error),
            remedy="free space or check the disk, then run again: no half archive is kept",
        ) from error
