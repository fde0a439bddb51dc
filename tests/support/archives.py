"""Tiles to export and import: small pictures that are really ones, and a cache that has them."""

import io
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from pathlib import Path

from attrs import define, evolve, field
from PIL import Image

from tileferry.adapters.memory import (
    ManualClock,
    MemoryBlobIndex,
    MemoryCacheLedger,
    MemoryCacheLock,
    MemoryTileMetadataStore,
    MemoryTileStore,
)
from tileferry.application.archive.archive_export import ArchiveExport, ExportRequest
from tileferry.application.archive.archive_import import ArchiveImport, ImportRequest
from tileferry.application.cache.budget import CacheBudget
from tileferry.application.ports.archives import ArchivedTile
from tileferry.domain.archives import TileFacts
from tileferry.domain.tiles import (
    BBox,
    BlobRef,
    NewTile,
    SectorClass,
    TileCoverage,
    TileId,
    TileMetadata,
    VotingStatus,
)

NOW = datetime(2026, 6, 1, tzinfo=UTC)
WORLD = TileCoverage(
    bbox=BBox(west=-180, south=-90, east=180, north=90), zoom_levels=list(range(22))
)
_LOGGER = logging.getLogger("test")


def list_others(folder: Path, archive: Path) -> list[str]:
    """Return what is in a folder besides an archive and the facts of its tiles."""
    own = {archive.name, f"{archive.name}.tiles.jsonl"}
    return sorted(path.name for path in folder.iterdir() if path.name not in own)


def create_tile_id(zoom: int, x: int, y: int, source: str = "sat") -> TileId:
    return TileId(source=source, zoom=zoom, x=x, y=y)


@cache
def create_image(seed: object, kind: str = "PNG", size: int = 16) -> bytes:
    """Draw a picture of one colour, with one pixel of another."""
    digest = sha256(repr(seed).encode()).digest()
    image = Image.new("RGB", (size, size), (digest[0], digest[1], digest[2]))
    image.putpixel((digest[3] % size, digest[4] % size), (digest[5], digest[6], digest[7]))
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


def create_archived_tile(
    tile_id: TileId, content: bytes | None = None, days: float = 1
) -> ArchivedTile:
    """Return a tile as an archive has it, with all that is known of it."""
    found = create_image(str(tile_id)) if content is None else content
    return ArchivedTile(
        tile_id=tile_id,
        content=found,
        facts=TileFacts(
            produced_at=NOW - timedelta(days=days),
            resolution_m_per_px=0.6,
            sha256=sha256(found).hexdigest(),
        ),
    )


class _FakeDisk:
    def free_bytes(self) -> int:
        return 10**12

    def total_bytes(self) -> int:
        return 10**12


@define
class MemoryCache:
    """A cache of parts that all are in memory."""

    budget_bytes: int = 10**9
    clock: ManualClock = field(factory=lambda: ManualClock(now_s=NOW.timestamp()))
    index: MemoryBlobIndex = field(factory=MemoryBlobIndex)
    lock: MemoryCacheLock = field(factory=MemoryCacheLock)
    rows: MemoryTileMetadataStore = field(init=False)
    store: MemoryTileStore = field(init=False)
    ledger: MemoryCacheLedger = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.rows = MemoryTileMetadataStore(clock=self.clock, index=self.index)
        self.store = MemoryTileStore(self.index)
        self.ledger = MemoryCacheLedger(tiles=self.rows)

    def put(
        self,
        tile_id: TileId,
        content: bytes | None = None,
        *,
        days: float = 1,
        status: VotingStatus = VotingStatus.TRUSTED,
    ) -> None:
        """Put a tile into it."""
        found = create_image(str(tile_id)) if content is None else content
        self.rows.insert_metadata(
            NewTile(
                tile_id=tile_id,
                flight_id="F1",
                produced_at=NOW - timedelta(days=days),
                resolution_m_per_px=0.6,
                sector_class=SectorClass.STABLE_REAR,
                blob=self.store.write_tile(tile_id, found),
                voting_status=status,
            )
        )
        self.rows.flush()

    def lose_bytes(self, tile_id: TileId) -> None:
        """Keep the row and lose the bytes."""
        row = self.get_row(tile_id)
        gone = BlobRef(location=(9, 9), length=row.blob.length, sha256=row.blob.sha256)
        self.rows._tiles[tile_id] = evolve(row, blob=gone)
        self.index.add(tile_id, gone)

    def get_row(self, tile_id: TileId) -> TileMetadata:
        found = self.rows.get_metadata(tile_id)
        assert found is not None
        return found

    def read_content(self, tile_id: TileId) -> bytes:
        return self.store.read_tile(tile_id)

    def create_exporter(self) -> ArchiveExport:
        return ArchiveExport(tile_store=self.store, tile_metadata_store=self.rows, logger=_LOGGER)

    def create_importer(self) -> ArchiveImport:
        budget = CacheBudget(
            ledger=self.ledger,
            disk=_FakeDisk(),
            reclaim=lambda: None,
            find_reservation_id=lambda: "test",
            budget_bytes=self.budget_bytes,
            free_space_reserve_bytes=0,
        )
        return ArchiveImport(
            tile_store=self.store,
            tile_metadata_store=self.rows,
            budget_enforcer=budget,
            lock=self.lock,
            clock=self.clock,
            logger=_LOGGER,
        )


def create_export_request(
    coverage: TileCoverage = WORLD, source: str = "sat", attribution: str | None = None
) -> ExportRequest:
    return ExportRequest(coverages=(coverage,), source=source, name="area", attribution=attribution)


def create_import_request(
    *,
    sector: SectorClass = SectorClass.STABLE_REAR,
    produced_at: datetime | None = None,
    resolution: float | None = None,
    replaces: bool = False,
) -> ImportRequest:
    return ImportRequest(
        source="sat",
        flight_id="import",
        sector_class=sector,
        produced_at=produced_at,
        resolution_m_per_px=resolution,
        replaces_tiles=replaces,
    )


def collect_tiles(items: Sequence[object]) -> dict[TileId, bytes]:
    """Return the tiles among what was read."""
    return {item.tile_id: item.content for item in items if isinstance(item, ArchivedTile)}
