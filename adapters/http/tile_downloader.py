"""The downloader with the constructor that its consumers rely on: the use case, wired to httpx.

This is the only adapter that uses other adapters. Its constructor is a fixed contract without
parameters for the journal, the spool or the threads, so it creates those in the request's cache.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

import httpx
from attrs import define, field

from tileferry.adapters.filesystem import FileCacheLock, FileJournalStore, FileSpoolStore
from tileferry.adapters.http.provider import HttpTileProvider
from tileferry.adapters.system import SharedPace, SharedRetryTokens, ThreadFetchRunner, new_id
from tileferry.application import AreaDownload, AuditTrail, DownloadSettings, RetryManager
from tileferry.application.ports.cache import CacheBudgetEnforcer
from tileferry.application.ports.clock import Background, Clock
from tileferry.application.ports.downloads import FetchRunner
from tileferry.application.ports.flights import FlightAreas
from tileferry.application.ports.progress import NULL_LISTENER, ProgressListener
from tileferry.application.ports.provider import TileProvider
from tileferry.application.ports.retries import RequestPace
from tileferry.application.ports.tiles import (
    AbsentTiles,
    RefusedTiles,
    TileMetadataStore,
    TileOrigins,
    TileStore,
)
from tileferry.domain.retry import Pace
from tileferry.domain.tiles import BBox, DownloadBatchReport, DownloadRequest, TileSummary


@define(kw_only=True)
class HttpTileDownloader:
    """Downloads areas from the provider that ``http_client`` is configured for.

    The client has the provider's address as its ``base_url`` and the key in its ``Authorization``
    header; ``new_client`` creates a safe one.
    """

    http_client: httpx.Client
    tile_store: TileStore
    tile_metadata_store: TileMetadataStore
    budget_enforcer: CacheBudgetEnforcer
    logger: logging.Logger
    clock: Clock
    settings: DownloadSettings = field(factory=DownloadSettings)
    provider: TileProvider = field()
    retry: RetryManager = field()
    requests_max: int = 8
    """How many tiles are requested at a time, unless the provider is overloaded."""
    runner: FetchRunner = field()
    pace: RequestPace = field()
    background: Background | None = None
    progress: ProgressListener = NULL_LISTENER
    flights: FlightAreas | None = None
    """Records the areas of flights; without it, pins do not protect what is downloaded."""
    absent_tiles: AbsentTiles | None = None
    refused_tiles: RefusedTiles | None = None
    tile_origins: TileOrigins | None = None

    @provider.default
    def _make_provider(self) -> TileProvider:
        return HttpTileProvider(
            client=self.http_client, clock=self.clock, listing_limits=self.settings.listing
        )

    @retry.default
    def _make_retry(self) -> RetryManager:
        return RetryManager(
            clock=self.clock,
            new_id=new_id,
            audit=AuditTrail(logger=self.logger),
            tokens=SharedRetryTokens(clock=self.clock),
        )

    @runner.default
    def _make_runner(self) -> FetchRunner:
        return ThreadFetchRunner.for_requests(self.requests_max)

    @pace.default
    def _make_pace(self) -> RequestPace:
        return SharedPace(clock=self.clock, pace=Pace(concurrency_max=self.requests_max))

    def download_tiles_for_area(self, request: DownloadRequest) -> DownloadBatchReport:
        """Download the tiles of the area that are not in the cache, and return a report."""
        return self._download(Path(request.cache_root)).download_tiles_for_area(request)

    def check_resumable(self, request: DownloadRequest) -> None:
        """Raise unless an earlier run of the same request stored some of its tiles."""
        self._download(Path(request.cache_root)).check_resumable(request)

    def enumerate_remote_coverage(
        self, bbox: BBox, zoom_levels: Sequence[int]
    ) -> list[TileSummary]:
        """List the provider's tiles in an area, without fetching them."""
        return self._download(Path()).enumerate_remote_coverage(bbox, zoom_levels)

    def _download(self, cache_root: Path) -> AreaDownload:
        return AreaDownload(
            provider=self.provider,
            tile_store=self.tile_store,
            tile_metadata_store=self.tile_metadata_store,
            budget_enforcer=self.budget_enforcer,
            journals=FileJournalStore(root=cache_root, logger=self.logger),
            spools=FileSpoolStore(root=cache_root),
            runner=self.runner,
            lock=FileCacheLock(root=cache_root),
            retry=self.retry,
            pace=self.pace,
            clock=self.clock,
            logger=self.logger,
            settings=self.settings,
            background=self.background,
            progress=self.progress,
            flights=self.flights,
            absent_tiles=self.absent_tiles,
            refused_tiles=self.refused_tiles,
            tile_origins=self.tile_origins,
        )
