"""Download an area: list, reserve space, fetch, check, store; a re-run resumes after a crash."""

from collections.abc import Container, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from logging import Logger

from attrs import asdict, define, field

from tileferry.application.cache.tile_lookup import UseMarks, is_readable
from tileferry.application.download.absence_log import AbsenceLog
from tileferry.application.download.download_run import DownloadRun
from tileferry.application.download.listing_selector import ListingSelector
from tileferry.application.download.provider_calls import ProviderCalls
from tileferry.application.download.refusal_log import RefusalLog
from tileferry.application.download.resume import ResumePoint
from tileferry.application.download.settings import DownloadSettings
from tileferry.application.ports.cache import CacheBudgetEnforcer, CacheLock
from tileferry.application.ports.clock import Background, Clock
from tileferry.application.ports.downloads import FetchRunner, SpoolStore
from tileferry.application.ports.flights import FlightAreas
from tileferry.application.ports.journal import JournalStore
from tileferry.application.ports.progress import (
    NULL_LISTENER,
    DownloadFinished,
    ProgressListener,
)
from tileferry.application.ports.provider import TileProvider
from tileferry.application.ports.retries import RequestPace
from tileferry.application.ports.tiles import (
    AbsentTiles,
    RefusedTiles,
    TileCatalogue,
    TileOrigins,
    TileStore,
)
from tileferry.application.retries.manager import RetryManager
from tileferry.domain.errors import (
    CacheBudgetExceededError,
    NothingToResumeError,
    RateLimitedError,
    SatelliteProviderError,
    TileManagerError,
)
from tileferry.domain.tiles import (
    BBox,
    DownloadBatchReport,
    DownloadOutcome,
    DownloadRequest,
    FlightArea,
    TileCoverage,
    TileId,
    TileMetadata,
    TileSet,
    TileSummary,
)
from tileferry.domain.tiles.flight import KeptTiles
from tileferry.domain.tiles.selection import FetchMode, TileGates, TileSelection

SESSION_MAX = timedelta(days=1)
"""How long an interrupted run that visits stored tiles again can be resumed."""


@define(kw_only=True)
class AreaDownload:
    """The use case. Requires the cache's lock; its write order is safe against crashes."""

    provider: TileProvider
    tile_store: TileStore
    tile_metadata_store: TileCatalogue
    budget_enforcer: CacheBudgetEnforcer
    journals: JournalStore
    spools: SpoolStore
    runner: FetchRunner
    lock: CacheLock
    retry: RetryManager
    pace: RequestPace
    clock: Clock
    logger: Logger
    settings: DownloadSettings = field(factory=DownloadSettings)
    background: Background | None = None
    progress: ProgressListener = NULL_LISTENER
    flights: FlightAreas | None = None
    """Records the areas of flights, so that pins protect them; partitions have no flight."""
    absent_tiles: AbsentTiles | None = None
    """Remembers tiles that the provider does not have; ``None``: they are requested each time."""
    tile_origins: TileOrigins | None = None
    """Remembers which tiles a secondary source delivered; ``None``: there is none."""
    refused_tiles: RefusedTiles | None = None
    """Remembers tiles that a gate refused, for operators; ``None``: they are only counted."""
    marks_complete: bool = True
    """Whether a completed request is a no-op when it is repeated."""

    def enumerate_remote_coverage(
        self, bbox: BBox, zoom_levels: Sequence[int]
    ) -> list[TileSummary]:
        """Return the tiles that the provider lists for an area."""
        coverage = TileCoverage(bbox=bbox, zoom_levels=zoom_levels)
        calls = self.create_calls(f"coverage {bbox}")
        return [tile for page in calls.iter_pages(coverage, self.settings.listing) for tile in page]

    def download_tiles_for_area(self, request: DownloadRequest) -> DownloadBatchReport:
        """Download the tiles of the area that the cache does not have, and report the outcome."""
        self.lock.check_held()
        # Only the lock holder can reserve space, so an existing reservation is left over from a
        # process that died. It would block this download for a day.
        self.budget_enforcer.release_headroom()
        self._record_area(request)
        request_hash = request.request_hash(self.provider.key_hash)
        now = datetime.fromtimestamp(self.clock.now(), UTC)
        resume_point = self._find_resume_point(request, now)
        marks = UseMarks(self.tile_metadata_store, now)
        journal, done = resume_point.resume(self.logger, marks)
        with closing(journal):
            if journal.complete:
                report = DownloadBatchReport.for_no_op(
                    flight_id=request.flight_id,
                    request_hash=request_hash,
                    tiles_journaled=journal.count,
                )
                self._log_end(report)
                return report
            selector = self._create_selector(request, done, now)
            absences = AbsenceLog(self.absent_tiles, now)
            refusals = RefusalLog(self.refused_tiles, now, request.sector_class)
            run = DownloadRun(
                self, request, request_hash, journal, selector, marks, absences, refusals
            )
            try:
                report = run.execute()
            except BaseException as error:
                self._log_failure(run.build_report(error), error)
                raise
            own_journal = self.settings.mode.has_own_journal
            # An empty listing may have tiles tomorrow, and the provider may replace a refused tile,
            # so only an area of which every tile is stored is recorded as complete.
            is_whole = 0 < report.tiles_downloaded == report.tiles_requested
            if is_whole and self.marks_complete and not own_journal:
                journal.finish()
        if own_journal and report.outcome is DownloadOutcome.SUCCESS:
            self.journals.discard(resume_point.name)
        self._log_end(report)
        return report

    def _record_area(self, request: DownloadRequest) -> None:
        """Record the area before the first fetch, so that a pin protects each tile at once.

        A part of an area that the flight has, such as one to repair, is not another area.
        """
        if self.flights is None:
            return
        now = datetime.fromtimestamp(self.clock.now(), UTC)
        area = FlightArea(source=self.provider.source, area=request.area, added_at=now)
        flight = self.flights.find_flight(request.flight_id)
        if flight is None or not any(known.includes(area) for known in flight.areas):
            self.flights.add_area(request.flight_id, area)

    def find_kept(self, request: DownloadRequest, done: Container[TileId]) -> Container[TileId]:
        """Return the tiles that this download must not evict."""
        found = None if self.flights is None else self.flights.find_flight(request.flight_id)
        if found is None:
            return done
        return KeptTiles(
            flight=found,
            source=self.provider.source,
            requested=[request.coverage],
            reused=[done],
        )

    def check_resumable(self, request: DownloadRequest) -> None:
        """Raise unless an earlier run of the same request stored some of its tiles."""
        name = request.journal_name(self.provider.key_hash)
        with closing(self.journals.open(name)) as journal:
            if not (journal.complete or journal.count):
                raise NothingToResumeError(flight_id=request.flight_id)

    def _find_resume_point(self, request: DownloadRequest, now: datetime) -> ResumePoint:
        mode = self.settings.mode
        return ResumePoint(
            journals=self.journals,
            name=request.journal_name(
                self.provider.key_hash, purpose=mode.value if mode.has_own_journal else None
            ),
            coverage=request.coverage,
            tile_metadata_store=self.tile_metadata_store,
            source=self.provider.source,
            ends_complete=mode is FetchMode.MISSING,
            is_kept=partial(self._is_kept, now),
        )

    def _is_kept(self, now: datetime, tile: TileMetadata) -> bool:
        """Return whether a journaled tile of an interrupted run need not be visited again."""
        if self.settings.mode.has_own_journal:
            return now - tile.confirmed_at < SESSION_MAX
        return self._is_intact(tile)

    def _is_intact(self, tile: TileMetadata) -> bool:
        """Return whether the cache has a tile's bytes; a repair reads them to find damage."""
        if self.settings.mode is FetchMode.REPAIR:
            return is_readable(self.tile_store, tile)
        return self.tile_store.has_bytes(tile.tile_id, tile.blob)

    def _create_selector(
        self, request: DownloadRequest, done: TileSet, now: datetime
    ) -> ListingSelector:
        gates = TileGates(
            resolution=self.settings.gate, freshness=self.tile_metadata_store.freshness, now=now
        )
        return ListingSelector(
            rule=TileSelection(
                gates=gates,
                sector=request.sector_class,
                mode=self.settings.mode,
                lists_versions=self.provider.lists_versions,
                absent_ttl=self.settings.absent_ttl,
            ),
            tile_metadata_store=self.tile_metadata_store,
            done=done,
            absent_tiles=self.absent_tiles,
            is_intact=self._is_intact,
        )

    def create_calls(self, correlation_id: str) -> ProviderCalls:
        """Return the provider calls of one download or survey."""
        return ProviderCalls(
            provider=self.provider,
            retry=self.retry,
            pace=self.pace,
            clock=self.clock,
            policy=self.settings.policy,
            correlation_id=correlation_id,
        )

    def _log_end(self, report: DownloadBatchReport) -> None:
        counts = {**asdict(report.tally), "tiles_requested": report.tiles_requested}
        self.logger.info(
            "download for flight %s ended: %s",
            report.flight_id,
            report.outcome.value,
            extra={
                "kind": "c11.download.session.end",
                "flight_id": report.flight_id,
                "outcome": report.outcome.value,
                **counts,
            },
        )
        self.progress(DownloadFinished(report=report))

    def _log_failure(self, report: DownloadBatchReport, error: BaseException) -> None:
        kind = "c11.download.interrupted"
        if isinstance(error, CacheBudgetExceededError):
            kind = "c11.download.budget_exceeded"
        elif isinstance(error, SatelliteProviderError | RateLimitedError):
            kind = "c11.download.provider_failed"
        elif isinstance(error, Exception):
            kind = "c11.download.failed"
        self.logger.error(
            "download for flight %s: %s",
            report.flight_id,
            error if isinstance(error, TileManagerError) else type(error).__name__,
            extra={"kind": kind, "flight_id": report.flight_id},
        )
        self._log_end(report)
