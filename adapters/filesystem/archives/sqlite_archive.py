"""What archives in SQLite files share: reading untrusted files, and writing new ones.

A format says which rows are tiles, and which statements write them. The table ``tileferry_facts``
has the facts of each tile under the same key as the tile; other programs ignore it.
"""

import os
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import ClassVar

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
from tileferry.domain.archives import ArchiveDescription, TileFacts, TileOrder
from tileferry.domain.errors import ArchiveError, InvalidValueError, StorageError
from tileferry.domain.text import printable
from tileferry.domain.tiles import TILE_BYTES_MAX, TileId
from tileferry.domain.tiles.limits import AREA_TILES_MAX

FACTS_TABLE = "tileferry_facts"
_FACTS = ("produced_at", "resolution_m_per_px", "sha256")
_PART_CHARS_MAX = 40
"""Limit for an invalid key part in a refusal, because refusals may be stored for a long time."""
_BLANK = rb"(?:\s|--[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?)*+"
_VIRTUAL = re.compile(rb"(?i)%bcreate%bvirtual\b" % (_BLANK, _BLANK))
"""Linear in the length of the statement: nothing is matched twice."""


@frozen(kw_only=True)
class TileRows:
    """The rows of a file that are tiles."""

    table: str
    key: tuple[str, ...]
    content: str
    parse_key: Callable[[Sequence[object], str], TileId]
    """Returns the tile of a key, with the given source; raises ``InvalidValueError``."""

    def build_size_query(self) -> str:
        return f"SELECT {self._key}, {self._size} FROM {self._table}"  # noqa: S608  # quoted names

    def build_tile_query(self, *, has_facts: bool) -> str:
        """Return the query for key, size, content and facts of each tile."""
        large = f"CASE WHEN {self._size} <= {TILE_BYTES_MAX} THEN tile.{quote_name(self.content)}"
        selected = f"SELECT {self._key}, {self._size}, {large} END"
        if not has_facts:
            return f"{selected}, {', '.join(['NULL'] * len(_FACTS))} FROM {self._table}"
        facts = ", ".join(f"facts.{name}" for name in _FACTS)
        join = f"LEFT JOIN {FACTS_TABLE} AS facts USING ({', '.join(self.key)})"
        return f"{selected}, {facts} FROM {self._table} {join}"  # quoted names

    @property
    def _table(self) -> str:
        return f"{quote_name(self.table)} AS tile"

    @property
    def _key(self) -> str:
        return ", ".join(f"tile.{column}" for column in self.key)

    @property
    def _size(self) -> str:
        content = f"tile.{quote_name(self.content)}"
        return f"CASE typeof({content}) WHEN 'blob' THEN length({content}) END"


def quote_name(name: str) -> str:
    """Quote the name of a table or column."""
    return '"' + name.replace('"', '""') + '"'


@frozen
class SqliteSource(ABC):
    """Reads a file in its own order; its tables may be views, as is common."""

    path: Path
    check: Callable[[], object] = field(default=lambda: None, kw_only=True)
    """Called repeatedly; raises ``KeyboardInterrupt`` to cancel."""
    label: ClassVar[str]
    """The name of the format."""

    @abstractmethod
    def find_rows(self, database: UntrustedDatabase) -> TileRows:
        """Return which rows are tiles; raise ``ArchiveError`` if the file is in another format."""

    def is_readable(self) -> bool:
        """Return whether the file has this format."""
        try:
            with self._open() as (database, rows):
                return not list(database.fetch_rows(f"{rows.build_size_query()} LIMIT 0"))
        except ArchiveError:
            return False

    def iter_sizes(self, source: str) -> Iterator[tuple[TileId, int]]:
        """Yield the id and size of each row that can be a tile."""
        with self._open() as (database, rows):
            for *key, size in self._fetch_rows(database, rows.build_size_query()):
                tile = _parse_key(rows, key, source)
                if isinstance(tile, TileId) and isinstance(size, int) and size <= TILE_BYTES_MAX:
                    yield tile, size

    def tiles(self, source: str) -> Iterator[ArchivedTile | RefusedEntry]:
        """Yield each row as a tile, or as a refused entry with the reason."""
        with self._open() as (database, rows):
            has_facts = find_table(database, FACTS_TABLE) == "table"
            query = rows.build_tile_query(has_facts=has_facts)
            width = len(rows.key)
            for row in self._fetch_rows(database, query):
                key, (size, content, *facts) = row[:width], row[width:]
                tile = _parse_key(rows, key, source)
                yield _build_entry(tile, key, size, content, facts)

    def _fetch_rows(self, database: UntrustedDatabase, query: str) -> Iterator[tuple[object, ...]]:
        """Yield the rows, up to a limit: a view can have more rows than an area has tiles."""
        for number, row in enumerate(database.fetch_rows(query)):
            if number >= AREA_TILES_MAX:
                raise archive_error(self.path, f"has more than {AREA_TILES_MAX:,} tiles")
            yield row

    @contextmanager
    def _open(self) -> Iterator[tuple[UntrustedDatabase, TileRows]]:
        with open_untrusted_database(self.path, self.label, self.check) as database:
            yield database, self.find_rows(database)


def find_table(database: UntrustedDatabase, name: str) -> str | None:
    """Return ``table`` or ``view``; ``None`` if there is no such name, or the table is virtual."""
    query = "SELECT type, sql FROM sqlite_master WHERE name = ? AND type IN ('table', 'view')"
    for kind, sql in database.fetch_rows(query, (name,)):
        if isinstance(kind, bytes) and isinstance(sql, bytes) and not _VIRTUAL.match(sql):
            return kind.decode("ascii")
    return None


def _parse_key(rows: TileRows, key: Sequence[object], source: str) -> TileId | str:
    """Return the tile id of a row, or why it is invalid."""
    try:
        return rows.parse_key(key, source)
    except InvalidValueError as error:
        return str(error)


def parse_whole_numbers(key: Sequence[object]) -> tuple[int, int, int]:
    """Return zoom, column and row, which SQLite may have stored as any type."""
    zoom, column, row = key
    if type(zoom) is int and type(column) is int and type(row) is int:
        return zoom, column, row
    raise InvalidValueError(
        field="tile",
        value="/".join(decode_name(part) for part in key),
        problem="zoom_level, tile_column and tile_row must be whole numbers",
    )


def _build_entry(
    tile: TileId | str,
    key: Sequence[object],
    size: object,
    content: object,
    facts: Sequence[object],
) -> ArchivedTile | RefusedEntry:
    if not isinstance(tile, TileId):
        return RefusedEntry(place="/".join(decode_name(part) for part in key), problem=tile)
    if not isinstance(content, bytes):
        problem = "is not a blob" if size is None else f"has {size} bytes, too many for a tile"
        return RefusedEntry(place=str(tile), problem=problem)
    try:
        told = TileFacts.parse(*(_decode_text(fact) for fact in facts))
    except InvalidValueError as error:
        return RefusedEntry(place=str(tile), problem=str(error))
    return ArchivedTile(tile_id=tile, content=content, facts=told)


def decode_name(part: object) -> str:
    """Format a key part of any type and size, shortened."""
    text = part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part)
    return printable(text, limit=_PART_CHARS_MAX)


def _decode_text(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


# A draft is discarded after a crash, so SQLite's durability is off; the file is synced once at the
# end.
_FAST = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"


@frozen(kw_only=True)
class SqliteTarget(FileArchiveTarget, ABC):
    """An export to a SQLite file."""

    source: ClassVar[type[SqliteSource]]
    create_sql: ClassVar[str]
    """Creates the tables, apart from that of the facts."""
    key: ClassVar[str]
    """The columns of a tile's key, with their types."""

    @abstractmethod
    def build_key(self, tile: TileId) -> tuple[object, ...]:
        """Return the key of a tile."""

    @abstractmethod
    def insert(
        self, database: sqlite3.Connection, key: tuple[object, ...], tile: ArchivedTile
    ) -> None:
        """Write a tile."""

    @abstractmethod
    def finish(self, database: sqlite3.Connection, about: ArchiveDescription) -> None:
        """Write the description, and the indexes."""

    @property
    def order(self) -> TileOrder:
        """Column by column, as in the index."""
        return TileOrder.COLUMNS

    @contextmanager
    def open_draft(self) -> "Iterator[_SqliteDraft]":
        """Start the file in a draft folder next to its path."""
        place = self._workspace(self._may_replace)
        _check_no_sidecars(self.path)
        with (
            place.folder() as folder,
            _translate_sqlite_errors(self.path),
            closing(sqlite3.connect(folder.path / DRAFT, isolation_level=None)) as database,
        ):
            database.executescript(_FAST + self.create_sql)
            names = ", ".join(column.split()[0] for column in self.key.split(","))
            database.execute(
                f"CREATE TABLE {FACTS_TABLE} ({self.key}, produced_at text,"
                f" resolution_m_per_px real, sha256 text, PRIMARY KEY ({names})) WITHOUT ROWID"
            )
            database.execute("BEGIN")
            yield _SqliteDraft(target=self, place=place, folder=folder, database=database)

    def _may_replace(self, path: Path) -> bool:
        """Return whether a file is empty or has this format; no other file may be replaced."""
        if not is_regular_file(path):
            return False
        return not path.stat().st_size or self.source(path).is_readable()


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
class _SqliteDraft:
    """A SQLite file being written."""

    target: SqliteTarget
    place: ArchiveWorkspace
    folder: Directory
    database: sqlite3.Connection

    def add(self, tile: ArchivedTile) -> None:
        """Write a tile and its facts."""
        key = self.target.build_key(tile.tile_id)
        self.target.insert(self.database, key, tile)
        facts = (*key, *tile.facts.to_texts())
        marks = ", ".join("?" * len(facts))
        self.database.execute(f"INSERT INTO {FACTS_TABLE} VALUES ({marks})", facts)  # noqa: S608

    def seal(self, about: ArchiveDescription) -> SqliteSource:
        """Write the description and the indexes, and make the file durable."""
        self.target.finish(self.database, about)
        self.database.execute("COMMIT")
        self.database.close()
        with self.folder.open_file(DRAFT) as file:
            apply_umask_mode(file)
            file.fdatasync()
        return self.target.source(self.folder.path / DRAFT)

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
