"""Counts of the tiles in Postgres, without SQLAlchemy: commands that count need nothing else."""

from collections.abc import Mapping, Sequence

from attrs import define

from tileferry.adapters.postgres.database import Database
from tileferry.application.ports.inventory import TileGroup, TileKey
from tileferry.domain.tiles import VotingStatus, build_capture_source


@define(kw_only=True)
class PostgresTileCounts:
    """Counts visible tiles."""

    database: Database

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


_COUNT = "SELECT count(*) FROM tiles"
_COUNT_BY = {
    key: f"SELECT {column} AS name, count(*) AS tiles, sum(byte_length) AS size_bytes FROM tiles"  # noqa: S608  # interpolates constants only
    f" GROUP BY {column} ORDER BY {column}"
    for key, column in ((TileKey.SOURCE, "source"), (TileKey.ZOOM, "zoom"))
}
_COUNT_PENDING = """
    SELECT count(*) FROM tiles WHERE flight_id = %(flight_id)s AND voting_status = 'pending'
"""
_COUNT_CAPTURED = """
    SELECT voting_status, count(*) AS tiles FROM tiles WHERE source = %(source)s
    GROUP BY voting_status
"""
