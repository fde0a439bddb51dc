"""Tile sets of QGroundControl 5.1, ``.qgctiledb``: writing, and reading back.

QGroundControl finds a tile by its hash: the number of the map, column, row and zoom level. An
export uses the map ``CustomURL Custom``, which has no imagery of its own.
"""

import re
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar

from attrs import frozen

from tileferry.adapters.filesystem.archives.sqlite_archive import (
    SqliteSource,
    SqliteTarget,
    TileRows,
    find_table,
)
from tileferry.adapters.filesystem.archives.untrusted_database import (
    UntrustedDatabase,
    archive_error,
)
from tileferry.application.ports.archives import ArchivedTile
from tileferry.domain.archives import ArchiveDescription, detect_tile_kind
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.text import printable
from tileferry.domain.tiles import TileId

_MAP = "CustomURL Custom"
_MAP_NUMBER = 39
"""The number of that map: its place in QGroundControl's list of maps."""
_SET = 1
_HASH = re.compile(rb"(\d{10})(\d{8})(\d{8})(\d{3})")


def _parse_key(key: Sequence[object], source: str) -> TileId:
    (found,) = key
    match = _HASH.fullmatch(found) if isinstance(found, bytes) else None
    if match is None:
        raise InvalidValueError(
            field="hash", value=printable(str(found)), problem="must be 29 digits"
        )
    _, x, y, zoom = (int(part) for part in match.groups())
    return TileId(source=source, zoom=zoom, x=x, y=y)


_ROWS = TileRows(table="Tiles", key=("hash",), content="tile", parse_key=_parse_key)


@frozen
class QgcSource(SqliteSource):
    """Reads a ``.qgctiledb`` file of one map."""

    label: ClassVar[str] = "a tile set of QGroundControl"

    def find_rows(self, database: UntrustedDatabase) -> TileRows:
        for name in ("Tiles", "TileSets", "SetTiles"):
            if find_table(database, name) is None:
                raise archive_error(self.path, f"is not {self.label}: no table {name}")
        return _ROWS


@frozen(kw_only=True)
class QgcTarget(SqliteTarget):
    """An export to a ``.qgctiledb`` file."""

    source: ClassVar[type[SqliteSource]] = QgcSource
    key: ClassVar[str] = "hash text"
    create_sql: ClassVar[str] = """
        PRAGMA user_version = 1;
        CREATE TABLE Tiles (
            tileID INTEGER PRIMARY KEY NOT NULL, hash TEXT NOT NULL UNIQUE, format TEXT NOT NULL,
            tile BLOB NULL, size INTEGER, type INTEGER, date INTEGER DEFAULT 0
        );
        CREATE TABLE TileSets (
            setID INTEGER PRIMARY KEY NOT NULL, name TEXT NOT NULL UNIQUE, typeStr TEXT,
            topleftLat REAL DEFAULT 0.0, topleftLon REAL DEFAULT 0.0,
            bottomRightLat REAL DEFAULT 0.0, bottomRightLon REAL DEFAULT 0.0,
            minZoom INTEGER DEFAULT 3, maxZoom INTEGER DEFAULT 3, type INTEGER DEFAULT -1,
            numTiles INTEGER DEFAULT 0, defaultSet INTEGER DEFAULT 0, date INTEGER DEFAULT 0
        );
        CREATE TABLE SetTiles (
            setID INTEGER NOT NULL REFERENCES TileSets(setID) ON DELETE CASCADE,
            tileID INTEGER NOT NULL REFERENCES Tiles(tileID) ON DELETE CASCADE
        );
        CREATE TABLE TilesDownload (
            setID INTEGER NOT NULL REFERENCES TileSets(setID) ON DELETE CASCADE,
            hash TEXT NOT NULL, type INTEGER, x INTEGER, y INTEGER, z INTEGER,
            state INTEGER DEFAULT 0
        );
        CREATE UNIQUE INDEX idx_tilesdownload_setid_hash ON TilesDownload (setID, hash);
        CREATE INDEX idx_tilesdownload_setid_state ON TilesDownload (setID, state);
    """

    def build_key(self, tile: TileId) -> tuple[str]:
        return (f"{_MAP_NUMBER:010d}{tile.x:08d}{tile.y:08d}{tile.zoom:03d}",)

    def insert(
        self, database: sqlite3.Connection, key: tuple[object, ...], tile: ArchivedTile
    ) -> None:
        taken = tile.facts.produced_at or datetime.now(UTC)
        content, kind = tile.content, detect_tile_kind(tile.content)
        database.execute(
            "INSERT INTO Tiles VALUES (NULL, ?, ?, ?, ?, ?, ?)",
            (*key, kind, content, len(content), _MAP_NUMBER, int(taken.timestamp())),
        )

    def finish(self, database: sqlite3.Connection, about: ArchiveDescription) -> None:
        box = about.bounds
        now = int(datetime.now(UTC).timestamp())
        database.execute(
            "INSERT INTO TileSets VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?)",
            (
                *(_SET, about.name, _MAP, box.north, box.west, box.south, box.east),
                *(about.zoom_min, about.zoom_max, _MAP_NUMBER, sum(about.kinds.values()), now),
            ),
        )
        database.execute("INSERT INTO SetTiles SELECT ?, tileID FROM Tiles", (_SET,))
        for name, table, columns in (
            ("UNIQUE INDEX idx_settiles_unique", "SetTiles", "tileID, setID"),
            ("INDEX idx_settiles_setid", "SetTiles", "setID"),
            ("INDEX idx_settiles_tileid", "SetTiles", "tileID"),
            ("INDEX idx_tiles_date", "Tiles", "date"),
        ):
            database.execute(f"CREATE {name} ON {table} ({columns})")
