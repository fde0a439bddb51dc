"""Operators' queries about tiles in Postgres, without SQLAlchemy."""

from collections.abc import Iterator, Mapping, Sequence

import attrs
from attrs import define, frozen

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.tile_rows import metadata_from_row
from tileferry.application.ports.inventory import CacheUsage, TileGroup, TileKey
from tileferry.domain.tiles import TileId, TileMetadata, VotingStatus, build_capture_source


def build_reopen_sql(tile_id: TileId) -> str:
    """Return the statement with which an operator retries a given-up tile. It is never run here."""
    return (
        "UPDATE tiles SET voting_status = 'pending'"  # noqa: S608  # shown, not run; ids are validated
        f" WHERE source = '{tile_id.source}' AND zoom = {tile_id.zoom} AND x = {tile_id.x}"
        f" AND y = {tile_id.y} AND voting_status = 'upload_giveup';"
    )


@define(kw_only=True)
class PostgresTileInventory:
    """Counts and lists visible tiles."""

    database: Database

    def get_metadata(self, tile_id: TileId) -> TileMetadata | None:
        rows = self.database.fetch_rows(_GET, attrs.asdict(tile_id))
        return metadata_from_row(rows[0]._asdict()) if rows else None

    def find_given_up(
        self, flight_id: str | None = None, *, after: tuple[str, TileId] | None = None
    ) -> Iterator[TileMetadata]:
        """Yield the given-up tiles of one flight or of all, sorted by flight and tile."""
        condition = "" if flight_id is None else "AND flight_id = %(flight_id)s"
        rows_max = FIRST_ROWS  # most readers want a few
        while True:
            values: dict[str, object] = {"flight_id": flight_id, "limit": rows_max}
            begin = ""
            if after is not None:
                last = {"flight_id": after[0], **attrs.asdict(after[1])}
                values |= {f"after_{name}": value for name, value in last.items()}
                begin = _AFTER
            query = _GIVEN_UP.format(condition=f"{condition} {begin}")
            tiles = [
                metadata_from_row(row._asdict()) for row in self.database.fetch_rows(query, values)
            ]
            yield from tiles
            if len(tiles) < rows_max:
                return
            after, rows_max = (tiles[-1].flight_id, tiles[-1].tile_id), PAGE_ROWS

    def count(self) -> int:
        """Return the number of visible tiles."""
        return int(self.database.fetch_rows(_COUNT)[0][0])

    def count_by(self, key: TileKey) -> Sequence[TileGroup]:
        """Return the number and size of the tiles, by source or by zoom level, sorted."""
        rows = self.database.fetch_rows(_COUNT_BY[key])
        return [
            TileGroup(name=str(row.name), tiles=row.tiles, size_bytes=int(row.size_bytes))
            for row in rows
        ]

    def count_pending(self, flight_id: str) -> int:
        """Return the number of a flight's pending tiles."""
        return int(self.database.fetch_rows(_COUNT_PENDING, {"flight_id": flight_id})[0][0])

    def count_captured(self, flight_id: str) -> Mapping[VotingStatus, int]:
        """Return the number of tiles a flight captured, by voting status."""
        wanted = {"source": build_capture_source(flight_id)}
        rows = self.database.fetch_rows(_COUNT_CAPTURED, wanted)
        return {VotingStatus(row.voting_status): row.tiles for row in rows}


@frozen(kw_only=True)
class PostgresCacheUsage:
    """Measures the cache by one statement; ``PostgresCacheLedger`` decides, and takes locks."""

    database: Database

    def measure_usage(self) -> CacheUsage:
        """Return the visible tiles and the reservations that have not expired, of one moment."""
        (row,) = self.database.fetch_rows(_USAGE)
        return CacheUsage(
            tiles=row.tiles,
            used_bytes=int(row.used_bytes),
            reserved_bytes=int(row.reserved_bytes),
        )


FIRST_ROWS, PAGE_ROWS = 64, 2_000
_GET = """
    SELECT * FROM tiles
    WHERE source = %(source)s AND zoom = %(zoom)s AND x = %(x)s AND y = %(y)s
"""
_GIVEN_UP = """
    SELECT * FROM tiles WHERE voting_status = 'upload_giveup' {condition}
    ORDER BY flight_id, source, zoom, x, y LIMIT %(limit)s
"""
_AFTER = """
    AND (flight_id, source, zoom, x, y)
        > (%(after_flight_id)s, %(after_source)s, %(after_zoom)s, %(after_x)s, %(after_y)s)
"""
_COUNT = "SELECT count(*) FROM tiles"
_COUNT_BY = {
    key: f"SELECT {column} AS name, count(*) AS tiles, sum(byte_length) AS size_bytes FROM tiles"  # noqa: S608  # interpolates constants only
    f" GROUP BY {column} ORDER BY {column}"
    for key, column in ((TileKey.SOURCE, "source"), (TileKey.ZOOM, "zoom"))
}
_USAGE = """
    SELECT count(*) AS tiles, coalesce(sum(byte_length), 0) AS used_bytes,
        (
            SELECT coalesce(sum(reserved_bytes), 0) FROM cache_reservations
            WHERE expires_at > now()
        ) AS reserved_bytes
    FROM tiles
"""
_COUNT_PENDING = """
    SELECT count(*) FROM tiles WHERE flight_id = %(flight_id)s AND voting_status = 'pending'
"""
_COUNT_CAPTURED = """
    SELECT voting_status, count(*) AS tiles FROM tiles WHERE source = %(source)s
    GROUP BY voting_status
"""
