"""Tiles that the provider did not have, in a table."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from attrs import frozen
from sqlalchemy import select, text, tuple_

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.patience import repeat_when_lost
from tileferry.adapters.postgres.schema import absent_tiles
from tileferry.adapters.postgres.tile_index import WANTED_TILES, id_columns
from tileferry.adapters.postgres.tile_rows import tile_id_from_row
from tileferry.domain.tiles import TileCoverage, TileId, TileRange

PAGE_ROWS = 10_000


@frozen(kw_only=True)
class PostgresAbsentTiles:
    """Remembers which tiles the provider did not have, and when."""

    database: Database

    @repeat_when_lost
    def find_absent(self, tile_ids: Sequence[TileId]) -> dict[TileId, datetime]:
        """Return when each of these tiles was last absent."""
        if not tile_ids:
            return {}
        with self.database.read_connection() as connection:
            rows = connection.execute(_FIND, id_columns(tile_ids)).mappings().all()
        return {tile_id_from_row(row): row["absent_at"] for row in rows}

    def query_absent(
        self, coverage: TileCoverage, *, source: str
    ) -> Iterator[tuple[TileId, datetime]]:
        """Yield the absent tiles of an area, a page at a time."""
        for block in coverage.iter_blocks():
            for tile_id, at in self._query_range(block, source):
                if coverage.contains(tile_id):
                    yield tile_id, at

    def _query_range(self, part: TileRange, source: str) -> Iterator[tuple[TileId, datetime]]:
        columns = absent_tiles.c
        query = (
            select(absent_tiles)
            .where(
                columns.source == source,
                columns.zoom == part.zoom,
                columns.x.between(part.x_min, part.x_max),
                columns.y.between(part.y_min, part.y_max),
            )
            .order_by(columns.x, columns.y)
            .limit(PAGE_ROWS)
        )
        page = query
        while True:
            rows = self.database.read_rows(page)
            for row in rows:
                yield tile_id_from_row(row), row["absent_at"]
            if len(rows) < PAGE_ROWS:
                return
            end = tuple_(rows[-1]["x"], rows[-1]["y"])
            page = query.where(tuple_(columns.x, columns.y) > end)

    @repeat_when_lost
    def record_absent(self, tile_ids: Sequence[TileId], *, at: datetime) -> None:
        """Record that the provider did not have these tiles."""
        if tile_ids:
            with self.database.transaction() as connection:
                connection.execute(_RECORD, {**id_columns(sorted(set(tile_ids))), "at": at})

    @repeat_when_lost
    def forget_absent(self, tile_ids: Sequence[TileId]) -> None:
        """Forget that these tiles were absent."""
        if tile_ids:
            with self.database.transaction() as connection:
                connection.execute(_FORGET, id_columns(tile_ids))


_FIND = text(
    f"SELECT absent_tiles.* FROM {WANTED_TILES} JOIN absent_tiles USING (source, zoom, x, y)"  # noqa: S608  # interpolates constants only
)
_RECORD = text(
    "INSERT INTO absent_tiles (source, zoom, x, y, absent_at)"  # noqa: S608  # as above
    f" SELECT wanted.*, CAST(:at AS timestamptz) FROM {WANTED_TILES}"
    " ON CONFLICT (source, zoom, x, y) DO UPDATE SET absent_at = excluded.absent_at"
)
_FORGET = text(
    f"DELETE FROM absent_tiles USING {WANTED_TILES}"  # noqa: S608  # as above
    " WHERE absent_tiles.source = wanted.source AND absent_tiles.zoom = wanted.zoom"
    " AND absent_tiles.x = wanted.x AND absent_tiles.y = wanted.y"
)
