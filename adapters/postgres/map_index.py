"""Visible tiles by their place, for a map server."""

from collections.abc import Sequence
from itertools import groupby

from attrs import frozen
from sqlalchemy import RowMapping, text

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.patience import repeat_when_lost
from tileferry.adapters.postgres.tile_index import id_columns
from tileferry.adapters.postgres.tile_rows import metadata_from_row
from tileferry.application.ports.map_tiles import FoundTile
from tileferry.domain.tiles import BlobRef, TileId, TileMetadata, TileRange
from tileferry.domain.tiles.map_layer import LayerLevel, MapLayer

_FLIGHTS_MAX = 5
_VERSIONS_MAX = 20
_FOUND = "SELECT source, segment, byte_offset, byte_length, sha256, produced_at FROM tiles"
# In the driver's style, because these are as frequent as requests for tiles.
_FIND = f"{_FOUND} WHERE source = %(source)s AND zoom = %(zoom)s AND x = %(x)s AND y = %(y)s"
_FIND_LATEST = (
    f"{_FOUND} WHERE zoom = %(zoom)s AND x = %(x)s AND y = %(y)s"
    " ORDER BY produced_at DESC, source LIMIT 1"
)
_FIND_MANY = (
    "SELECT place, segment, byte_offset, byte_length, sha256, produced_at"
    " FROM unnest(%(source)s::text[], %(zoom)s::smallint[], %(x)s::integer[], %(y)s::integer[])"
    " WITH ORDINALITY AS wanted(source, zoom, x, y, place) JOIN tiles USING (source, zoom, x, y)"
)
_FIND_VERSIONS = text(
    "SELECT * FROM tiles WHERE zoom = :zoom AND x = :x AND y = :y"
    " AND (CAST(:source AS text) IS NULL OR source = :source)"
    " ORDER BY produced_at DESC, source LIMIT :limit"
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

    def find_tile(self, source: str | None, zoom: int, x: int, y: int) -> FoundTile | None:
        """Return the tile of a source; without one, the most recent tile of any source."""
        statement = _FIND_LATEST if source is None else _FIND
        place = {"source": source, "zoom": zoom, "x": x, "y": y}
        for row in self.database.fetch_in_thread(statement, place):
            found_source, segment, offset, length, digest, produced_at = row
            return FoundTile(
                TileId(source=found_source, zoom=zoom, x=x, y=y),
                BlobRef(location=(segment, offset), length=length, sha256=digest.hex()),
                produced_at,
            )
        return None

    def find_tiles(self, tile_ids: Sequence[TileId]) -> Sequence[FoundTile | None]:
        """Return each of these tiles, in their order."""
        found: list[FoundTile | None] = [None] * len(tile_ids)
        for row in self.database.fetch_in_thread(_FIND_MANY, id_columns(tile_ids)):
            place, segment, offset, length, digest, produced_at = row
            blob = BlobRef(location=(segment, offset), length=length, sha256=digest.hex())
            found[place - 1] = FoundTile(tile_ids[place - 1], blob, produced_at)
        return found

    @repeat_when_lost
    def find_versions(
        self, source: str | None, zoom: int, x: int, y: int
    ) -> Sequence[TileMetadata]:
        """Return the tile of a source; without one, those of all sources, freshest first."""
        place = {"source": source, "zoom": zoom, "x": x, "y": y, "limit": _VERSIONS_MAX}
        with self.database.read_connection() as connection:
            rows = connection.execute(_FIND_VERSIONS, place).mappings().all()
        return [metadata_from_row(row) for row in rows]

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
