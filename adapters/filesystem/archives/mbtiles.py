"""MBTiles 1.3: a SQLite file with a table of tiles, rows counted from the south.

A table of our own, ``tileferry_facts``, has what the cache knows of each tile; others pass it over.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from attrs import define, frozen

from tileferry.adapters.filesystem.archives.mbtiles_source import MbtilesSource
from tileferry.adapters.filesystem.archives.place import (
    DRAFT,
    ArchivePath,
    ArchivePlace,
    is_regular_file,
    open_to_readers,
)
from tileferry.adapters.filesystem.files import Directory
from tileferry.application.ports.archives import ArchivedTile
from tileferry.domain.archives import ArchiveAbout, TileOrder, flipped_row
from tileferry.domain.errors import ArchiveError, StorageError

__all__ = ["MbtilesSource", "MbtilesTarget"]

# A draft is thrown away after a crash, so SQLite need not be careful with it; one sync ends it.
_MAKE = """
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
class MbtilesTarget(ArchivePath):
    """A ``.mbtiles`` file to be."""

    @property
    def order(self) -> TileOrder:
        """As its index is ordered: column by column."""
        return TileOrder.COLUMNS

    @contextmanager
    def draft(self) -> "Iterator[_MbtilesDraft]":
        """Begin the file, in a folder beside it."""
        place = self._space(_is_archive)
        _check_alone(self.path)
        with (
            place.folder() as folder,
            _translated(self.path),
            closing(sqlite3.connect(folder.path / DRAFT, isolation_level=None)) as database,
        ):
            database.executescript(_MAKE)
            database.execute("BEGIN")
            yield _MbtilesDraft(place=place, folder=folder, database=database)


def _is_archive(path: Path) -> bool:
    """Tell whether a file is MBTiles, or empty: any other is not for us to replace."""
    return is_regular_file(path) and (not path.stat().st_size or MbtilesSource(path).is_one())


def _check_alone(path: Path) -> None:
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

    place: ArchivePlace
    folder: Directory
    database: sqlite3.Connection

    def add(self, tile: ArchivedTile) -> None:
        """Write a tile and what is known of it."""
        tile_id = tile.tile_id
        key = tile_id.zoom, tile_id.x, flipped_row(tile_id.zoom, tile_id.y)
        self.database.execute("INSERT INTO tiles VALUES (?, ?, ?, ?)", (*key, tile.content))
        self.database.execute(
            "INSERT INTO tileferry_facts VALUES (?, ?, ?, ?, ?, ?)", (*key, *tile.facts.texts())
        )

    def seal(self, about: ArchiveAbout) -> MbtilesSource:
        """Describe it, index it, and make it durable."""
        self.database.executemany("INSERT INTO metadata VALUES (?, ?)", about.texts().items())
        self.database.execute(_FINISH)
        self.database.execute("COMMIT")
        self.database.close()
        with self.folder.open_file(DRAFT) as file:
            open_to_readers(file.fd)
            file.fdatasync()
        return MbtilesSource(self.folder.path / DRAFT)

    def publish(self) -> None:
        """Give the file its name."""
        _check_alone(self.place.path)
        self.place.publish(self.folder)


@contextmanager
def _translated(path: Path) -> Iterator[None]:
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
