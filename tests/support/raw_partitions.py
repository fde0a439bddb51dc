"""Raw partitions for tests: a key, an area, and manifests of it."""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from typing import Any

from attrs import evolve

from tileferry.application.ports.raw_partitions import OpenPartition, RawSink
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.partitions.manifest import (
    ManifestEntry,
    PartitionDamage,
    PartitionHeader,
    SealedPartition,
)
from tileferry.domain.runs import RunId
from tileferry.domain.tiles import (
    BBox,
    BlobRef,
    DownloadBatchReport,
    DownloadTally,
    FreshnessLabel,
    NewTile,
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


def create_header(
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


def create_entry(tile_id: TileId, **changes: Any) -> ManifestEntry:
    """A good tile of yesterday."""
    entry = ManifestEntry(
        tile_id=tile_id,
        blob=BlobRef(
            location=(1, 16), length=500, sha256=sha256(str(tile_id).encode()).hexdigest()
        ),
        resolution_m_per_px=0.6,
        produced_at=NOW - DAY,
        freshness=FreshnessLabel.FRESH,
    )
    return evolve(entry, **changes)


def create_entries(tiles: Iterable[TileId], **changes: Any) -> list[ManifestEntry]:
    return [create_entry(tile_id, **changes) for tile_id in tiles]


def tile_content(tile_id: TileId) -> bytes:
    """Return bytes that no other tile has."""
    return sha256(str(tile_id).encode()).digest() * 20


def store_tiles(raw: OpenPartition, tiles: Iterable[TileId], **changes: Any) -> None:
    """Bring tiles in as the downloader does: bytes, then rows, then the journal's business."""
    for tile_id in tiles:
        blob = raw.tile_store.write_tile(tile_id, tile_content(tile_id))
        tile = NewTile(
            tile_id=tile_id,
            flight_id=RUN,
            produced_at=NOW - DAY,
            resolution_m_per_px=0.6,
            sector_class=AREA.sector_class,
            blob=blob,
        )
        raw.tile_metadata_store.insert_metadata(evolve(tile, **changes))
    raw.tile_store.flush()
    raw.tile_metadata_store.flush()


def create_report(stored: int, *, run_id: RunId = RUN) -> DownloadBatchReport:
    return DownloadBatchReport.from_tally(
        DownloadTally(tiles_downloaded=stored),
        flight_id=run_id,
        request_hash="0123456789abcdef",
        tiles_requested=stored,
    )


def seal(
    sink: RawSink, tiles: Sequence[TileId] = tuple(TILES[:20]), *, run_id: RunId = RUN
) -> SealedPartition:
    """Bring a raw partition in and seal it."""
    with sink.open(KEY, run_id, AREA) as raw:
        store_tiles(raw, tiles)
        return raw.seal(create_report(len(tiles), run_id=run_id), at=NOW)


def list_damages(sink: RawSink, sealed: SealedPartition) -> list[PartitionDamage]:
    with sink.open_reader(sealed) as reader:
        return list(reader.verify())
