"""Raw partitions for tests: a key, an area, and manifests of it."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from typing import Any

from attrs import evolve

from tileferry.domain.partitions import PartitionKey
from tileferry.domain.partitions.manifest import ManifestEntry, PartitionHeader
from tileferry.domain.runs import RunId
from tileferry.domain.tiles import (
    BBox,
    BlobRef,
    DownloadTally,
    FreshnessLabel,
    SectorClass,
    TileId,
)
from tileferry.domain.tiles.area import Area

NOW = datetime(2026, 10, 26, 12, tzinfo=UTC)
DAY = timedelta(days=1)
RUN = RunId("run-1")
KEY = PartitionKey(
    source="satellite", customer_id="acme", query_name="roads", logical_date=date(2026, 10, 25)
)
AREA = Area(
    bbox=BBox(west=36.0, south=50.0, east=36.3, north=50.2),
    zoom_levels=(13, 14),
    sector_class=SectorClass.STABLE_REAR,
)
TILES = list(AREA.coverage.tiles("satellite"))


def header_of(
    stored: int, *, listed: int | None = None, area: Area = AREA, **tally: int
) -> PartitionHeader:
    """The header of a run that stored so many tiles, and what else its tally is told to say."""
    counts = DownloadTally(tiles_downloaded=stored, **tally)
    return PartitionHeader(
        key=KEY,
        run_id=RUN,
        area=area,
        tiles_listed=counts.tiles_accounted if listed is None else listed,
        tally=counts,
        sealed_at=NOW,
    )


def entry_of(tile_id: TileId, **changes: Any) -> ManifestEntry:
    """A good tile of yesterday."""
    entry = ManifestEntry(
        tile_id=tile_id,
        blob=BlobRef(
            segment=1, offset=16, length=500, sha256=sha256(str(tile_id).encode()).hexdigest()
        ),
        resolution_m_per_px=0.6,
        produced_at=NOW - DAY,
        freshness=FreshnessLabel.FRESH,
    )
    return evolve(entry, **changes)


def entries_of(tiles: Iterable[TileId], **changes: Any) -> list[ManifestEntry]:
    return [entry_of(tile_id, **changes) for tile_id in tiles]
