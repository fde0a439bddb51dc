"""Tiles from rows."""

from collections.abc import Sequence
from sys import intern
from typing import Any, Protocol

from tileferry.domain.tiles import (
    BlobRef,
    FreshnessLabel,
    SectorClass,
    TileId,
    TileMetadata,
    TileValidators,
    VotingStatus,
)


class Columns(Protocol):
    """A row whose columns are found by their names."""

    def __getitem__(self, name: Any, /) -> Any: ...


def tile_id_from_row(row: Columns) -> TileId:
    # Interned, because an upload report holds the ids of a whole flight.
    return TileId(source=intern(row["source"]), zoom=row["zoom"], x=row["x"], y=row["y"])


def blob_from_row(row: Columns) -> BlobRef:
    return BlobRef(
        location=(row["segment"], row["byte_offset"]),
        length=row["byte_length"],
        sha256=bytes(row["sha256"]).hex(),
    )


METADATA_COLUMNS = (
    "source, zoom, x, y, flight_id, produced_at, resolution_m_per_px, sector_class, freshness,"
    " segment, byte_offset, byte_length, sha256, voting_status, upload_attempts, stored_at,"
    " last_used_at, confirmed_at, etag, last_modified"
)
_SECTORS = {str(sector): sector for sector in SectorClass}
_LABELS = {str(label): label for label in FreshnessLabel}
_STATUSES = {str(status): status for status in VotingStatus}


def metadata_from_values(row: Sequence[Any]) -> TileMetadata:
    """Build metadata from a row of ``METADATA_COLUMNS``, by position, which is faster."""
    (
        source, zoom, x, y, flight_id, produced_at, resolution_m_per_px, sector_class, freshness,
        segment, byte_offset, byte_length, sha256, voting_status, upload_attempts, stored_at,
        last_used_at, confirmed_at, etag, last_modified,
    ) = row  # fmt: skip
    validators = None
    if etag is not None or last_modified is not None:
        validators = TileValidators.from_headers(etag, last_modified)
    return TileMetadata(
        tile_id=TileId(source=intern(source), zoom=zoom, x=x, y=y),
        flight_id=flight_id,
        produced_at=produced_at,
        resolution_m_per_px=resolution_m_per_px,
        sector_class=_SECTORS[sector_class],
        freshness=_LABELS[freshness],
        blob=BlobRef(location=(segment, byte_offset), length=byte_length, sha256=sha256.hex()),
        voting_status=_STATUSES[voting_status],
        upload_attempts=upload_attempts,
        stored_at=stored_at,
        last_used_at=last_used_at,
        reconfirmed_at=confirmed_at,
        validators=validators,
    )


def metadata_from_row(row: Columns) -> TileMetadata:
    return metadata_from_values([row[name] for name in METADATA_COLUMNS.split(", ")])
