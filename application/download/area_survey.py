"""Survey an area before a download, without changing anything."""

from collections.abc import Callable
from datetime import UTC, datetime

from attrs import define

from tileferry.application.download.download_run import DownloadSettings
from tileferry.application.download.provider_calls import ProviderCalls
from tileferry.application.download.survey import (
    DownloadPlan,
    DownloadPlanner,
    DurationEstimate,
    HeadroomPreview,
    ListingSummary,
    estimate_duration,
    measure_throughput,
    summarize_listing,
)
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.downloads import Workers
from tileferry.application.ports.journal import JournalStore
from tileferry.application.ports.provider import TileProvider
from tileferry.application.ports.retries import RequestPace
from tileferry.application.ports.tiles import TileCatalogue
from tileferry.application.retries.manager import RetryManager
from tileferry.domain.tiles import DownloadRequest, FreshnessRule, TileCoverage
from tileferry.domain.tiles.selection import TileGates


@define(kw_only=True)
class AreaSurvey:
    """Summarizes a provider's listing of an area, and plans downloads."""

    provider: TileProvider
    retry: RetryManager
    pace: RequestPace
    workers: Workers
    journals: JournalStore
    tile_metadata_store: TileCatalogue
    headroom: Callable[[], HeadroomPreview]
    """Opens the cache; a summary does not need it."""
    settings: DownloadSettings
    freshness: FreshnessRule
    clock: Clock
    requests_per_s: float | None = None
    """The provider's request limit; ``None``: unlimited."""

    def summarize(self, coverage: TileCoverage) -> dict[int, ListingSummary]:
        """Return the totals of an area's listing by zoom level."""
        calls = self._build_calls(f"coverage {coverage.bbox}")
        gates = TileGates(
            resolution=self.settings.gate,
            freshness=self.freshness,
            now=datetime.fromtimestamp(self.clock.now(), UTC),
        )
        pages = calls.iter_pages(coverage, self.settings.listing)
        return summarize_listing(pages, coverage, gates, self.tile_metadata_store)

    def plan(
        self, request: DownloadRequest, *, rate_bytes_s: float | None = None
    ) -> tuple[DownloadPlan, DurationEstimate]:
        """Return what a download would do, and its estimated duration.

        Without ``rate_bytes_s`` a few tiles are fetched to measure the throughput.
        """
        calls = self._build_calls(f"plan {request.flight_id}")
        plan = DownloadPlanner(
            calls=calls,
            journals=self.journals,
            tile_metadata_store=self.tile_metadata_store,
            headroom=self.headroom(),
            settings=self.settings,
            freshness=self.freshness,
            clock=self.clock,
        ).plan(request)
        return plan, estimate_duration(
            plan,
            rate_bytes_s=rate_bytes_s,
            requests_per_s=self.requests_per_s,
            measure=lambda: measure_throughput(calls, plan.sample, self.workers, self.clock),
        )

    def _build_calls(self, purpose: str) -> ProviderCalls:
        return ProviderCalls(
            provider=self.provider,
            retry=self.retry,
            pace=self.pace,
            clock=self.clock,
            policy=self.settings.policy,
            correlation_id=purpose,
        )
