"""The survey of an area, over a provider that is a function."""

from collections.abc import Container
from pathlib import Path

import pytest
from support.download_env import DERKACHI, ZOOM, DownloadEnv, open_memory_download_env
from support.scripted_provider import TILES, ScriptedProvider, create_answer

from tileferry.adapters.filesystem import FileJournalStore
from tileferry.adapters.memory import InlineFetchRunner, ManualClock
from tileferry.application import DownloadSettings
from tileferry.application.download.area_survey import AreaSurvey
from tileferry.application.download.survey import EstimateBasis
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.tiles import EvictionResult, Flight, FreshnessRule, TileCoverage, TileId


class TickingClock(ManualClock):
    """Time passes between two readings."""

    def monotonic(self) -> float:
        self.advance(0.1)
        return super().monotonic()


class FakeBudget:
    """Has room for everything."""

    def preview_headroom(
        self,
        estimated_bytes: int,
        *,
        keep: Container[TileId] = (),  # noqa: ARG002  # all is kept
    ) -> EvictionResult:
        return EvictionResult(requested_bytes=estimated_bytes, available_bytes=10**9)


def build_survey(site: DownloadEnv) -> AreaSurvey:
    downloader = site.create_downloader()
    return AreaSurvey(
        provider=downloader.provider,
        retry=downloader.retry,
        pace=downloader.pace,
        runner=InlineFetchRunner(),
        journals=FileJournalStore(root=site.root, logger=site.logger),
        tile_metadata_store=site.metadata,
        headroom=FakeBudget,
        settings=DownloadSettings(),
        freshness=FreshnessRule(),
        clock=TickingClock(site.clock.now()),
    )


def test_survey_summarizes_and_plans(tmp_path: Path) -> None:
    provider = ScriptedProvider.for_area(DERKACHI, ZOOM, 12)
    with open_memory_download_env(tmp_path, provider) as site:
        survey = build_survey(site)
        found = survey.summarize(TileCoverage(bbox=DERKACHI, zoom_levels=[ZOOM]))
        assert found[ZOOM].tiles == 12
        requests, flight = [site.create_request()], Flight(flight_id="F1")
        _, plan, estimate = survey.plan(requests, flight=flight, rate_bytes_s=1_000.0)
        assert plan.tiles_to_fetch == 12
        assert estimate.basis is EstimateBasis.GIVEN_RATE
        _, _, measured = survey.plan(requests, flight=flight)
        assert measured.basis is EstimateBasis.MEASURED


def test_plans_of_several_areas_add_up(tmp_path: Path) -> None:
    provider = ScriptedProvider.for_area(DERKACHI, ZOOM, 12)
    with open_memory_download_env(tmp_path, provider) as site:
        survey, request = build_survey(site), site.create_request()
        flight = Flight(flight_id="F1")
        each, whole, _ = survey.plan([request, request], flight=flight, rate_bytes_s=1_000.0)
        assert [plan.tiles_to_fetch for plan in each] == [12, 12]
        assert (whole.tiles_to_fetch, whole.complete) == (24, False)
        assert whole.eviction.requested_bytes == 2 * each[0].eviction.requested_bytes
        site.create_downloader().download_tiles_for_area(request)
        (done,), whole, _ = survey.plan([request], flight=flight)
        assert (done.complete, whole.complete) == (True, True)
        assert provider.tiles[0] in done.reused
        assert "a tile" not in done.reused  # type: ignore[comparison-overlap]  # on purpose


def test_somebody_who_waits_for_a_plan_gets_the_first_failure(tmp_path: Path) -> None:
    provider = ScriptedProvider.for_area(DERKACHI, ZOOM, 12)
    provider.once[TILES] = [create_answer(503)]
    with open_memory_download_env(tmp_path, provider) as site:
        survey, requests = build_survey(site), [site.create_request()]
        flight = Flight(flight_id="F1")
        with pytest.raises(SatelliteProviderError):
            survey.plan(requests, flight=flight, rate_bytes_s=1_000.0, once=True)
        _, plan, _ = survey.plan(requests, flight=flight, rate_bytes_s=1_000.0, once=True)
        assert plan.tiles_to_fetch == 12
