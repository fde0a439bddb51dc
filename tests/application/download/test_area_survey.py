"""The survey of an area, over a provider that is a function."""

from collections.abc import Container
from pathlib import Path

from support.download_env import DERKACHI, ZOOM, DownloadEnv, open_memory_download_env
from support.memory_download_env import SequentialWorkers
from support.scripted_provider import ScriptedProvider

from tileferry.adapters.filesystem import FileJournalStore
from tileferry.adapters.memory import ManualClock
from tileferry.application import DownloadSettings
from tileferry.application.download.area_survey import AreaSurvey
from tileferry.application.download.survey import EstimateBasis
from tileferry.domain.tiles import EvictionResult, FreshnessRule, TileCoverage, TileId


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
        workers=SequentialWorkers(),
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
        plan, estimate = survey.plan(site.create_request(), rate_bytes_s=1_000.0)
        assert plan.tiles_to_fetch == 12
        assert estimate.basis is EstimateBasis.GIVEN_RATE
        _, measured = survey.plan(site.create_request())
        assert measured.basis is EstimateBasis.MEASURED
