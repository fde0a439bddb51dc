"""Tiles that were delivered by another server than that of their source, in a table."""

from collections.abc import Mapping, Sequence

from attrs import frozen
from sqlalchemy import text

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.patience import repeat_when_lost
from tileferry.adapters.postgres.tile_index import WANTED_TILES, id_columns
from tileferry.adapters.postgres.tile_rows import tile_id_from_row
from tileferry.domain.tiles import TileId
from tileferry.domain.tiles.origin import TileOrigin


@frozen(kw_only=True)
class PostgresTileOrigins:
    """Remembers which source delivered a version of a tile."""

    database: Database

    @repeat_when_lost
    def find_origins(self, tile_ids: Sequence[TileId]) -> Mapping[TileId, TileOrigin]:
        """Return the recorded origins of these tiles, in one query."""
        if not tile_ids:
            return {}
        with self.database.read_connection() as connection:
            rows = connection.execute(_FIND, id_columns(tile_ids)).mappings().all()
        found = [
            TileOrigin(
                tile_id=tile_id_from_row(row),
                sha256=bytes(row["sha256"]).hex(),
                origin=row["origin"],
            )
            for row in rows
        ]
        return {one.tile_id: one for one in found}

    @repeat_when_lost
    def record_origins(self, origins: Sequence[TileOrigin]) -> None:
        """Record origins durably; the last one of a tile replaces earlier ones."""
        latest = {one.tile_id: one for one in origins}
        kept = [latest[tile_id] for tile_id in sorted(latest)]
        if kept:
            values = {
                "sha256": [bytes.fromhex(one.sha256) for one in kept],
                "origin": [one.origin for one in kept],
            }
            with self.database.transaction() as connection:
                connection.execute(_RECORD, {**id_columns([o.tile_id for o in kept]), **values})


_FIND = text(
    f"SELECT tile_origins.* FROM {WANTED_TILES} JOIN tile_origins USING (source, zoom, x, y)"  # noqa: S608  # interpolates constants only
)
_RECORD = text(
    """
    INSERT INTO tile_origins (source, zoom, x, y, sha256, origin)
    SELECT * FROM unnest(
        CAST(:source AS text[]), CAST(:zoom AS smallint[]), CAST(:x AS integer[]),
        CAST(:y AS integer[]), CAST(:sha256 AS bytea[]), CAST(:origin AS text[])
    )
    ON CONFLICT (source, zoom, x, y) DO UPDATE SET
        sha256 = excluded.sha256, origin = excluded.origin
    """
)
