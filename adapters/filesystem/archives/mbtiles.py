"""MBTiles 1.3 archives."""

import sqlite3
from collections.abc import Sequence
from typing import ClassVar

from attrs import frozen

from tileferry.adapters.filesystem.archives.sqlite_archive import (
    SqliteSource,
    SqliteTarget,
    TileRows,
    find_table,
    parse_whole_numbers,
)
from tileferry.adapters.filesystem.archives.untrusted_database import (
    UntrustedDatabase,
    archive_error,
)
from tileferry.application.ports.archives import ArchivedTile
from tileferry.domain.archives import ArchiveDescription, flip_row
from tileferry.domain.tiles import TileId
from tileferry.domain.tiles.tile_id import check_zoom


def _parse_key(key: Sequence[object], source: str) -> TileId:
    """Return the tile of a key; MBTiles counts rows from the south."""
    zoom, column, row = parse_whole_numbers(key)
    return TileId(source=source, zoom=zoom, x=column, y=flip_row(check_zoom(zoom), row))


_ROWS = TileRows(
    table="tiles",
    key=("zoom_level", "tile_column", "tile_row"),
    content="tile_data",
    parse_key=_parse_key,
)


@frozen
class MbtilesSource(SqliteSource):
    """Reads a ``.mbtiles`` file."""

    label: ClassVar[str] = "MBTiles"

    def find_rows(self, database: UntrustedDatabase) -> TileRows:
        if find_table(database, _ROWS.table) is None:
            raise archive_error(self.path, "has no tiles table")
        if find_table(database, "gpkg_contents") is not None:  # it counts rows from the north
            raise archive_error(self.path, "is a GeoPackage, not MBTiles")
        return _ROWS


@frozen(kw_only=True)
class MbtilesTarget(SqliteTarget):
    """An export to a ``.mbtiles`` file."""

    source: ClassVar[type[SqliteSource]] = MbtilesSource
    key: ClassVar[str] = "zoom_level integer, tile_column integer, tile_row integer"
    create_sql: ClassVar[str] = f"""
        PRAGMA application_id = 0x4d504258;
        CREATE TABLE metadata (name text, value text);
        CREATE TABLE tiles ({key}, tile_data blob);
    """

    def build_key(self, tile: TileId) -> tuple[int, int, int]:
        return tile.zoom, tile.x, flip_row(tile.zoom, tile.y)

    def insert(
        self, database: sqlite3.Connection, key: tuple[object, ...], tile: ArchivedTile
    ) -> None:
        database.execute("INSERT INTO tiles VALUES (?, ?, ?, ?)", (*key, tile.content))

    def finish(self, database: sqlite3.Connection, about: ArchiveDescription) -> None:
        database.executemany("INSERT INTO metadata VALUES (?, ?)", about.to_texts().items())
        database.execute(
            "CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row)"
        )
