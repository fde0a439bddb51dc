"""A persistent download: passes over an area until it is complete, or until nothing improves.

Each pass is one call of a downloader, which journals what it stores; the next pass fetches only the
rest. Tiles that failed in one pass are thereby set aside for the next one.
"""

from collections.abc import Callable, Sequence

from attrs import define, evolve, field

from tileferry.application.ports.clock import Clock
from tileferry.application.ports.downloads import TileDownloader
from tileferry.application.ports.progress import (
    NULL_LISTENER,
    DownloadFinished,
    DownloadGivenUp,
    PassScheduled,
    ProgressEvent,
    ProgressListener,
)
from tileferry.application.retries.driver import RetryState
from tileferry.application.retries.managed_call import begin_call
from tileferry.application.retries.manager import RetryManager
from tileferry.domain.errors import (
    RateLimitedError,
    RetryError,
    SatelliteProviderError,
    TileManagerError,
)
from tileferry.domain.retry import (
    DOWNLOAD_SESSION_POLICY,
    ErrorClass,
    RateLimited,
    Retryable,
    RetryAt,
    RetryCategory,
    RetryPolicy,
)
from tileferry.domain.tiles import (
    BBox,
    DownloadBatchReport,
    DownloadOutcome,
    DownloadRequest,
    TileSummary,
    describe_fault,
    may_improve,
)


class TilesLeftError(TileManagerError):
    """A pass ended without an error, but some of its tiles failed and may be retried."""


@define(kw_only=True)
class PersistentTileDownloader:
    """Calls a downloader again until the area is complete, or nothing improved for a while.

    Errors that cannot improve (a rejected key, a full cache) are raised at once. When nothing
    improved until the deadline of ``policy``, the last pass counts: its error is raised or its
    report returned. Every wait is decided and audited like any other retry.
    """

    create_downloader: Callable[[ProgressListener], TileDownloader]
    """Returns the downloader of the passes, which sends its events to the listener."""
    retry: RetryManager
    clock: Clock
    policy: RetryPolicy = DOWNLOAD_SESSION_POLICY
    ends_on_error: bool = False
    """Whether the error of a pass ends the session, as a limit on failed tiles asks for."""
    progress: ProgressListener = NULL_LISTENER
    """Receives the events of all passes, ``PassScheduled`` before each wait, and at the end one
    ``DownloadFinished`` with the totals.
    """

    def enumerate_remote_coverage(
        self, bbox: BBox, zoom_levels: Sequence[int]
    ) -> list[TileSummary]:
        """Return the tiles that the provider lists for an area, without fetching them."""
        return self.create_downloader(self.progress).enumerate_remote_coverage(bbox, zoom_levels)

    def download_tiles_for_area(self, request: DownloadRequest) -> DownloadBatchReport:
        """Download the tiles of the area that the cache does not have, and report the outcome."""
        passes = _Passes(self, request, self.clock.monotonic())
        passes.downloader = self.create_downloader(passes.forward)
        try:
            while not passes.run_one():
                passes.wait()
        finally:
            if passes.total is not None:
                self.progress(DownloadFinished(report=passes.total))
        return passes.finish()


@define
class _Passes:
    """The passes of one download so far."""

    deps: PersistentTileDownloader
    request: DownloadRequest
    improved_s: float
    """Monotonic time of the last improvement, or of the start."""
    downloader: TileDownloader = field(init=False)
    count: int = field(default=0, init=False)
    total: DownloadBatchReport | None = field(default=None, init=False)
    """The report of the last pass, with the traffic of all passes."""
    error: Exception | None = field(default=None, init=False)
    """The error of the last pass."""
    _series: RetryState | None = field(default=None, init=False)
    """The passes since the last improvement."""

    def forward(self, event: ProgressEvent, /) -> None:
        """Forward an event of a pass; keep its report for the totals."""
        if not isinstance(event, DownloadFinished):
            self.deps.progress(event)
            return
        report = event.report
        if report.bytes_downloaded or report.next_retry_at_s is None:
            self.improved_s = self.deps.clock.monotonic()
            if self._series is not None and report.outcome is not DownloadOutcome.FAILURE:
                self._series.notify_success()
            self._series = None
        self.total = report.add_pass(self.total)

    def run_one(self) -> bool:
        """Make a pass; return whether it was the last one."""
        self.count += 1
        self.error = None
        try:
            self.downloader.download_tiles_for_area(self.request)
        except Exception as error:  # noqa: BLE001  # raised by ``finish``
            self.error = error
            return self.deps.ends_on_error or not may_improve(error) or self._decide(error)
        assert self.total is not None  # noqa: S101  # a pass that returns has sent its report
        if self.total.next_retry_at_s is None:
            return True
        return self._decide(TilesLeftError(self._describe_reason()))

    def wait(self) -> None:
        """Announce the next pass, and wait for it."""
        assert self._series is not None  # noqa: S101  # a decision led here
        attempt = self._series.loop.history[-1]
        assert isinstance(attempt.decision, RetryAt)  # noqa: S101  # as above
        delay_s = attempt.decision.delay_s
        self.deps.progress(
            PassScheduled(
                number=self.count + 1,
                reason=self._describe_reason(),
                rule=attempt.decision.reason,
                tiles_left=None if self.total is None else self.total.tiles_left,
                delay_s=delay_s,
                gives_up_in_s=max(0.0, (self.deps.policy.deadline_s or 0.0) - self._idle_s),
            )
        )
        self.deps.clock.sleep(delay_s)

    def finish(self) -> DownloadBatchReport:
        """Return the report, or raise the error of the last pass."""
        if self.error is not None:
            raise self.error
        assert self.total is not None  # noqa: S101  # a pass without an error has a report
        return self.total

    def _decide(self, error: Exception) -> bool:
        """Record a pass that left tiles; return whether to give up."""
        if self._series is None:
            self._series = self._begin_series()
        self._series.record_failure(error)()
        try:
            self._series.get_delay(error)
        except RetryError:
            self.deps.progress(DownloadGivenUp(idle_s=self._idle_s))
            return True
        return False

    def _begin_series(self) -> RetryState:
        # The passes spend no tokens and send events of their own; the calls within them do both.
        manager = evolve(self.deps.retry, tokens=None, progress=NULL_LISTENER, telemetry=None)
        correlation_id = f"{self.request.flight_id}/session"
        return begin_call(
            self.improved_s, manager, RetryCategory.API_REQUEST,
            f"download for flight {self.request.flight_id}", self.deps.policy, None,
            None, correlation_id, None, None, _classify_pass,
        )  # fmt: skip

    def _describe_reason(self) -> str:
        """Return why tiles are left, in few words."""
        if isinstance(self.error, SatelliteProviderError | RateLimitedError):
            return describe_fault(self.error)
        groups = () if self.total is None else self.total.failures
        largest = max(groups, key=lambda group: group.tiles, default=None)
        return "tiles failed" if largest is None else largest.reason

    @property
    def _idle_s(self) -> float:
        return max(0.0, self.deps.clock.monotonic() - self.improved_s)


def _classify_pass(error: BaseException) -> ErrorClass:
    if isinstance(error, RateLimitedError) and error.retry_after_s is not None:
        return RateLimited(retry_after_s=error.retry_after_s)
    return Retryable()
