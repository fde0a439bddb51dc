"""Download an area: list, reserve space, fetch, check, store; a re-run resumes after a crash."""

from collections.abc import Sequence
from contextlib import closing
from logging import Logger

from attrs import asdict, define, field

from tileferry.application.download.download_run import DownloadRun, DownloadSettings
from tileferry.application.download.provider_calls import ProviderCalls
from tileferry.application.download.resume import ResumePoint
from tileferry.application.ports.cache import CacheBudgetEnforcer, CacheLock
from tileferry.application.ports.clock import Background, Clock
from tileferry.application.ports.downloads import SpoolStore, Workers
from tileferry.application.ports.journal import JournalStore
from tileferry.application.ports.progress import (
    NULL_LISTENER,
    DownloadFinished,
    ProgressListener,
)
from tileferry.application.ports.provider import TileProvider
from tileferry.application.ports.retries import RequestPace
from tileferry.application.ports.tiles import TileCatalogue, TileStore
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
    TileCoverage,
    TileSummary,
)


@define(kw_only=True)
class AreaDownload:
    """The use case. Requires the cache's lock; its write order is safe against crashes."""

    provider: TileProvider
    tile_store: TileStore
    tile_metadata_store: TileCatalogue
    budget_enforcer: CacheBudgetEnforcer
    journals: JournalStore
    spools: SpoolStore
    workers: Workers
    lock: CacheLock
    retry: RetryManager
    pace: RequestPace
    clock: Clock
    logger: Logger
    settings: DownloadSettings = field(factory=DownloadSettings)
    background: Background | None = None
    progress: ProgressListener = NULL_LISTENER
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
        request_hash = request.request_hash(self.provider.key_hash)
        journal, done = self._find_resume_point(request).resume(self.logger)
        with closing(journal):
            if journal.complete:
                report = DownloadBatchReport.for_no_op(
                    flight_id=request.flight_id,
                    request_hash=request_hash,
                    tiles_journaled=journal.count,
                )
                self._log_end(report)
                return report
            run = DownloadRun(self, request, request_hash, journal, done)
            try:
                report = run.execute()
            except BaseException as error:
                self._log_failure(run.build_report(aborted=True), error)
                raise
            # An empty listing may have tiles tomorrow, so it is not recorded as complete.
            finished = report.outcome is DownloadOutcome.SUCCESS and report.tiles_requested > 0
            if finished and self.marks_complete:
                journal.finish()
            self._log_end(report)
            return report

    def start_over(self, request: DownloadRequest) -> None:
        """Discard the record of a completed request, so that everything is fetched again."""
        self.lock.check_held()
        self.journals.discard(request.journal_name(self.provider.key_hash))

    def check_resumable(self, request: DownloadRequest) -> None:
        """Raise unless an earlier run of the same request stored some of its tiles."""
        name = request.journal_name(self.provider.key_hash)
        with closing(self.journals.open(name)) as journal:
            if not (journal.complete or journal.count):
                raise NothingToResumeError(flight_id=request.flight_id)

    def _find_resume_point(self, request: DownloadRequest) -> ResumePoint:
        return ResumePoint(
            journals=self.journals,
            name=request.journal_name(self.provider.key_hash),
            coverage=request.coverage,
            tile_metadata_store=self.tile_metadata_store,
            source=self.provider.source,
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
