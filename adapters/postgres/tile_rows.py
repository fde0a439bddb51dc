"""Tiles from rows."""

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


def metadata_from_row(row: Columns) -> TileMetadata:
    return TileMetadata(
        tile_id=tile_id_from_row(row),
        flight_id=row["flight_id"],
        produced_at=row["produced_at"],
        resolution_m_per_px=row["resolution_m_per_px"],
        sector_class=SectorClass(row["sector_class"]),
        freshness=FreshnessLabel(row["freshness"]),
        blob=blob_from_row(row),
        voting_status=VotingStatus(row["voting_status"]),
        upload_attempts=row["upload_attempts"],
        stored_at=row["stored_at"],
        last_used_at=row["last_used_at"],
        reconfirmed_at=row["confirmed_at"],
        validators=TileValidators.from_headers(row["etag"], row["last_modified"]),
    )
