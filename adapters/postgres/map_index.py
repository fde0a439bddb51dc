"""Visible tiles by their place, for a map server."""

from collections.abc import Sequence
from itertools import groupby

from attrs import frozen
from sqlalchemy import RowMapping, text

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.patience import repeat_when_lost
from tileferry.application.ports.map_tiles import FoundTile
from tileferry.domain.tiles import BlobRef, TileId, TileRange
from tileferry.domain.tiles.map_layer import LayerLevel, MapLayer

_FLIGHTS_MAX = 5
# In the driver's style: building an expression costs more than the query.
_FIND = (
    "SELECT source, segment, byte_offset, byte_length, sha256, produced_at FROM tiles"
    " WHERE source = %s AND zoom = %s AND x = %s AND y = %s"
)
_FIND_LATEST = (
    "SELECT source, segment, byte_offset, byte_length, sha256, produced_at FROM tiles"
    " WHERE zoom = %s AND x = %s AND y = %s ORDER BY produced_at DESC, source LIMIT 1"
)
_LIST_LAYERS = text(
    "SELECT source, zoom, min(x) AS x_min, max(x) AS x_max, min(y) AS y_min, max(y) AS y_max,"
    " count(*) AS tiles FROM tiles"
    " GROUP BY source, zoom ORDER BY source, zoom"
)
_FIND_FLIGHTS = text(
    "SELECT DISTINCT flight_areas.flight_id FROM flight_spans JOIN flight_areas USING (area_id)"
    " WHERE (CAST(:source AS text) IS NULL OR flight_spans.source = :source)"
    " AND zoom = :zoom AND :x BETWEEN x_min AND x_max AND :y BETWEEN y_min AND y_max"
    " ORDER BY flight_areas.flight_id LIMIT :limit"
)


@frozen(kw_only=True)
class PostgresMapIndex:
    """Finds visible tiles by their place."""

    database: Database

    @repeat_when_lost
    def find_tile(self, source: str | None, zoom: int, x: int, y: int) -> FoundTile | None:
        """Return the tile of a source; without one, the most recent tile of any source."""
        statement = _FIND_LATEST if source is None else _FIND
        place = (zoom, x, y) if source is None else (source, zoom, x, y)
        with self.database.read_connection() as connection:
            row = connection.exec_driver_sql(statement, place).first()
        if row is None:
            return None
        found_source, segment, offset, length, digest, produced_at = row
        return FoundTile(
            TileId(source=found_source, zoom=zoom, x=x, y=y),
            BlobRef(location=(segment, offset), length=length, sha256=bytes(digest).hex()),
            produced_at,
        )

    @repeat_when_lost
    def list_layers(self) -> Sequence[MapLayer]:
        """Return the layer of each source that has tiles, sorted by name."""
        with self.database.read_connection() as connection:
            rows = connection.execute(_LIST_LAYERS).mappings().all()
        return [
            MapLayer(name=source, levels=[_to_level(row) for row in levels])
            for source, levels in groupby(rows, key=lambda row: row["source"])
        ]

    @repeat_when_lost
    def find_flights(self, source: str | None, zoom: int, x: int, y: int) -> Sequence[str]:
        """Return the flights that have a place in their areas, sorted; a few at most."""
        place = {"source": source, "zoom": zoom, "x": x, "y": y, "limit": _FLIGHTS_MAX}
        with self.database.read_connection() as connection:
            return list(connection.execute(_FIND_FLIGHTS, place).scalars())


def _to_level(row: RowMapping) -> LayerLevel:
    sides = {name: row[name] for name in ("zoom", "x_min", "x_max", "y_min", "y_max")}
    return LayerLevel(extent=TileRange(**sides), tiles=row["tiles"])
