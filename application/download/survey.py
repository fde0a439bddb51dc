"""Survey and plan a download: listing totals, the tiles to fetch, and the estimated duration."""

from collections import Counter
from collections.abc import Callable, Container, Iterable
from contextlib import closing
from datetime import UTC, datetime
from enum import StrEnum
from itertools import chain
from typing import Protocol, assert_never

from attrs import define, evolve, field, frozen

from tileferry.application.download.listing_selector import LOOKUP_TILES_MAX, ListingSelector
from tileferry.application.download.provider_calls import ProviderCalls
from tileferry.application.download.resume import ResumePoint
from tileferry.application.download.settings import DownloadSettings
from tileferry.application.download.tile_fetcher import TileFetcher
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.downloads import FetchRunner
from tileferry.application.ports.journal import JournalStore
from tileferry.application.ports.provider import FetchedTile
from tileferry.application.ports.tiles import AbsentTiles, TileCatalogue
from tileferry.domain.errors import RateLimitedError, SatelliteProviderError
from tileferry.domain.retry import RetryPolicy
from tileferry.domain.tiles import (
    DownloadRequest,
    EvictionResult,
    FreshnessRule,
    SectorClass,
    TileCoverage,
    TileId,
    TileMetadata,
    TileSet,
    TileSummary,
)
from tileferry.domain.tiles.selection import Disposition, TileGates, TileSelection, is_current

PROBE_TILES_MAX = 16
"""Tiles fetched by a measurement: one or two for each concurrent request."""


@define
class ListingSummary:
    """Running totals of the tiles of one zoom level, or of all."""

    tiles: int = 0
    size_bytes: int = 0
    oldest: datetime | None = None
    newest: datetime | None = None
    finest_m_per_px: float | None = None
    coarsest_m_per_px: float | None = None
    stored: int = 0
    """In the cache already, and at least as new as listed."""
    refused_resolution: int = 0
    stale: Counter[SectorClass] = field(factory=Counter)

    def add(self, tile: TileSummary, stored: TileMetadata | None, gates: TileGates) -> None:
        """Add one tile of a listing, and the tile that the cache has, if any."""
        self.tiles += 1
        self.stored += stored is not None and is_current(stored, tile)
        self.size_bytes += tile.estimated_bytes
        made, resolution = tile.produced_at, tile.resolution_m_per_px
        self.oldest = made if self.oldest is None else min(self.oldest, made)
        self.newest = made if self.newest is None else max(self.newest, made)
        finest, coarsest = self.finest_m_per_px, self.coarsest_m_per_px
        self.finest_m_per_px = resolution if finest is None else min(finest, resolution)
        self.coarsest_m_per_px = resolution if coarsest is None else max(coarsest, resolution)
        self.refused_resolution += not gates.accepts(tile)
        for sector in SectorClass:
            self.stale[sector] += gates.is_stale(tile, sector)


def summarize_listing(
    pages: Iterable[list[TileSummary]],
    coverage: TileCoverage,
    gates: TileGates,
    tile_metadata_store: TileCatalogue,
) -> dict[int, ListingSummary]:
    """Return the totals of a listing by zoom level, without keeping its tiles."""
    found = {zoom: ListingSummary() for zoom in coverage.zoom_levels}
    for page in pages:
        for start in range(0, len(page), LOOKUP_TILES_MAX):
            part = page[start : start + LOOKUP_TILES_MAX]
            stored = tile_metadata_store.find_stored([tile.tile_id for tile in part])
            for tile in part:
                found[tile.tile_id.zoom].add(tile, stored.get(tile.tile_id), gates)
    return found


class HeadroomPreview(Protocol):
    """Previews the reservation of space."""

    def preview_headroom(
        self, estimated_bytes: int, *, keep: Container[TileId] = ()
    ) -> EvictionResult:
        """Return what would be evicted; nothing is changed."""
        ...


@frozen(kw_only=True)
class DownloadPlan:
    """What a download of an area would do now."""

    complete: bool
    """Whether an earlier run completed the request; the provider is not called then."""
    tiles_listed: int = 0
    tiles_stored: int = 0
    """In the cache already; not fetched."""
    tiles_refused_resolution: int = 0
    tiles_refused_freshness: int = 0
    tiles_absent: int = 0
    """Absent at the provider a short while ago; not requested again yet."""
    tiles_stale: int = 0
    """Of those to fetch, too old for the sector: they are downgraded."""
    tiles_to_fetch: int = 0
    bytes_to_fetch: int = 0
    eviction: EvictionResult
    sample: tuple[TileSummary, ...] = ()
    """Some of the tiles to fetch."""
    reused: Container[TileId] = field(default=(), repr=False, eq=False)
    """Stored tiles that are not fetched; they must not be evicted for the others."""


@frozen
class _WholeArea:
    """All tiles of an area."""

    coverage: TileCoverage

    def __contains__(self, tile: object) -> bool:
        return isinstance(tile, TileId) and self.coverage.contains(tile)


@define(kw_only=True)
class DownloadPlanner:
    """Plans what ``AreaDownload`` would do, without changing anything."""

    calls: ProviderCalls
    journals: JournalStore
    tile_metadata_store: TileCatalogue
    headroom: HeadroomPreview
    settings: DownloadSettings
    freshness: FreshnessRule
    clock: Clock
    absent_tiles: AbsentTiles | None = None

    def plan(self, request: DownloadRequest) -> DownloadPlan:
        """Return the plan of a request, reading its listing once."""
        provider = self.calls.provider
        earlier = ResumePoint(
            journals=self.journals,
            name=request.journal_name(provider.key_hash),
            coverage=request.coverage,
            tile_metadata_store=self.tile_metadata_store,
            source=provider.source,
        )
        with closing(self.journals.open(earlier.name)) as journal:
            if journal.complete and earlier.is_confirmed_by_cache(journal):
                return DownloadPlan(
                    complete=True,
                    tiles_stored=journal.count,
                    eviction=self.headroom.preview_headroom(0),
                    reused=_WholeArea(request.coverage),
                )
            done = earlier.find_stored(journal)
        return self._add_up(request, done)

    def _add_up(self, request: DownloadRequest, done: TileSet) -> DownloadPlan:
        gates = TileGates(
            resolution=self.settings.gate,
            freshness=self.freshness,
            now=datetime.fromtimestamp(self.clock.now(), UTC),
        )
        selector = ListingSelector(
            rule=TileSelection(
                gates=gates, sector=request.sector_class, absent_ttl=self.settings.absent_ttl
            ),
            tile_metadata_store=self.tile_metadata_store,
            done=done,
            absent_tiles=self.absent_tiles,
        )
        counts: Counter[str] = Counter()
        sample: list[TileSummary] = []
        for page in self.calls.iter_pages(request.coverage, self.settings.listing):
            for tile in selector.iter_selected(page):
                counts["tiles_listed"] += 1
                match tile.disposition:
                    case Disposition.REUSE | Disposition.REUSE_DOWNGRADED:
                        counts["tiles_stored"] += 1
                        done.add(tile.listed.tile_id)
                    case Disposition.REFUSE_RESOLUTION:
                        counts["tiles_refused_resolution"] += 1
                    case Disposition.REFUSE_FRESHNESS:
                        counts["tiles_refused_freshness"] += 1
                    case Disposition.SKIP_ABSENT:
                        counts["tiles_absent"] += 1
                    case Disposition.FETCH | Disposition.REVALIDATE:
                        counts["tiles_stale"] += gates.is_stale(tile.listed, request.sector_class)
                        counts["tiles_to_fetch"] += 1
                        counts["bytes_to_fetch"] += tile.listed.estimated_bytes
                        if len(sample) < PROBE_TILES_MAX:
                            sample.append(tile.listed)
                    case _:
                        assert_never(tile.disposition)
        return DownloadPlan(
            complete=False,
            eviction=self.headroom.preview_headroom(counts["bytes_to_fetch"], keep=done),
            sample=tuple(sample),
            reused=done,
            **counts,
        )


@frozen(kw_only=True)
class Throughput:
    """The measured speed of some fetches."""

    tiles: int
    size_bytes: int
    seconds: float

    def estimate_seconds(self, tiles: int) -> float:
        """Return how long this number of tiles would take."""
        return self.seconds * tiles / self.tiles


class EstimateBasis(StrEnum):
    """What an estimate is based on."""

    NOTHING_TO_FETCH = "nothing_to_fetch"
    GIVEN_RATE = "given_rate"
    ALLOWED_PACE = "allowed_pace"
    """The server's request limit, which is slower than the link."""
    DOES_NOT_FIT = "does_not_fit"
    MEASURED = "measured"
    NOT_MEASURED = "not_measured"


@frozen(kw_only=True)
class DurationEstimate:
    """The estimated duration of a download, and its basis."""

    seconds: float | None
    basis: EstimateBasis
    rate_bytes_s: float = 0.0
    """Given or measured."""
    requests_per_s: float = 0.0
    """The server's request limit."""
    tiles_measured: int = 0
    problem: Exception | None = None
    """Why nothing could be measured."""


def estimate_duration(
    plan: DownloadPlan,
    *,
    rate_bytes_s: float | None,
    requests_per_s: float | None,
    measure: Callable[[], Throughput | Exception | None],
) -> DurationEstimate:
    """Estimate from the given rate, or else from a measurement if it is usable.

    ``requests_per_s`` is the server's request limit; a measurement respects it too.
    """
    if not plan.tiles_to_fetch:
        return DurationEstimate(seconds=0.0, basis=EstimateBasis.NOTHING_TO_FETCH)
    if rate_bytes_s is not None:
        by_bytes_s = plan.bytes_to_fetch / rate_bytes_s
        if requests_per_s is not None and plan.tiles_to_fetch / requests_per_s > by_bytes_s:
            return DurationEstimate(
                seconds=plan.tiles_to_fetch / requests_per_s,
                basis=EstimateBasis.ALLOWED_PACE,
                requests_per_s=requests_per_s,
            )
        return DurationEstimate(
            seconds=by_bytes_s, basis=EstimateBasis.GIVEN_RATE, rate_bytes_s=rate_bytes_s
        )
    if plan.eviction.insufficient:
        return DurationEstimate(seconds=None, basis=EstimateBasis.DOES_NOT_FIT)
    measured = measure()
    if isinstance(measured, Throughput):
        return DurationEstimate(
            seconds=measured.estimate_seconds(plan.tiles_to_fetch),
            basis=EstimateBasis.MEASURED,
            rate_bytes_s=measured.size_bytes / measured.seconds,
            tiles_measured=measured.tiles,
        )
    return DurationEstimate(seconds=None, basis=EstimateBasis.NOT_MEASURED, problem=measured)


def limit_to_one_attempt(policy: RetryPolicy) -> RetryPolicy:
    """Return a policy that retries nothing, and waits for nothing."""
    return evolve(policy, max_attempts=1, max_rate_limited=0, max_retry_after_s=0.0)


def measure_throughput(
    calls: ProviderCalls, sample: Iterable[TileSummary], runner: FetchRunner, clock: Clock
) -> Throughput | Exception | None:
    """Fetch some tiles, discard them, and return the throughput.

    Nothing is retried, so that a failing provider does not delay the estimate. If every fetch
    failed, one of the errors is returned; ``None`` if there were no tiles to fetch.
    """
    once = evolve(calls, policy=limit_to_one_attempt(calls.policy))
    fetcher = TileFetcher(once, ((tile, None) for tile in sample))
    started_s = clock.monotonic()
    sizes: list[int] = []
    problem: Exception | None = None
    with closing(runner.run(fetcher, idle_s=1.0)) as batches:
        for result in chain.from_iterable(batch or () for batch in batches):
            tile = result.tile
            if isinstance(tile, SatelliteProviderError | RateLimitedError):
                problem = tile
            elif isinstance(tile, Exception):
                raise tile
            else:
                sizes.append(len(tile.content) if isinstance(tile, FetchedTile) else 0)
    if not sizes:
        return problem
    seconds = clock.monotonic() - started_s
    return Throughput(tiles=len(sizes), size_bytes=sum(sizes), seconds=seconds)
