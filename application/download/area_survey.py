"""Survey an area before a download, without changing anything."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from attrs import define, evolve, fields

from tileferry.application.download.provider_calls import ProviderCalls
from tileferry.application.download.settings import DownloadSettings
from tileferry.application.download.survey import (
    PROBE_TILES_MAX,
    DownloadPlan,
    DownloadPlanner,
    DurationEstimate,
    HeadroomPreview,
    ListingSummary,
    estimate_duration,
    limit_to_one_attempt,
    measure_throughput,
    summarize_listing,
)
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.downloads import FetchRunner
from tileferry.application.ports.journal import JournalStore
from tileferry.application.ports.provider import TileProvider
from tileferry.application.ports.retries import RequestPace
from tileferry.application.ports.tiles import AbsentTiles, TileCatalogue
from tileferry.application.retries.manager import RetryManager
from tileferry.domain.tiles import (
    DownloadRequest,
    EvictionResult,
    Flight,
    FreshnessRule,
    TileCoverage,
    TileSummary,
)
from tileferry.domain.tiles.flight import KeptTiles
from tileferry.domain.tiles.selection import TileGates


@define(kw_only=True)
class AreaSurvey:
    """Summarizes a provider's listing of an area, and plans downloads."""

    provider: TileProvider
    retry: RetryManager
    pace: RequestPace
    runner: FetchRunner
    journals: JournalStore
    tile_metadata_store: TileCatalogue
    headroom: Callable[[], HeadroomPreview]
    """Opens the cache; a summary does not need it."""
    settings: DownloadSettings
    freshness: FreshnessRule
    clock: Clock
    absent_tiles: AbsentTiles | None = None
    requests_per_s: float | None = None
    """The provider's request limit; ``None``: unlimited."""

    def list_tiles(self, coverage: TileCoverage) -> list[TileSummary]:
        """Return the tiles that the provider lists for an area."""
        calls = self._build_calls(f"coverage {coverage.bbox}")
        return [tile for page in calls.iter_pages(coverage, self.settings.listing) for tile in page]

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
        self,
        requests: Sequence[DownloadRequest],
        *,
        flight: Flight,
        rate_bytes_s: float | None = None,
        once: bool = False,
    ) -> tuple[list[DownloadPlan], DownloadPlan, DurationEstimate]:
        """Return the plan of each request, of all together, and the estimated duration.

        The tiles of the flight's areas, and of the requests, are not evicted for each other.
        Without ``rate_bytes_s`` a few tiles are fetched to measure the throughput. With ``once``, a
        failed call is not retried: a person waits for the plan, and can request it again.
        """
        if once:
            settings = evolve(self.settings, policy=limit_to_one_attempt(self.settings.policy))
            survey = evolve(self, settings=settings)
            return survey.plan(requests, flight=flight, rate_bytes_s=rate_bytes_s)
        planned = [self._plan(request) for request in requests]
        needed_bytes = sum(plan.eviction.requested_bytes for plan in planned)
        keep = KeptTiles(
            flight=flight,
            source=self.provider.source,
            requested=[request.coverage for request in requests],
            reused=[plan.reused for plan in planned],
        )
        eviction = self.headroom().preview_headroom(needed_bytes, keep=keep)
        whole = combine_plans(planned, eviction)
        return planned, whole, self._estimate(whole, requests[0], rate_bytes_s)

    def _plan(self, request: DownloadRequest) -> DownloadPlan:
        return DownloadPlanner(
            calls=self._build_calls(f"plan {request.flight_id}"),
            journals=self.journals,
            tile_metadata_store=self.tile_metadata_store,
            headroom=self.headroom(),
            settings=self.settings,
            freshness=self.freshness,
            clock=self.clock,
            absent_tiles=self.absent_tiles,
        ).plan(request)

    def _estimate(
        self, plan: DownloadPlan, request: DownloadRequest, rate_bytes_s: float | None
    ) -> DurationEstimate:
        calls = self._build_calls(f"plan {request.flight_id}")
        return estimate_duration(
            plan,
            rate_bytes_s=rate_bytes_s,
            requests_per_s=self.requests_per_s,
            measure=lambda: measure_throughput(calls, plan.sample, self.runner, self.clock),
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


def combine_plans(plans: Sequence[DownloadPlan], eviction: EvictionResult) -> DownloadPlan:
    """Return the sum of plans, whose requests share one reservation."""
    counts = {
        item.name: sum(getattr(plan, item.name) for plan in plans)
        for item in fields(DownloadPlan)
        if item.name not in {"complete", "eviction", "sample", "reused"}
    }
    sample = [tile for plan in plans for tile in plan.sample]
    return DownloadPlan(
        complete=all(plan.complete for plan in plans),
        eviction=eviction,
        sample=tuple(sample[:PROBE_TILES_MAX]),
        **counts,
    )
