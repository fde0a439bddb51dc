"""GeoPackage 1.3 files with one layer of Web Mercator tiles, as QGIS and GDAL read and write."""

import math
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import ClassVar

from attrs import frozen

from tileferry.adapters.filesystem.archives.sqlite_archive import (
    SqliteSource,
    SqliteTarget,
    TileRows,
    decode_name,
    find_table,
    parse_whole_numbers,
)
from tileferry.adapters.filesystem.archives.untrusted_database import (
    UntrustedDatabase,
    archive_error,
)
from tileferry.application.ports.archives import ArchivedTile
from tileferry.domain.archives import ArchiveDescription
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.text import printable
from tileferry.domain.tiles import TileId

_EDGE_M = 20037508.342789244
"""Half the width of the Web Mercator world, in meters."""
_TOLERANCE_M = 1.0
_TILE_PX = 256
_MERCATOR = 3857
_MERCATOR_IDS = {3857, 900913, 102100}
_LAYERS_MAX = _LEVELS_MAX = 100
_KEY = ("zoom_level", "tile_column", "tile_row")
_LAYERS = (
    "SELECT contents.table_name, systems.organization_coordsys_id,"
    " grid.min_x, grid.min_y, grid.max_x, grid.max_y"
    " FROM gpkg_contents AS contents JOIN gpkg_tile_matrix_set AS grid USING (table_name)"
    " LEFT JOIN gpkg_spatial_ref_sys AS systems ON systems.srs_id = grid.srs_id"
    " WHERE contents.data_type = 'tiles'"
)
_LEVELS = (
    "SELECT zoom_level, matrix_width, matrix_height FROM gpkg_tile_matrix WHERE table_name = ?"
)


@frozen
class _LevelKeys:
    """Parses keys: a file may number its levels in its own way."""

    zooms: Mapping[int, int]

    def __call__(self, key: Sequence[object], source: str) -> TileId:
        level, column, row = parse_whole_numbers(key)
        if level not in self.zooms:
            raise InvalidValueError(
                field="zoom_level", value=level, problem="is not in gpkg_tile_matrix"
            )
        return TileId(source=source, zoom=self.zooms[level], x=column, y=row)


@frozen
class GeopackageSource(SqliteSource):
    """Reads the tiles of a ``.gpkg`` file."""

    label: ClassVar[str] = "GeoPackage"

    def find_rows(self, database: UntrustedDatabase) -> TileRows:
        for name in ("gpkg_contents", "gpkg_tile_matrix_set", "gpkg_tile_matrix"):
            if find_table(database, name) is None:
                raise archive_error(self.path, f"is not a GeoPackage with tiles: no table {name}")
        layers = list(islice(database.fetch_rows(_LAYERS), _LAYERS_MAX))
        if len(layers) != 1:
            names = ", ".join(decode_name(row[0]) for row in layers) or "none"
            raise archive_error(self.path, f"must have one layer of tiles, but has: {names}")
        ((found, system, *edges),) = layers
        table = found.decode("utf-8", "replace") if isinstance(found, bytes) else ""
        if find_table(database, table) is None:
            raise archive_error(self.path, f"has no table {printable(table)}")
        if system not in _MERCATOR_IDS or not _covers_world(edges):
            raise archive_error(
                self.path,
                "its tiles are not in the Web Mercator grid (EPSG:3857, whole world)",
            )
        return TileRows(
            table=table,
            key=_KEY,
            content="tile_data",
            parse_key=_LevelKeys(self._read_zooms(database, table)),
        )

    def _read_zooms(self, database: UntrustedDatabase, table: str) -> dict[int, int]:
        zooms: dict[int, int] = {}
        levels = list(islice(database.fetch_rows(_LEVELS, (table,)), _LEVELS_MAX + 1))
        if len(levels) > _LEVELS_MAX:
            raise archive_error(self.path, f"has more than {_LEVELS_MAX} levels")
        for level, width, height in levels:
            if not (isinstance(level, int) and isinstance(width, int)) or not (
                width > 0 and width == height and width.bit_count() == 1
            ):
                raise archive_error(
                    self.path, f"its level {decode_name(level)} is not a Web Mercator zoom level"
                )
            zooms[level] = width.bit_length() - 1
        return zooms


def _covers_world(edges: Sequence[object]) -> bool:
    expected = (-_EDGE_M, -_EDGE_M, _EDGE_M, _EDGE_M)
    return all(
        isinstance(edge, int | float) and math.isclose(edge, right, rel_tol=0, abs_tol=_TOLERANCE_M)
        for edge, right in zip(edges, expected, strict=True)
    )


_WGS84_WKT = (
    'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],'
    'PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433],AUTHORITY["EPSG","4326"]]'
)
_MERCATOR_WKT = (
    f'PROJCS["WGS 84 / Pseudo-Mercator",{_WGS84_WKT},PROJECTION["Mercator_1SP"],'
    'PARAMETER["central_meridian",0],PARAMETER["scale_factor",1],PARAMETER["false_easting",0],'
    'PARAMETER["false_northing",0],UNIT["metre",1],AXIS["Easting",EAST],AXIS["Northing",NORTH],'
    'EXTENSION["PROJ4","+proj=merc +a=6378137 +b=6378137 +lat_ts=0 +lon_0=0 +x_0=0 +y_0=0 +k=1'
    ' +units=m +nadgrids=@null +wktext +no_defs"],AUTHORITY["EPSG","3857"]]'
)
_SYSTEMS = (
    ("Undefined Cartesian", -1, "NONE", -1, "undefined"),
    ("Undefined geographic", 0, "NONE", 0, "undefined"),
    ("WGS 84", 4326, "EPSG", 4326, _WGS84_WKT),
    ("WGS 84 / Pseudo-Mercator", _MERCATOR, "EPSG", _MERCATOR, _MERCATOR_WKT),
)


@frozen(kw_only=True)
class GeopackageTarget(SqliteTarget):
    """An export to a ``.gpkg`` file."""

    source: ClassVar[type[SqliteSource]] = GeopackageSource
    key: ClassVar[str] = "zoom_level integer, tile_column integer, tile_row integer"
    create_sql: ClassVar[str] = """
        PRAGMA application_id = 0x47504b47;
        PRAGMA user_version = 10300;
        CREATE TABLE gpkg_spatial_ref_sys (
            srs_name TEXT NOT NULL, srs_id INTEGER PRIMARY KEY, organization TEXT NOT NULL,
            organization_coordsys_id INTEGER NOT NULL, definition TEXT NOT NULL, description TEXT
        );
        CREATE TABLE gpkg_contents (
            table_name TEXT NOT NULL PRIMARY KEY, data_type TEXT NOT NULL, identifier TEXT UNIQUE,
            description TEXT DEFAULT '', last_change DATETIME NOT NULL,
            min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, srs_id INTEGER
        );
        CREATE TABLE gpkg_tile_matrix_set (
            table_name TEXT NOT NULL PRIMARY KEY, srs_id INTEGER NOT NULL, min_x DOUBLE NOT NULL,
            min_y DOUBLE NOT NULL, max_x DOUBLE NOT NULL, max_y DOUBLE NOT NULL
        );
        CREATE TABLE gpkg_tile_matrix (
            table_name TEXT NOT NULL, zoom_level INTEGER NOT NULL, matrix_width INTEGER NOT NULL,
            matrix_height INTEGER NOT NULL, tile_width INTEGER NOT NULL,
            tile_height INTEGER NOT NULL, pixel_x_size DOUBLE NOT NULL,
            pixel_y_size DOUBLE NOT NULL, PRIMARY KEY (table_name, zoom_level)
        );
        CREATE TABLE gpkg_extensions (
            table_name TEXT, column_name TEXT, extension_name TEXT NOT NULL,
            definition TEXT NOT NULL, scope TEXT NOT NULL,
            UNIQUE (table_name, column_name, extension_name)
        );
        CREATE TABLE tiles (
            id INTEGER PRIMARY KEY AUTOINCREMENT, zoom_level INTEGER NOT NULL,
            tile_column INTEGER NOT NULL, tile_row INTEGER NOT NULL, tile_data BLOB NOT NULL,
            UNIQUE (zoom_level, tile_column, tile_row)
        );
    """

    def build_key(self, tile: TileId) -> tuple[int, int, int]:
        return tile.zoom, tile.x, tile.y

    def insert(
        self, database: sqlite3.Connection, key: tuple[object, ...], tile: ArchivedTile
    ) -> None:
        database.execute("INSERT INTO tiles VALUES (NULL, ?, ?, ?, ?)", (*key, tile.content))

    def finish(self, database: sqlite3.Connection, about: ArchiveDescription) -> None:
        world = (-_EDGE_M, -_EDGE_M, _EDGE_M, _EDGE_M)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        box = about.bounds
        edges = (*_project(box.west, box.south), *_project(box.east, box.north))
        database.executemany(
            "INSERT INTO gpkg_spatial_ref_sys VALUES (?, ?, ?, ?, ?, NULL)", _SYSTEMS
        )
        database.execute(
            "INSERT INTO gpkg_contents VALUES ('tiles', 'tiles', ?, ?, ?, ?, ?, ?, ?, ?)",
            (about.name, about.credit or "", now, *edges, _MERCATOR),
        )
        database.execute(
            "INSERT INTO gpkg_tile_matrix_set VALUES ('tiles', ?, ?, ?, ?, ?)", (_MERCATOR, *world)
        )
        for zoom in range(about.zoom_min, about.zoom_max + 1):
            width = 1 << zoom
            size = 2 * _EDGE_M / (width * _TILE_PX)
            database.execute(
                "INSERT INTO gpkg_tile_matrix VALUES ('tiles', ?, ?, ?, ?, ?, ?, ?)",
                (zoom, width, width, _TILE_PX, _TILE_PX, size, size),
            )
        if "webp" in about.kinds:
            database.execute(
                "INSERT INTO gpkg_extensions VALUES ('tiles', 'tile_data', 'gpkg_webp',"
                " 'http://www.geopackage.org/spec/#extension_tiles_webp', 'read-write')"
            )


def _project(longitude: float, latitude: float) -> tuple[float, float]:
    """Return a position in meters of Web Mercator."""
    sine = math.sin(math.radians(latitude))
    return _EDGE_M * longitude / 180, _EDGE_M * math.atanh(sine) / math.pi
