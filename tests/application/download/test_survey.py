"""Looking before downloading, over a provider that is a function."""

from collections.abc import Container, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.download_env import DERKACHI, NOW_S, ZOOM, DownloadEnv, open_memory_download_env
from support.memory_download_env import MemoryDownloadEnv
from support.scripted_provider import ScriptedProvider, tile_content, tile_path

from tileferry.adapters.filesystem import FileJournalStore
from tileferry.adapters.memory import (
    InlineFetchRunner,
    ManualClock,
    MemoryAbsentTiles,
    MemoryTileMetadataStore,
)
from tileferry.adapters.system import ThreadFetchRunner
from tileferry.application import DownloadSettings
from tileferry.application.download.provider_calls import ProviderCalls
from tileferry.application.download.survey import (
    PROBE_TILES_MAX,
    DownloadPlan,
    DownloadPlanner,
    DurationEstimate,
    EstimateBasis,
    Throughput,
    estimate_duration,
    measure_throughput,
    summarize_listing,
)
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.tiles import (
    BlobRef,
    EvictionResult,
    FreshnessRule,
    NewTile,
    ResolutionGate,
    SectorClass,
    TileCoverage,
    TileId,
    TileSummary,
)
from tileferry.domain.tiles.selection import TileGates

NOW = datetime.fromtimestamp(NOW_S, UTC)
GATES = TileGates(resolution=ResolutionGate(), freshness=FreshnessRule(), now=NOW)


class FakeBudget:
    """Has room for what it is told."""

    def __init__(self, available_bytes: int = 10**9) -> None:
        self.available_bytes = available_bytes

    def preview_headroom(
        self,
        estimated_bytes: int,
        *,
        keep: Container[TileId] = (),  # noqa: ARG002  # all is kept
    ) -> EvictionResult:
        return EvictionResult(requested_bytes=estimated_bytes, available_bytes=self.available_bytes)


@contextmanager
def make_site(root: Path, count: int) -> Iterator[DownloadEnv]:
    with open_memory_download_env(root, ScriptedProvider.for_area(DERKACHI, ZOOM, count)) as site:
        yield site


def make_calls(site: DownloadEnv) -> ProviderCalls:
    downloader = site.create_downloader()
    return ProviderCalls(
        provider=downloader.provider,
        retry=downloader.retry,
        pace=downloader.pace,
        clock=site.clock,
        policy=DownloadSettings().policy,
        correlation_id="look",
    )


def make_plan(
    site: DownloadEnv, absent: MemoryAbsentTiles | None = None, **request: Any
) -> DownloadPlan:
    return DownloadPlanner(
        calls=make_calls(site),
        journals=FileJournalStore(root=site.root, logger=site.logger),
        tile_metadata_store=site.metadata,
        headroom=FakeBudget(),
        settings=DownloadSettings(),
        freshness=FreshnessRule(),
        clock=site.clock,
        absent_tiles=absent,
    ).plan(site.create_request(**request))


def make_listing_line(
    x: int, zoom: int = ZOOM, *, age_days: float = 1, resolution: float = 0.6
) -> TileSummary:
    return TileSummary(
        tile_id=TileId(source="s", zoom=zoom, x=x, y=1),
        produced_at=NOW - timedelta(days=age_days),
        resolution_m_per_px=resolution,
        estimated_bytes=100,
    )


def store_tile(cache: MemoryTileMetadataStore, line: TileSummary, *, age_days: float = 1) -> None:
    cache.insert_metadata(
        NewTile(
            tile_id=line.tile_id,
            flight_id="F9",
            produced_at=NOW - timedelta(days=age_days),
            resolution_m_per_px=0.6,
            sector_class=SectorClass.STABLE_REAR,
            blob=BlobRef(location=(1, line.tile_id.x), length=1, sha256="ab" * 32),
        )
    )
    cache.flush()


def test_survey_totals_listing_by_zoom() -> None:
    pages = [
        [make_listing_line(1), make_listing_line(2, age_days=200)],
        [make_listing_line(3, resolution=0.3), make_listing_line(4, zoom=15)],
        [],
    ]
    coverage = TileCoverage(bbox=DERKACHI, zoom_levels=[14, 15, 16])
    cache = MemoryTileMetadataStore(clock=ManualClock(NOW_S))
    store_tile(cache, pages[0][0])
    store_tile(cache, pages[0][1], age_days=300)
    found = summarize_listing(iter(pages), coverage, GATES, cache)
    assert {zoom: (listed.tiles, listed.size_bytes) for zoom, listed in found.items()} == {
        14: (3, 300),
        15: (1, 100),
        16: (0, 0),
    }
    listed = found[14]
    assert (listed.oldest, listed.newest) == (NOW - timedelta(days=200), NOW - timedelta(days=1))
    assert (listed.finest_m_per_px, listed.coarsest_m_per_px) == (0.3, 0.6)
    assert listed.refused_resolution == 1
    assert listed.stored == 1, "the other one is older than listed"
    assert listed.stale == {SectorClass.ACTIVE_CONFLICT: 1, SectorClass.STABLE_REAR: 0}
    assert found[16].oldest is None


def test_plan_matches_later_download(tmp_path: Path) -> None:
    with make_site(tmp_path, 30) as site:
        tiles = site.provider.tiles
        site.provider.lines[tiles[0]] = {"resolution_m_per_px": 0.3}
        site.provider.lines[tiles[1]] = {"produced_at": "2020-01-01T00:00:00Z"}
        plan = make_plan(site)
        assert (plan.complete, plan.tiles_listed, plan.tiles_stored) == (False, 30, 0)
        assert (plan.tiles_refused_resolution, plan.tiles_stale, plan.tiles_to_fetch) == (1, 1, 29)
        assert plan.tiles_refused_freshness == 0, "a stale tile is downgraded in this sector"
        assert plan.bytes_to_fetch == sum(len(tile_content(tile)) for tile in tiles[1:])
        assert len(plan.sample) == PROBE_TILES_MAX
        report = site.create_downloader().download_tiles_for_area(site.create_request())
        assert site.budget.asked == [plan.eviction.requested_bytes]
        assert report.tiles_downloaded == plan.tiles_to_fetch
        again = make_plan(site)
        assert (again.complete, again.tiles_stored, again.tiles_to_fetch) == (False, 29, 0)
        site.provider.lines.clear()
        site.create_downloader().download_tiles_for_area(site.create_request())
        site.provider.requests.clear()
        complete = make_plan(site)
        assert (complete.complete, complete.tiles_stored) == (True, 30)
        assert site.provider.requests == []


def test_plan_counts_refused_tiles_apart(tmp_path: Path) -> None:
    with make_site(tmp_path, 5) as site:
        site.provider.lines[site.provider.tiles[1]] = {"produced_at": "2020-01-01T00:00:00Z"}
        plan = make_plan(site, sector_class=SectorClass.ACTIVE_CONFLICT)
    assert (plan.tiles_refused_freshness, plan.tiles_stale, plan.tiles_to_fetch) == (1, 0, 4)


def test_plan_counts_tiles_of_other_flights_as_stored(tmp_path: Path) -> None:
    with make_site(tmp_path, 10) as site:
        site.create_downloader().download_tiles_for_area(site.create_request())
        plan = make_plan(site, flight_id="F2", sector_class=SectorClass.ACTIVE_CONFLICT)
    assert (plan.complete, plan.tiles_stored, plan.tiles_to_fetch) == (False, 10, 0)
    assert plan.eviction.requested_bytes == 0


def test_plan_counts_absent_tiles_apart(tmp_path: Path) -> None:
    absent = MemoryAbsentTiles()
    with make_site(tmp_path, 5) as site:
        absent.record_absent(site.provider.tiles[:2], at=NOW - timedelta(days=1))
        plan = make_plan(site, absent)
    assert (plan.tiles_absent, plan.tiles_to_fetch) == (2, 3)


def test_plan_excludes_stored_tiles(tmp_path: Path) -> None:
    with make_site(tmp_path, 10) as site:
        missing = site.provider.tiles[4]
        site.provider.once[tile_path(missing)] = [lambda _request: httpx.Response(404)]
        site.create_downloader().download_tiles_for_area(site.create_request())
        plan = make_plan(site)
    assert (plan.tiles_stored, plan.tiles_to_fetch) == (9, 1)
    assert [tile.tile_id for tile in plan.sample] == [missing]


def test_probe_measures_fetched_tiles(tmp_path: Path) -> None:
    with make_site(tmp_path, 10) as site:
        plan = make_plan(site)
        site.provider.always[tile_path(site.provider.tiles[0])] = lambda _request: httpx.Response(
            404
        )
        measured = measure_throughput(
            make_calls(site), plan.sample, ThreadFetchRunner(), site.clock
        )
    assert isinstance(measured, Throughput)
    assert measured.tiles == 9
    assert measured.size_bytes == sum(len(tile_content(tile)) for tile in site.provider.tiles[1:])
    assert Throughput(tiles=9, size_bytes=1, seconds=3.0).estimate_seconds(90) == 30.0


def test_probe_does_not_wait_for_retry_after(tmp_path: Path) -> None:
    with make_site(tmp_path, 10) as site:
        plan = make_plan(site)
        for tile in site.provider.tiles:
            site.provider.always[tile_path(tile)] = lambda _request: httpx.Response(
                503, headers={"retry-after": "100"}
            )
        problem = measure_throughput(make_calls(site), plan.sample, ThreadFetchRunner(), site.clock)
        assert isinstance(problem, SatelliteProviderError)
        assert problem.status == 503
        assert sum(site.clock.slept) < 10  # the pace of the source
        assert len(site.provider.tile_gets) == 10
        assert measure_throughput(make_calls(site), [], ThreadFetchRunner(), site.clock) is None


def test_defect_in_a_probe_is_raised() -> None:
    area = MemoryDownloadEnv.with_tiles(1)
    (tile,) = area.provider.tiles
    area.provider.faults[tile] = [ZeroDivisionError("a defect")]
    calls = area.create_download().create_calls("look")
    with pytest.raises(ZeroDivisionError):
        measure_throughput(
            calls, [area.provider.create_summary(tile)], InlineFetchRunner(), area.bench.clock
        )


def test_probe_does_not_count_idle_ticks() -> None:
    area = MemoryDownloadEnv.with_tiles(3)
    calls = area.create_download().create_calls("look")
    sample = [area.provider.create_summary(tile) for tile in area.provider.tiles]
    measured = measure_throughput(calls, sample, InlineFetchRunner(), area.bench.clock)
    assert isinstance(measured, Throughput)
    assert measured.tiles == 3


def fetch_plan(tiles: int, size_bytes: int, *, available_bytes: int = 10**9) -> DownloadPlan:
    return DownloadPlan(
        complete=False,
        tiles_to_fetch=tiles,
        bytes_to_fetch=size_bytes,
        eviction=FakeBudget(available_bytes).preview_headroom(size_bytes),
    )


def fail_if_measured() -> None:
    pytest.fail("nothing is measured for that")


def test_estimate_is_zero_when_nothing_to_fetch() -> None:
    found = estimate_duration(
        fetch_plan(0, 0), rate_bytes_s=5.0, requests_per_s=None, measure=fail_if_measured
    )
    assert (found.seconds, found.basis) == (0.0, EstimateBasis.NOTHING_TO_FETCH)


@pytest.mark.parametrize(
    ("requests_per_s", "seconds", "basis"),
    [
        (None, 20.0, EstimateBasis.GIVEN_RATE),
        (5.0, 20.0, EstimateBasis.GIVEN_RATE),
        (2.0, 50.0, EstimateBasis.ALLOWED_PACE),
    ],
)
def test_given_rate_is_limited_by_allowed_request_rate(
    requests_per_s: float | None, seconds: float, basis: EstimateBasis
) -> None:
    plan = fetch_plan(100, 2_000, available_bytes=0)  # what does not fit can be reckoned with, too
    found = estimate_duration(
        plan, rate_bytes_s=100.0, requests_per_s=requests_per_s, measure=fail_if_measured
    )
    assert (found.seconds, found.basis) == (seconds, basis)


def test_plan_exceeding_budget_is_not_measured() -> None:
    plan = fetch_plan(100, 2_000, available_bytes=0)
    found = estimate_duration(
        plan, rate_bytes_s=None, requests_per_s=None, measure=fail_if_measured
    )
    assert (found.seconds, found.basis) == (None, EstimateBasis.DOES_NOT_FIT)


def test_estimate_uses_measurement_or_reports_its_error() -> None:
    def reckoned(measured: Throughput | Exception) -> DurationEstimate:
        return estimate_duration(
            fetch_plan(100, 2_000), rate_bytes_s=None, requests_per_s=2.0, measure=lambda: measured
        )

    found = reckoned(Throughput(tiles=4, size_bytes=80, seconds=2.0))
    assert (found.seconds, found.basis) == (50.0, EstimateBasis.MEASURED)
    assert (found.rate_bytes_s, found.tiles_measured) == (40.0, 4)
    gone = OSError("gone")
    unknown = reckoned(gone)
    assert (unknown.seconds, unknown.basis) == (None, EstimateBasis.NOT_MEASURED)
    assert unknown.problem is gone
