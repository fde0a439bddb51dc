"""Conversion between tiles and rows, bulk statements, and the blob index."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from attrs import frozen
from sqlalchemy import and_, func, select, text

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.encoding import (
    BinaryArray,
    encode_bytea_array,
    encode_number_array,
    encode_text_array,
    encode_timestamp_array,
)
from tileferry.adapters.postgres.patience import repeat_when_lost
from tileferry.adapters.postgres.schema import tiles
from tileferry.adapters.postgres.tile_rows import blob_from_row, tile_id_from_row
from tileferry.domain.tiles import BlobRef, FreshnessVerdict, NewTiles, TileId


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
    SELECT CAST(:source AS text), CAST(:zoom AS smallint), new.x, new.y, CAST(:flight_id AS text),
        new.produced_at, new.resolution_m_per_px, CAST(:sector_class AS text), new.freshness,
        CAST(:voting_status AS text), new.segment, new.byte_offset, new.byte_length, new.sha256,
        new.etag, new.last_modified, now(), now()
    FROM unnest(
        CAST(:x AS integer[]), CAST(:y AS integer[]), CAST(:produced_at AS timestamptz[]),
        CAST(:resolution_m_per_px AS double precision[]), CAST(:freshness AS text[]),
        CAST(:segment AS integer[]), CAST(:byte_offset AS bigint[]),
        CAST(:byte_length AS integer[]), CAST(:sha256 AS bytea[]), CAST(:etag AS text[]),
        CAST(:last_modified AS text[])
    ) AS new(
        x, y, produced_at, resolution_m_per_px, freshness, segment, byte_offset, byte_length,
        sha256, etag, last_modified
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


class _Shared(NamedTuple):
    """What is the same for many rows."""

    flight_id: str
    sector_class: str
    voting_status: str


TileRow: TypeAlias = tuple[Any, ...]
"""A tile as ``UPSERT`` writes it: its key of four columns, a ``_Shared``, and ``_ARRAYS``."""

KEY_COLUMNS = 4
_ARRAYS: Mapping[str, Callable[[Sequence[Any]], BinaryArray]] = {
    "x": partial(encode_number_array, "int4"),
    "y": partial(encode_number_array, "int4"),
    "produced_at": encode_timestamp_array,
    "resolution_m_per_px": partial(encode_number_array, "float8"),
    "freshness": encode_text_array,
    "segment": partial(encode_number_array, "int4"),
    "byte_offset": partial(encode_number_array, "int8"),
    "byte_length": partial(encode_number_array, "int4"),
    "sha256": encode_bytea_array,
    "etag": encode_text_array,
    "last_modified": encode_text_array,
}


def build_rows(tiles: NewTiles, verdicts: Sequence[FreshnessVerdict]) -> list[TileRow]:
    """Return the rows of the tiles that the freshness rule did not reject."""
    shared = _Shared(tiles.flight_id, tiles.sector_class, tiles.voting_status)
    return [
        (
            *(tile_id.source, tile_id.zoom, tile_id.x, tile_id.y, shared, produced_at, resolution),
            *(verdict, *location, length, digest),
            *((None, None) if known is None else (known.etag, known.last_modified)),
        )
        for tile_id, produced_at, resolution, verdict, location, length, digest, known in zip(
            tiles.tile_ids,
            tiles.produced_at,
            tiles.resolutions_m_per_px,
            verdicts,
            tiles.locations,
            tiles.lengths,
            tiles.digests,
            tiles.validators,
            strict=True,
        )
        if not isinstance(verdict, Exception)
    ]


def iter_upserts(rows: Sequence[TileRow]) -> Iterator[dict[str, Any]]:
    """Yield the parameters of ``UPSERT`` for rows of distinct tiles, which are sorted by key.

    There is one for each run of rows with equal source, zoom and shared columns.
    """
    for (source, zoom, shared), run in groupby(rows, lambda row: (row[0], row[1], row[4])):
        _, _, x, y, _, *others = zip(*run, strict=True)
        arrays = zip(_ARRAYS.items(), (x, y, *others), strict=True)
        yield {
            "source": source,
            "zoom": zoom,
            **shared._asdict(),
            **{name: encode(column) for (name, encode), column in arrays},
        }


def _to_array_literal(values: Iterable[object]) -> str:
    """Return a Postgres array literal. The values are names and numbers.

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


def build_lock_sql(parameter: str = ":{}", **more: str) -> str:
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
LOCK_TILES = build_lock_sql("%({})s")
"""In the driver's style."""
MARK_HELD = (
    "UPDATE tiles SET voting_status = 'uploaded', uploaded_at = now() FROM held"  # noqa: S608  # as above
    f" WHERE {IS_HELD} AND voting_status = 'pending'"
)
FORGET = text(
    f"{build_lock_sql()} DELETE FROM tiles USING held WHERE {IS_HELD}"  # noqa: S608  # as above
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

    def list_envelope_segments(self) -> Sequence[int]:
        """Return the segments with bytes of open envelopes."""
        with self.database.read_connection() as connection:
            return [segment for (segment,) in connection.execute(_ENVELOPE_SEGMENTS)]

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


_ENVELOPE_SEGMENTS = text(
    # Locations are pairs of segment and offset.
    "SELECT DISTINCT segment FROM upload_envelopes,"
    " unnest(locations) WITH ORDINALITY AS place(segment, position) WHERE position % 2 = 1"
)
_PLACES = {
    "old_segment": "integer",
    "old_offset": "bigint",
    "new_segment": "integer",
    "new_offset": "bigint",
}
_MOVE = text(
    f"{build_lock_sql(**_PLACES)} UPDATE tiles SET segment = new_segment, byte_offset = new_offset"  # noqa: S608  # interpolates constants only
    f" FROM held WHERE {IS_HELD} AND segment = old_segment AND byte_offset = old_offset"
)
