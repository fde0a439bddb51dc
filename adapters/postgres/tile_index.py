"""Conversion between tiles and rows, bulk statements, and the blob index."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from attrs import frozen
from sqlalchemy import and_, func, select, text

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.patience import repeat_when_lost
from tileferry.adapters.postgres.schema import tiles
from tileferry.adapters.postgres.tile_rows import blob_from_row, tile_id_from_row
from tileferry.domain.tiles import (
    BlobRef,
    FreshnessLabel,
    NewTile,
    TileId,
)


def match_tile(tile_id: TileId) -> Any:
    """Return the WHERE condition for one tile's row."""
    return and_(
        tiles.c.source == tile_id.source,
        tiles.c.zoom == tile_id.zoom,
        tiles.c.x == tile_id.x,
        tiles.c.y == tile_id.y,
    )


# One statement per group, with one array per column, so it is planned once. The WHERE clause is
# the domain rule ``replaces``; a contract suite checks that both agree. upload_attempts is absent
# on purpose: only increment_upload_attempts writes it.
UPSERT = text(
    """
    INSERT INTO tiles (
        source, zoom, x, y, flight_id, produced_at, resolution_m_per_px, sector_class, freshness,
        voting_status, segment, byte_offset, byte_length, sha256, etag, last_modified,
        stored_at, last_used_at
    )
    SELECT new.source, new.zoom, new.x, new.y, new.flight_id, new.produced_at,
        new.resolution_m_per_px, new.sector_class, new.freshness, new.voting_status, new.segment,
        new.byte_offset, new.byte_length, new.sha256, NULLIF(new.etag, ''),
        NULLIF(new.last_modified, ''), now(), now()
    FROM unnest(
        CAST(:source AS text[]), CAST(:zoom AS smallint[]), CAST(:x AS integer[]),
        CAST(:y AS integer[]), CAST(:flight_id AS text[]), CAST(:produced_at AS timestamptz[]),
        CAST(:resolution_m_per_px AS double precision[]), CAST(:sector_class AS text[]),
        CAST(:freshness AS text[]), CAST(:voting_status AS text[]), CAST(:segment AS integer[]),
        CAST(:byte_offset AS bigint[]), CAST(:byte_length AS integer[]), CAST(:sha256 AS bytea[]),
        CAST(:etag AS text[]), CAST(:last_modified AS text[])
    ) AS new(
        source, zoom, x, y, flight_id, produced_at, resolution_m_per_px, sector_class, freshness,
        voting_status, segment, byte_offset, byte_length, sha256, etag, last_modified
    )
    ON CONFLICT (source, zoom, x, y) DO UPDATE SET
        flight_id = excluded.flight_id,
        produced_at = excluded.produced_at,
        resolution_m_per_px = excluded.resolution_m_per_px,
        sector_class = excluded.sector_class,
        freshness = excluded.freshness,
        voting_status = excluded.voting_status,
        uploaded_at = NULL,
        segment = excluded.segment,
        byte_offset = excluded.byte_offset,
        byte_length = excluded.byte_length,
        sha256 = excluded.sha256,
        etag = excluded.etag,
        last_modified = excluded.last_modified,
        confirmed_at = NULL,
        stored_at = excluded.stored_at,
        last_used_at = excluded.last_used_at
    WHERE (
          excluded.produced_at >= tiles.produced_at
          OR tiles.produced_at > tiles.stored_at + INTERVAL '1 day'
      )
      AND tiles.voting_status <> 'upload_giveup'
      AND (
          CASE WHEN tiles.voting_status = 'pending'
               THEN excluded.voting_status = 'pending' AND excluded.flight_id = tiles.flight_id
               ELSE excluded.voting_status <> 'pending' OR excluded.sha256 <> tiles.sha256
          END
      )
    """
)


class TileRow(NamedTuple):
    """A tile as ``UPSERT`` writes it; the first four columns are its key."""

    source: str
    zoom: int
    x: int
    y: int
    flight_id: str
    produced_at: datetime
    resolution_m_per_px: float
    sector_class: str
    freshness: str
    voting_status: str
    segment: int
    byte_offset: int
    byte_length: int
    sha256: str
    """As an array literal writes ``bytea``."""
    etag: str
    last_modified: str
    """Both with quotes and backslashes escaped; empty for NULL."""


def to_row(tile: NewTile, label: FreshnessLabel) -> TileRow:
    """Return the row of a tile with this freshness label."""
    tile_id, blob, validators = tile.tile_id, tile.blob, tile.validators
    return TileRow(
        tile_id.source,
        tile_id.zoom,
        tile_id.x,
        tile_id.y,
        tile.flight_id,
        tile.produced_at,
        tile.resolution_m_per_px,
        tile.sector_class,
        label,
        tile.voting_status,
        *blob.location,
        blob.length,
        rf"\\x{blob.sha256}",  # bytea hex, with the backslash escaped for the array
        "" if validators is None else _escape(validators.etag),
        "" if validators is None else _escape(validators.last_modified),
    )


def _escape(text: str | None) -> str:
    return (text or "").replace("\\", "\\\\").replace('"', '\\"')


def upsert_columns(rows: Iterable[TileRow]) -> dict[str, str]:
    """Return rows of distinct tiles as the parameters of ``UPSERT``, one array per column."""
    columns = zip(*rows, strict=True)
    return dict(zip(TileRow._fields, map(_to_array_literal, columns), strict=True))


def _to_array_literal(values: Iterable[object]) -> str:
    """Return a Postgres array literal. The values are names, numbers, times, hex and escaped text.

    The driver would encode each value separately, which costs more than the server's work.
    """
    texts = list(map(str, values))
    return '{"' + '","'.join(texts) + '"}' if texts else "{}"


def id_values(tile_id: TileId) -> dict[str, Any]:
    """Return a tile id as statement parameters."""
    return {"source": tile_id.source, "zoom": tile_id.zoom, "x": tile_id.x, "y": tile_id.y}


def id_columns(tile_ids: Sequence[TileId]) -> dict[str, Any]:
    """Return tile ids as statement parameters, one array per column."""
    return {
        "source": _to_array_literal(tile.source for tile in tile_ids),
        "zoom": _to_array_literal(tile.zoom for tile in tile_ids),
        "x": _to_array_literal(tile.x for tile in tile_ids),
        "y": _to_array_literal(tile.y for tile in tile_ids),
    }


WANTED_TILES = (
    "unnest(CAST(:source AS text[]), CAST(:zoom AS smallint[]), CAST(:x AS integer[]),"
    " CAST(:y AS integer[])) AS wanted(source, zoom, x, y)"
)
"""The tiles of ``id_columns`` as a relation."""


def lock_tiles_sql(parameter: str = ":{}", **more: str) -> str:
    """Return a ``WITH held AS`` clause that locks the tiles of ``id_columns``.

    ``parameter`` is the style of parameters; ``more`` adds columns by name and type. The rows are
    locked in key order, as in a flush, so that concurrent changes to the same tiles cannot
    deadlock.
    """
    columns = {"source": "text", "zoom": "smallint", "x": "integer", "y": "integer", **more}
    arrays = ", ".join(
        f"CAST({parameter.format(name)} AS {kind}[])" for name, kind in columns.items()
    )
    return (
        f"WITH held AS (SELECT wanted.* FROM unnest({arrays}) AS wanted({', '.join(columns)})"  # noqa: S608  # interpolates constants only
        " JOIN tiles USING (source, zoom, x, y)"
        " ORDER BY tiles.source, tiles.zoom, tiles.x, tiles.y FOR UPDATE OF tiles) "
    )


IS_HELD = (
    "tiles.source = held.source AND tiles.zoom = held.zoom"
    " AND tiles.x = held.x AND tiles.y = held.y"
)
LOCK_TILES = lock_tiles_sql("%({})s")
"""In the driver's style."""
MARK_HELD = (
    "UPDATE tiles SET voting_status = 'uploaded', uploaded_at = now() FROM held"  # noqa: S608  # as above
    f" WHERE {IS_HELD} AND voting_status = 'pending'"
)
FORGET = text(
    f"{lock_tiles_sql()} DELETE FROM tiles USING held WHERE {IS_HELD}"  # noqa: S608  # as above
    " RETURNING tiles.segment, tiles.byte_offset, tiles.byte_length, tiles.sha256"
)


_BLOB = (tiles.c.segment, tiles.c.byte_offset, tiles.c.byte_length, tiles.c.sha256)
_ID = (tiles.c.source, tiles.c.zoom, tiles.c.x, tiles.c.y)


@frozen
class PostgresBlobIndex:
    """Blob locations of the visible tiles, in the tiles table."""

    database: Database

    @repeat_when_lost
    def locate(self, tile_id: TileId) -> BlobRef | None:
        """Return the location of a visible tile's bytes."""
        with self.database.read_connection() as connection:
            row = connection.execute(select(*_BLOB).where(match_tile(tile_id))).mappings().first()
        return None if row is None else blob_from_row(row)

    @repeat_when_lost
    def forget(self, tile_ids: Sequence[TileId]) -> Sequence[BlobRef]:
        """Delete tiles' rows; return their blobs."""
        with self.database.transaction() as connection:
            rows = connection.execute(FORGET, id_columns(tile_ids)).mappings().all()
        return [blob_from_row(row) for row in rows]

    @repeat_when_lost
    def list_blobs(
        self, segment: int, *, after_offset: int, limit: int
    ) -> Sequence[tuple[TileId, BlobRef]]:
        """Return the visible blobs of a segment after an offset, sorted by offset."""
        query = (
            select(*_ID, *_BLOB)
            .where(tiles.c.segment == segment, tiles.c.byte_offset > after_offset)
            .order_by(tiles.c.byte_offset)
            .limit(limit)
        )
        with self.database.read_connection() as connection:
            rows = connection.execute(query).mappings().all()
        return [(tile_id_from_row(row), blob_from_row(row)) for row in rows]

    @repeat_when_lost
    def get_last_segment(self) -> int:
        """Return the highest segment number with visible blobs; 0 if there are none."""
        query = select(func.coalesce(func.max(tiles.c.segment), 0))
        with self.database.read_connection() as connection:
            return int(connection.execute(query).scalar_one())

    @repeat_when_lost
    def sum_live_bytes(self) -> Sequence[tuple[int, int]]:
        """Return each segment's number and total size of visible blobs."""
        query = select(tiles.c.segment, func.sum(tiles.c.byte_length)).group_by(tiles.c.segment)
        with self.database.read_connection() as connection:
            return [(segment, int(total)) for segment, total in connection.execute(query)]

    @repeat_when_lost
    def move(self, moves: Sequence[tuple[TileId, BlobRef, BlobRef]]) -> int:
        """Move tiles to new locations unless they left the old one; return how many moved."""
        if not moves:
            return 0
        columns = {
            **id_columns([tile_id for tile_id, _, _ in moves]),
            "old_segment": [old.location[0] for _, old, _ in moves],
            "old_offset": [old.location[1] for _, old, _ in moves],
            "new_segment": [new.location[0] for _, _, new in moves],
            "new_offset": [new.location[1] for _, _, new in moves],
        }
        with self.database.transaction() as connection:
            return int(connection.execute(_MOVE, columns).rowcount)


_PLACES = {
    "old_segment": "integer",
    "old_offset": "bigint",
    "new_segment": "integer",
    "new_offset": "bigint",
}
_MOVE = text(
    f"{lock_tiles_sql(**_PLACES)} UPDATE tiles SET segment = new_segment, byte_offset = new_offset"  # noqa: S608  # interpolates constants only
    f" FROM held WHERE {IS_HELD} AND segment = old_segment AND byte_offset = old_offset"
)
