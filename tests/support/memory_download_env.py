"""An area to download with nothing but memory: a provider that is told what to answer."""

import logging
from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, TypeVar

from attrs import define, field

from support.managers import RetryBench, create_pace
from tileferry.adapters.memory import (
    InlineFetchRunner,
    ManualClock,
    MemoryBlobIndex,
    MemoryCacheLock,
    MemoryJournalStore,
    MemorySpoolStore,
    MemoryTileMetadataStore,
    MemoryTileStore,
    SequentialFetches,
)
from tileferry.application import AreaDownload
from tileferry.application.download.provider_calls import ProviderCalls
from tileferry.application.download.tile_fetcher import TileFetcher
from tileferry.application.ports.provider import (
    FetchedTile,
    FetchResult,
    TileFetches,
    UnchangedTile,
)
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.tiles import (
    BBox,
    DownloadRequest,
    EvictionResult,
    ListingPage,
    ProviderFault,
    SectorClass,
    TileCoverage,
    TileId,
    TileSummary,
    TileValidators,
)

BOX = BBox(west=36.0, south=50.0, east=36.3, north=50.2)
ZOOM = 14
NOW_S = 1_793_000_000.0  # 2026-10-26
PRODUCED = datetime(2026, 10, 1, tzinfo=UTC)
Item = TypeVar("Item")
Result = TypeVar("Result")


def tile_content(tile: TileId) -> bytes:
    """Return bytes that no other tile has."""
    return f"{tile}".encode()


def create_fault(kind: ProviderFault, **more: Any) -> SatelliteProviderError:
    """Return what a call to the provider may raise."""
    return SatelliteProviderError(reason=str(kind), fault=kind, **more)


@define(eq=False)
class MemoryProvider:
    """Lists an area's first tiles and has them; what it is told to do otherwise comes first."""

    count: int
    source: str = "satellite"
    key_hash: str = "0" * 16
    page_size: int = 1_000
    lists_versions: bool = True
    lines: dict[TileId, dict[str, Any]] = field(factory=dict)
    """What the listing says of a tile instead of the usual."""
    answers: dict[TileId, dict[str, Any]] = field(factory=dict)
    """What comes with a tile."""
    faults: dict[TileId | None, list[Exception]] = field(factory=lambda: defaultdict(list))
    """What is raised first, for each tile, and for the listing by ``None``."""
    asked: list[TileId | None] = field(factory=list)
    box: BBox = BOX
    on_call: Callable[[], object] = lambda: None

    @property
    def tiles(self) -> Sequence[TileId]:
        """What there is."""
        area = TileCoverage(bbox=self.box, zoom_levels=[ZOOM])
        return list(area.tiles(self.source))[: self.count]

    def fetch_listing_page(
        self,
        bbox: BBox,  # noqa: ARG002  # there is but one area
        zoom_levels: Sequence[int],  # noqa: ARG002  # as above
        cursor: str | None,
    ) -> ListingPage:
        """Return a page."""
        self._record_call(None)
        start = int(cursor or 0)
        end = start + self.page_size
        lines = tuple(self.create_summary(tile) for tile in self.tiles[start:end])
        return ListingPage(tiles=lines, next=str(end) if end < self.count else None)

    def create_summary(self, tile: TileId) -> TileSummary:
        """Return what the listing says of a tile."""
        usual: dict[str, Any] = {
            "tile_id": tile,
            "produced_at": PRODUCED,
            "resolution_m_per_px": 0.6,
            "estimated_bytes": len(tile_content(tile)),
        }
        return TileSummary(**(usual | self.lines.get(tile, {})))

    def fetch_tile(
        self, tile_id: TileId, *, unless: TileValidators | None = None
    ) -> FetchedTile | UnchangedTile:
        """Return a tile, unless it has the version that is told."""
        self._record_call(tile_id)
        if unless is not None and unless == self.answers.get(tile_id, {}).get("validators"):
            return UnchangedTile(tile_id=tile_id)
        return FetchedTile(
            tile_id=tile_id, content=tile_content(tile_id), **self.answers.get(tile_id, {})
        )

    def open_fetches(self) -> TileFetches:
        """Fetch many tiles one after the other."""
        return SequentialFetches(self.fetch_tile)

    def _record_call(self, to: TileId | None) -> None:
        self.asked.append(to)
        self.on_call()
        if self.faults[to]:
            raise self.faults[to].pop(0)

    @property
    def fetched(self) -> list[TileId]:
        """The tiles that were asked for, in order."""
        return [tile for tile in self.asked if tile is not None]


@define
class FakeBudget:
    """Has room for so much."""

    available_bytes: int = 10**9
    asked: list[int] = field(factory=list)
    released: int = 0

    def reserve_headroom(
        self,
        estimated_bytes: int,
        *,
        keep: Container[TileId] = (),  # noqa: ARG002  # nothing is evicted
    ) -> EvictionResult:
        """Say whether so much fits."""
        self.asked.append(estimated_bytes)
        return EvictionResult(requested_bytes=estimated_bytes, available_bytes=self.available_bytes)

    def release_headroom(self) -> None:
        """Count it."""
        self.released += 1


@define
class MemoryDownloadEnv:
    """Everything around one download."""

    provider: MemoryProvider
    bench: RetryBench = field(factory=lambda: RetryBench(clock=ManualClock(NOW_S)))
    journals: MemoryJournalStore = field(factory=MemoryJournalStore)
    room: FakeBudget = field(factory=FakeBudget)
    lock: MemoryCacheLock = field(factory=MemoryCacheLock)
    store: MemoryTileStore = field(init=False)
    metadata: MemoryTileMetadataStore = field(init=False)

    def __attrs_post_init__(self) -> None:
        index = MemoryBlobIndex()
        self.store = MemoryTileStore(index)
        self.metadata = MemoryTileMetadataStore(clock=self.bench.clock, index=index)
        self.lock.acquire()

    @classmethod
    def with_tiles(cls, count: int) -> "MemoryDownloadEnv":
        """Return an area with so many tiles."""
        return cls(MemoryProvider(count))

    def create_download(self, **options: Any) -> AreaDownload:
        """Return the use case."""
        given: dict[str, Any] = {
            "provider": self.provider,
            "tile_store": self.store,
            "tile_metadata_store": self.metadata,
            "budget_enforcer": self.room,
            "journals": self.journals,
            "spools": MemorySpoolStore(),
            "runner": InlineFetchRunner(),
            "lock": self.lock,
            "retry": self.bench.create_manager(),
            "pace": create_pace(self.bench.clock),
            "clock": self.bench.clock,
            "logger": logging.getLogger("tests.download"),
        }
        return AreaDownload(**(given | options))

    def list_stored(self) -> list[TileId]:
        """The tiles that the cache has."""
        return [row.tile_id for row in self.metadata.all_tiles()]


def create_request(**options: Any) -> DownloadRequest:
    """Return a request for the area."""
    given: dict[str, Any] = {
        "flight_id": "F1",
        "bbox": BOX,
        "zoom_levels": (ZOOM,),
        "sector_class": SectorClass.STABLE_REAR,
        "cache_root": PurePosixPath("/cache"),
    }
    return DownloadRequest(**(given | options))


def fetch_tiles(
    calls: ProviderCalls,
    *tiles: TileId,
    items_max: int = 1,
    unless: TileValidators | None = None,
) -> list[FetchResult]:
    """Fetch tiles, and return what each ends with, in the order of the results."""
    summaries = MemoryProvider(0)
    wanted = iter([(summaries.create_summary(tile), unless) for tile in tiles])
    runner = InlineFetchRunner(items_max, idles=False)
    batches = runner.run(TileFetcher(calls, wanted), idle_s=1.0)
    return [result.tile for batch in batches for result in batch or ()]
