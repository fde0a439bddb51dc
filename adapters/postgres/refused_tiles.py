"""Tiles that gates refused, in a table."""

from collections.abc import Iterator, Sequence

from attrs import frozen
from sqlalchemy import RowMapping, or_, select, text, tuple_

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.patience import repeat_when_lost
from tileferry.adapters.postgres.schema import refused_tiles
from tileferry.adapters.postgres.tile_index import WANTED_TILES, id_columns
from tileferry.adapters.postgres.tile_rows import tile_id_from_row
from tileferry.domain.tiles import SectorClass, TileCoverage, TileId, TileRange
from tileferry.domain.tiles.refusal import Gate, Refusal

PAGE_ROWS = 10_000


@frozen(kw_only=True)
class PostgresRefusedTiles:
    """Remembers which tiles were refused by a gate, and when."""

    database: Database

    @repeat_when_lost
    def find_refused(self, tile_ids: Sequence[TileId]) -> Sequence[Refusal]:
        """Return the refusals of these tiles, sorted by tile and sector."""
        if not tile_ids:
            return []
        with self.database.read_connection() as connection:
            rows = connection.execute(_FIND, id_columns(tile_ids)).mappings().all()
        return [_refusal_from_row(row) for row in rows]

    def query_refused(
        self, coverage: TileCoverage, *, source: str, sector: SectorClass
    ) -> Iterator[Refusal]:
        """Yield the refusals of an area that concern a sector, a page at a time."""
        for block in coverage.iter_blocks():
            for refusal in self._query_range(block, source, sector):
                if coverage.contains(refusal.tile_id):
                    yield refusal

    def _query_range(self, part: TileRange, source: str, sector: SectorClass) -> Iterator[Refusal]:
        columns = refused_tiles.c
        place = tuple_(columns.x, columns.y, columns.sector_class)
        query = (
            select(refused_tiles)
            .where(
                columns.source == source,
                columns.zoom == part.zoom,
                columns.x.between(part.x_min, part.x_max),
                columns.y.between(part.y_min, part.y_max),
                or_(columns.gate == Gate.RESOLUTION.value, columns.sector_class == sector.value),
            )
            .order_by(columns.x, columns.y, columns.sector_class)
            .limit(PAGE_ROWS)
        )
        page = query
        while True:
            rows = self.database.read_rows(page)
            yield from map(_refusal_from_row, rows)
            if len(rows) < PAGE_ROWS:
                return
            last = rows[-1]
            page = query.where(place > tuple_(last["x"], last["y"], last["sector_class"]))

    @repeat_when_lost
    def record_refused(self, refusals: Sequence[Refusal]) -> None:
        """Record refusals; the last one of a tile and a sector replaces earlier ones."""
        latest = {(one.tile_id, one.sector_class): one for one in refusals}
        kept = [latest[key] for key in sorted(latest)]
        if kept:
            values = {
                "gate": [one.gate.value for one in kept],
                "sector_class": [one.sector_class.value for one in kept],
                "produced_at": [one.produced_at for one in kept],
                "resolution_m_per_px": [one.resolution_m_per_px for one in kept],
                "refused_at": [one.refused_at for one in kept],
            }
            with self.database.transaction() as connection:
                connection.execute(_RECORD, {**id_columns([o.tile_id for o in kept]), **values})


def _refusal_from_row(row: RowMapping) -> Refusal:
    return Refusal(
        tile_id=tile_id_from_row(row),
        gate=Gate(row["gate"]),
        sector_class=SectorClass(row["sector_class"]),
        produced_at=row["produced_at"],
        resolution_m_per_px=row["resolution_m_per_px"],
        refused_at=row["refused_at"],
    )


_FIND = text(
    f"SELECT refused_tiles.* FROM {WANTED_TILES} JOIN refused_tiles USING (source, zoom, x, y)"  # noqa: S608  # interpolates constants only
    " ORDER BY source, zoom, x, y, sector_class"
)
_RECORD = text(
    """
    INSERT INTO refused_tiles (
        source, zoom, x, y, sector_class, gate, produced_at, resolution_m_per_px, refused_at
    )
    SELECT * FROM unnest(
        CAST(:source AS text[]), CAST(:zoom AS smallint[]), CAST(:x AS integer[]),
        CAST(:y AS integer[]), CAST(:sector_class AS text[]), CAST(:gate AS text[]),
        CAST(:produced_at AS timestamptz[]), CAST(:resolution_m_per_px AS double precision[]),
        CAST(:refused_at AS timestamptz[])
    )
    ON CONFLICT (source, zoom, x, y, sector_class) DO UPDATE SET
        gate = excluded.gate, produced_at = excluded.produced_at,
        resolution_m_per_px = excluded.resolution_m_per_px, refused_at = excluded.refused_at
    """
)
