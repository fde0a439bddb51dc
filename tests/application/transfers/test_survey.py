"""Looking before downloading, over a provider that is a function."""

from collections.abc import Container, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from support.download_site import DERKACHI, NOW_S, ZOOM, DownloadSite, memory_site
from support.memory_area import InTurn, MemoryArea
from support.scripted_provider import ScriptedProvider, path_of, picture_of

from tileferry.adapters.filesystem import FileJournalStore
from tileferry.adapters.system import ThreadWorkers
from tileferry.application import DownloadSettings
from tileferry.application.transfers.provider_calls import ProviderCalls
from tileferry.application.transfers.survey import (
    PROBE_TILES_MAX,
    Basis,
    DownloadPlan,
    Estimate,
    Gates,
    Measured,
    Planning,
    estimate,
    probe,
    survey,
)
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.tiles import (
    EvictionResult,
    FreshnessRule,
    ResolutionGate,
    SectorClass,
    TileCoverage,
    TileId,
    TileSummary,
)

NOW = datetime.fromtimestamp(NOW_S, UTC)
GATES = Gates(resolution=ResolutionGate(), freshness=FreshnessRule(), now=NOW)


class Preview:
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
def site_of(root: Path, count: int) -> Iterator[DownloadSite]:
    with memory_site(root, ScriptedProvider.of_area(DERKACHI, ZOOM, count)) as site:
        yield site


def calls_of(site: DownloadSite) -> ProviderCalls:
    downloader = site.downloader()
    return ProviderCalls(
        provider=downloader.provider,
        retry=downloader.retry,
        clock=site.clock,
        policy=DownloadSettings().policy,
        correlation_id="look",
    )


def planned(site: DownloadSite) -> DownloadPlan:
    return Planning(
        calls=calls_of(site),
        journals=FileJournalStore(root=site.root, logger=site.logger),
        tile_metadata_store=site.metadata,
        headroom=Preview(),
        settings=DownloadSettings(),
        freshness=FreshnessRule(),
        clock=site.clock,
    ).plan(site.request())


def line(x: int, zoom: int = ZOOM, *, age_days: float = 1, resolution: float = 0.6) -> TileSummary:
    return TileSummary(
        tile_id=TileId(source="s", zoom=zoom, x=x, y=1),
        produced_at=NOW - timedelta(days=age_days),
        resolution_m_per_px=resolution,
        estimated_bytes=100,
    )


def test_a_survey_adds_up_by_zoom_and_keeps_nothing() -> None:
    pages = [[line(1), line(2, age_days=200)], [line(3, resolution=0.3), line(4, zoom=15)], []]
    coverage = TileCoverage(bbox=DERKACHI, zoom_levels=[14, 15, 16])
    found = survey(iter(pages), coverage, GATES)
    assert {zoom: (listed.tiles, listed.size_bytes) for zoom, listed in found.items()} == {
        14: (3, 300),
        15: (1, 100),
        16: (0, 0),
    }
    listed = found[14]
    assert (listed.oldest, listed.newest) == (NOW - timedelta(days=200), NOW - timedelta(days=1))
    assert (listed.finest_m_per_px, listed.coarsest_m_per_px) == (0.3, 0.6)
    assert listed.refused_resolution == 1
    assert listed.stale == {SectorClass.ACTIVE_CONFLICT: 1, SectorClass.STABLE_REAR: 0}
    assert found[16].oldest is None


def test_a_plan_counts_as_the_download_then_does(tmp_path: Path) -> None:
    with site_of(tmp_path, 30) as site:
        tiles = site.provider.tiles
        site.provider.lines[tiles[0]] = {"resolution_m_per_px": 0.3}
        site.provider.lines[tiles[1]] = {"produced_at": "2020-01-01T00:00:00Z"}
        plan = planned(site)
        assert (plan.complete, plan.tiles_listed, plan.tiles_stored) == (False, 30, 0)
        assert (plan.tiles_refused_resolution, plan.tiles_stale, plan.tiles_to_fetch) == (1, 1, 29)
        assert plan.bytes_to_fetch == sum(len(picture_of(tile)) for tile in tiles[1:])
        assert len(plan.sample) == PROBE_TILES_MAX
        report = site.downloader().download_tiles_for_area(site.request())
        assert site.budget.asked == [plan.eviction.requested_bytes]
        assert report.tiles_downloaded == plan.tiles_to_fetch
        site.provider.requests.clear()
        again = planned(site)
        assert (again.complete, again.tiles_stored) == (True, 29)
        assert site.provider.requests == []


def test_a_plan_leaves_out_what_is_stored(tmp_path: Path) -> None:
    with site_of(tmp_path, 10) as site:
        missing = site.provider.tiles[4]
        site.provider.once[path_of(missing)] = [lambda _request: httpx.Response(404)]
        site.downloader().download_tiles_for_area(site.request())
        plan = planned(site)
    assert (plan.tiles_stored, plan.tiles_to_fetch) == (9, 1)
    assert [tile.tile_id for tile in plan.sample] == [missing]


def test_a_probe_measures_what_came(tmp_path: Path) -> None:
    with site_of(tmp_path, 10) as site:
        plan = planned(site)
        site.provider.always[path_of(site.provider.tiles[0])] = lambda _request: httpx.Response(404)
        measured = probe(calls_of(site), plan.sample, ThreadWorkers(), site.clock)
    assert isinstance(measured, Measured)
    assert measured.tiles == 9
    assert measured.size_bytes == sum(len(picture_of(tile)) for tile in site.provider.tiles[1:])
    assert Measured(tiles=9, size_bytes=1, seconds=3.0).seconds_for(90) == 30.0


def test_a_probe_waits_for_nobody(tmp_path: Path) -> None:
    with site_of(tmp_path, 10) as site:
        plan = planned(site)
        for tile in site.provider.tiles:
            site.provider.always[path_of(tile)] = lambda _request: httpx.Response(
                503, headers={"retry-after": "100"}
            )
        problem = probe(calls_of(site), plan.sample, ThreadWorkers(), site.clock)
        assert isinstance(problem, SatelliteProviderError)
        assert problem.status == 503
        assert site.clock.slept == []
        assert len(site.provider.tile_gets) == 10
        assert probe(calls_of(site), [], ThreadWorkers(), site.clock) is None


def test_a_probe_counts_no_idle_moment_as_a_tile() -> None:
    area = MemoryArea.of(3)
    calls = area.download().calls("look")
    sample = [area.provider.line(tile) for tile in area.provider.tiles]
    measured = probe(calls, sample, InTurn(idles=True), area.bench.clock)
    assert isinstance(measured, Measured)
    assert measured.tiles == 3


def plan_of(tiles: int, size_bytes: int, *, available_bytes: int = 10**9) -> DownloadPlan:
    return DownloadPlan(
        complete=False,
        tiles_to_fetch=tiles,
        bytes_to_fetch=size_bytes,
        eviction=Preview(available_bytes).preview_headroom(size_bytes),
    )


def unmeasured() -> None:
    pytest.fail("nothing is measured for that")


def test_nothing_to_fetch_takes_no_time() -> None:
    found = estimate(plan_of(0, 0), rate_bytes_s=5.0, requests_per_s=None, measure=unmeasured)
    assert (found.seconds, found.basis) == (0.0, Basis.NOTHING_TO_FETCH)


@pytest.mark.parametrize(
    ("requests_per_s", "seconds", "basis"),
    [
        (None, 20.0, Basis.GIVEN_RATE),
        (5.0, 20.0, Basis.GIVEN_RATE),
        (2.0, 50.0, Basis.ALLOWED_PACE),
    ],
)
def test_a_given_rate_counts_unless_the_server_allows_less(
    requests_per_s: float | None, seconds: float, basis: Basis
) -> None:
    plan = plan_of(100, 2_000, available_bytes=0)  # what does not fit can be reckoned with, too
    found = estimate(plan, rate_bytes_s=100.0, requests_per_s=requests_per_s, measure=unmeasured)
    assert (found.seconds, found.basis) == (seconds, basis)


def test_what_does_not_fit_is_not_measured() -> None:
    plan = plan_of(100, 2_000, available_bytes=0)
    found = estimate(plan, rate_bytes_s=None, requests_per_s=None, measure=unmeasured)
    assert (found.seconds, found.basis) == (None, Basis.DOES_NOT_FIT)


def test_a_measurement_tells_the_time_or_why_it_is_not_known() -> None:
    def reckoned(measured: Measured | Exception) -> Estimate:
        return estimate(
            plan_of(100, 2_000), rate_bytes_s=None, requests_per_s=2.0, measure=lambda: measured
        )

    found = reckoned(Measured(tiles=4, size_bytes=80, seconds=2.0))
    assert (found.seconds, found.basis) == (50.0, Basis.MEASURED)
    assert (found.rate_bytes_s, found.tiles_measured) == (40.0, 4)
    gone = OSError("gone")
    unknown = reckoned(gone)
    assert (unknown.seconds, unknown.basis) == (None, Basis.NOT_MEASURED)
    assert unknown.problem is gone
