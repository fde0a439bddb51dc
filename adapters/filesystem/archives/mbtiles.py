"""MBTiles archives: reading untrusted files, and writing new ones.

A source is opened as an untrusted database. Its ``tiles`` may be a view, as is common.
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
from tileferry.domain.tiles.limits import AREA_TILES_MAX
from tileferry.domain.tiles.tile_id import check_zoom

_KEY = ("zoom_level", "tile_column", "tile_row")
_SIZE = "CASE typeof(tiles.tile_data) WHEN 'blob' THEN length(tiles.tile_data) END"
_CONTENT = f"CASE WHEN {_SIZE} <= {TILE_BYTES_MAX} THEN tiles.tile_data END"
_WHERE = ", ".join(f"tiles.{column}" for column in _KEY)
_SIZES = f"SELECT {_WHERE}, {_SIZE} FROM tiles"  # noqa: S608  # constant names
_TILES = f"SELECT {_WHERE}, {_SIZE}, {_CONTENT}, NULL, NULL, NULL FROM tiles"  # noqa: S608  # as above
_TILES_AND_FACTS = (
    f"SELECT {_WHERE}, {_SIZE}, {_CONTENT},"  # noqa: S608  # as above
    " facts.produced_at, facts.resolution_m_per_px, facts.sha256"
    " FROM tiles LEFT JOIN tileferry_facts AS facts USING (zoom_level, tile_column, tile_row)"
)
_PART_CHARS_MAX = 40
"""Limit for an invalid key part in a refusal, because refusals may be stored for a long time."""
_TABLES = (
    "SELECT name, type, sql FROM sqlite_master WHERE name IN ('tiles', 'tileferry_facts')"
    " AND type IN ('table', 'view')"
)
_BLANK = rb"(?:\s|--[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?)*+"
_VIRTUAL = re.compile(rb"(?i)%bcreate%bvirtual\b" % (_BLANK, _BLANK))
"""Linear in the length of the statement: nothing is matched twice."""


@frozen
class MbtilesSource:
    """Reads a ``.mbtiles`` file in its own order."""

    path: Path
    check: Callable[[], object] = field(default=lambda: None, kw_only=True)
    """Called repeatedly; raises ``KeyboardInterrupt`` to cancel."""

    def is_mbtiles(self) -> bool:
        """Return whether the file has a table or view of tiles."""
        try:
            with self._open() as database:
                return not list(database.fetch_rows(f"{_SIZES} LIMIT 0"))
        except ArchiveError:
            return False

    def iter_sizes(self, source: str) -> Iterator[tuple[TileId, int]]:
        """Yield the id and size of each row that can be a tile."""
        with self._open() as database:
            for *key, size in self._fetch_rows(database, _SIZES):
                tile = _parse_tile_id(key, source)
                if isinstance(tile, TileId) and isinstance(size, int) and size <= TILE_BYTES_MAX:
                    yield tile, size

    def tiles(self, source: str) -> Iterator[ArchivedTile | RefusedEntry]:
        """Yield each row as a tile, or as a refused entry with the reason."""
        with self._open() as database:
            has_facts = self._read_tables(database).get("tileferry_facts") == "table"
            query = _TILES_AND_FACTS if has_facts else _TILES
            for zoom, column, row, size, content, *facts in self._fetch_rows(database, query):
                yield _parse_row((zoom, column, row), size, content, facts, source)

    def _fetch_rows(self, database: UntrustedDatabase, query: str) -> Iterator[tuple[object, ...]]:
        """Yield the rows, up to a limit: a view can have more rows than an area has tiles."""
        for number, row in enumerate(database.fetch_rows(query)):
            if number >= AREA_TILES_MAX:
                raise archive_error(self.path, f"has more than {AREA_TILES_MAX:,} tiles")
            yield row

    @contextmanager
    def _open(self) -> Iterator[UntrustedDatabase]:
        with open_untrusted_database(self.path, self.check) as database:
            if "tiles" not in self._read_tables(database):
                raise archive_error(self.path, "has no tiles table")
            yield database

    @staticmethod
    def _read_tables(database: UntrustedDatabase) -> dict[str, str]:
        found = {}
        for name, kind, sql in database.fetch_rows(_TABLES):
            assert isinstance(name, bytes)  # noqa: S101  # it equals one of the two names
            assert isinstance(kind, bytes)  # noqa: S101  # as above
            if isinstance(sql, bytes) and not _VIRTUAL.match(sql):
                found[name.decode("ascii")] = kind.decode("ascii")
        return found


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
        problem = "is not a blob" if size is None else f"has {size} bytes, too many for a tile"
        return RefusedEntry(place=str(tile), problem=problem)
    try:
        told = TileFacts.parse(*(_decode_text(fact) for fact in facts))
    except InvalidValueError as error:
        return RefusedEntry(place=str(tile), problem=str(error))
    return ArchivedTile(tile_id=tile, content=content, facts=told)


def _parse_tile_id(key: list[object], source: str) -> TileId | str:
    """Return the tile id of a row, or why it is invalid; MBTiles counts rows from the south."""
    zoom, column, row = key
    if not (type(zoom) is int and type(column) is int and type(row) is int):
        return "zoom_level, tile_column and tile_row must be whole numbers"
    try:
        y = flip_row(check_zoom(zoom), row)
        return TileId(source=source, zoom=zoom, x=column, y=y)
    except InvalidValueError as error:
        return str(error)


def _shorten(part: object) -> str:
    """Format a key part of any type and size, shortened."""
    text = part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part)
    return printable(text, limit=_PART_CHARS_MAX)


def _decode_text(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


__all__ = ["MbtilesSource", "MbtilesTarget"]

# A draft is discarded after a crash, so SQLite's durability is off; the file is synced once at the
# end.
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
    """An export to a ``.mbtiles`` file."""

    @property
    def order(self) -> TileOrder:
        """Column by column, as in the index."""
        return TileOrder.COLUMNS

    @contextmanager
    def open_draft(self) -> "Iterator[_MbtilesDraft]":
        """Start the file in a draft folder next to its path."""
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
    """Return whether a file is empty or MBTiles; no other file may be replaced."""
    return is_regular_file(path) and (not path.stat().st_size or MbtilesSource(path).is_mbtiles())


def _check_no_sidecars(path: Path) -> None:
    """Reject a path with a SQLite journal next to it: SQLite would apply it to the new file."""
    for suffix in ("-journal", "-wal", "-shm"):
        if os.path.lexists(f"{path}{suffix}"):
            raise ArchiveError(
                path=str(path),
                problem=f"SQLite would apply {path.name}{suffix}, which is next to it",
                remedy="close the program that uses it, remove that file, or choose another name",
            )


@define(kw_only=True)
class _MbtilesDraft:
    """A MBTiles file being written."""

    place: ArchiveWorkspace
    folder: Directory
    database: sqlite3.Connection

    def add(self, tile: ArchivedTile) -> None:
        """Write a tile and its facts."""
        tile_id = tile.tile_id
        key = tile_id.zoom, tile_id.x, flip_row(tile_id.zoom, tile_id.y)
        self.database.execute("INSERT INTO tiles VALUES (?, ?, ?, ?)", (*key, tile.content))
        self.database.execute(
            "INSERT INTO tileferry_facts VALUES (?, ?, ?, ?, ?, ?)", (*key, *tile.facts.to_texts())
        )

    def seal(self, about: ArchiveDescription) -> MbtilesSource:
        """Write the metadata and the index, and make the file durable."""
        self.database.executemany("INSERT INTO metadata VALUES (?, ?)", about.to_texts().items())
        self.database.execute(_FINISH)
        self.database.execute("COMMIT")
        self.database.close()
        with self.folder.open_file(DRAFT) as file:
            apply_umask_mode(file)
            file.fdatasync()
        return MbtilesSource(self.folder.path / DRAFT)

    def publish(self) -> None:
        """Move the file to its path."""
        _check_no_sidecars(self.place.path)
        self.place.publish(self.folder)


@contextmanager
def _translate_sqlite_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(
            action="write",
            path=str(path),
            problem=str(error),
            remedy="free space or check the disk, then re-run; the incomplete archive was removed",
        ) from error
