"""Tiles as rows: reading them, and writing many at once."""

from collections.abc import Iterable, Sequence
from sys import intern
from typing import Any

from sqlalchemy import RowMapping, and_, text

from tileferry.adapters.postgres.schema import tiles
from tileferry.domain.tiles import (
    BlobRef,
    FreshnessLabel,
    NewTile,
    SectorClass,
    TileId,
    TileMetadata,
    VotingStatus,
)


def tile_id_from(row: RowMapping) -> TileId:
    """Read a row's tile id."""
    # One text for all tiles of a source: a report of an upload keeps the ids of a whole flight.
    return TileId(source=intern(row["source"]), zoom=row["zoom"], x=row["x"], y=row["y"])


def blob_from(row: RowMapping) -> BlobRef:
    """Read where a row's bytes are."""
    return BlobRef(
        segment=row["segment"],
        offset=row["byte_offset"],
        length=row["byte_length"],
        sha256=bytes(row["sha256"]).hex(),
    )


def metadata_from(row: RowMapping) -> TileMetadata:
    """Read a row."""
    return TileMetadata(
        tile_id=tile_id_from(row),
        flight_id=row["flight_id"],
        produced_at=row["produced_at"],
        resolution_m_per_px=row["resolution_m_per_px"],
        sector_class=SectorClass(row["sector_class"]),
        freshness=FreshnessLabel(row["freshness"]),
        blob=blob_from(row),
        voting_status=VotingStatus(row["voting_status"]),
        upload_attempts=row["upload_attempts"],
        stored_at=row["stored_at"],
        last_used_at=row["last_used_at"],
    )


def at(tile_id: TileId) -> Any:
    """Return the condition that picks one tile's row."""
    return and_(
        tiles.c.source == tile_id.source,
        tiles.c.zoom == tile_id.zoom,
        tiles.c.x == tile_id.x,
        tiles.c.y == tile_id.y,
    )


# One statement for a whole group, one array a column: planned once, then the arrays are walked.
# Which version stays is the domain's rule ``replaces``; the contract suite holds both to it.
# upload_attempts is absent on purpose: only increment_upload_attempts writes it.
UPSERT = text(
    """
    INSERT INTO tiles (
        source, zoom, x, y, flight_id, produced_at, resolution_m_per_px, sector_class, freshness,
        voting_status, segment, byte_offset, byte_length, sha256, stored_at, last_used_at
    )
    SELECT new.*, now(), now() FROM unnest(
        CAST(:source AS text[]), CAST(:zoom AS smallint[]), CAST(:x AS integer[]),
        CAST(:y AS integer[]), CAST(:flight_id AS text[]), CAST(:produced_at AS timestamptz[]),
        CAST(:resolution_m_per_px AS double precision[]), CAST(:sector_class AS text[]),
        CAST(:freshness AS text[]), CAST(:voting_status AS text[]), CAST(:segment AS integer[]),
        CAST(:byte_offset AS bigint[]), CAST(:byte_length AS integer[]), CAST(:sha256 AS bytea[])
    ) AS new
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


def upsert_columns(group: Iterable[tuple[NewTile, FreshnessLabel]]) -> dict[str, str]:
    """Lay a group of tiles out as one array a column; no tile may come twice."""
    names = (
        "source", "zoom", "x", "y", "flight_id", "produced_at", "resolution_m_per_px",
        "sector_class", "freshness", "voting_status", "segment", "byte_offset", "byte_length",
        "sha256",
    )  # fmt: skip
    columns = zip(*(_values(tile, label) for tile, label in group), strict=True)
    return dict(zip(names, map(_array, columns), strict=True))


def _array(values: Iterable[object]) -> str:
    """Write an array as Postgres reads it. No value has a quote: names, numbers, times, hex.

    The driver looks at each value by itself, which costs more than what the server does with it.
    """
    return '{"' + '","'.join(map(str, values)) + '"}'


def _values(tile: NewTile, label: FreshnessLabel) -> tuple[Any, ...]:
    tile_id, blob = tile.tile_id, tile.blob
    return (
        tile_id.source,
        tile_id.zoom,
        tile_id.x,
        tile_id.y,
        tile.flight_id,
        tile.produced_at,
        tile.resolution_m_per_px,
        tile.sector_class.value,
        label.value,
        tile.voting_status.value,
        blob.segment,
        blob.offset,
        blob.length,
        rf"\\x{blob.sha256}",  # as text, with the backslash that an array asks for
    )


def id_values(tile_id: TileId) -> dict[str, Any]:
    """Return a tile id as the parameters of a statement."""
    return {"source": tile_id.source, "zoom": tile_id.zoom, "x": tile_id.x, "y": tile_id.y}


def id_columns(tile_ids: Sequence[TileId]) -> dict[str, list[Any]]:
    """Lay tile ids out as one array a column."""
    return {
        "source": [tile.source for tile in tile_ids],
        "zoom": [tile.zoom for tile in tile_ids],
        "x": [tile.x for tile in tile_ids],
        "y": [tile.y for tile in tile_ids],
    }


def holding(**more: str) -> str:
    """Return the beginning of a statement that changes the tiles of ``id_columns``.

    Their rows are ``held``, with further columns by name and type. They are locked in the order of
    the key, as a flush does it: two that change the same tiles never wait for each other in a ring.
    """
    columns = {"source": "text", "zoom": "smallint", "x": "integer", "y": "integer", **more}
    arrays = ", ".join(f"CAST(:{name} AS {kind}[])" for name, kind in columns.items())
    return (
        f"WITH held AS (SELECT wanted.* FROM unnest({arrays}) AS wanted({', '.join(columns)})"  # noqa: S608  # names of ours
        " JOIN tiles USING (source, zoom, x, y)"
        " ORDER BY tiles.source, tiles.zoom, tiles.x, tiles.y FOR UPDATE OF tiles) "
    )


IS_HELD = (
    "tiles.source = held.source AND tiles.zoom = held.zoom"
    " AND tiles.x = held.x AND tiles.y = held.y"
)
FORGET = text(
    f"{holding()} DELETE FROM tiles USING held WHERE {IS_HELD}"  # noqa: S608  # as above
    " RETURNING tiles.segment, tiles.byte_offset, tiles.byte_length, tiles.sha256"
)
