"""A downloader that an embedder gets for a configuration, and nothing else."""

import gc
import json
from pathlib import Path

import pytest
from support.download_env import DERKACHI, ZOOM
from support.scripted_provider import KEY, ScriptedProvider, create_answer, tile_content, tile_path

from tileferry.adapters.filesystem import FileCacheLock, SegmentTileStore
from tileferry.adapters.memory import ManualClock
from tileferry.adapters.postgres import Database, PostgresBlobIndex
from tileferry.application.ports.downloads import TileDownloader
from tileferry.domain.tiles import DownloadOutcome, DownloadRequest, SectorClass
from tileferry.entrypoints.config import C11Config, Config, Secret
from tileferry.entrypoints.container import Container, build_tile_downloader


def create_request(root: Path) -> DownloadRequest:
    return DownloadRequest(
        flight_id="F1",
        bbox=DERKACHI,
        zoom_levels=(ZOOM,),
        sector_class=SectorClass.STABLE_REAR,
        cache_root=root,
    )


def test_downloader_built_from_config_downloads_area(
    tmp_path: Path, database: Database, database_url: str
) -> None:
    provider = ScriptedProvider.for_area(DERKACHI, ZOOM, 12)
    root = tmp_path / "cache"
    request = create_request(root)
    lock = FileCacheLock(root=root)
    lock.acquire()
    with provider.serve() as url:
        config = Config(
            database_url=Secret(database_url),
            c11=C11Config(cache_root=root, satellite_provider_url=url, service_api_key=Secret(KEY)),
        )
        downloader = build_tile_downloader(config)
        assert isinstance(downloader, TileDownloader)
        gc.collect()  # what it needs does not go before it does
        report = downloader.download_tiles_for_area(request)
        again = downloader.download_tiles_for_area(request)
        del downloader
        gc.collect()
    lock.release()
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.SUCCESS, 12)
    assert again.outcome is DownloadOutcome.IDEMPOTENT_NO_OP
    assert sorted(provider.tile_gets) == sorted(map(tile_path, provider.tiles))
    with SegmentTileStore(root=root, index=PostgresBlobIndex(database)) as store:
        found = [store.read_tile(tile) for tile in provider.tiles]
    assert found == [tile_content(tile) for tile in provider.tiles]


def test_requests_share_the_configured_retry_budget_and_category(
    tmp_path: Path, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider = ScriptedProvider.for_area(DERKACHI, ZOOM, 3)
    for tile in provider.tiles:
        provider.once[tile_path(tile)].append(create_answer(503))
    root, clock = tmp_path / "cache", ManualClock(1_793_000_000.0)
    lock = FileCacheLock(root=root)
    lock.acquire()
    with provider.serve() as url:
        c11 = C11Config(
            cache_root=root,
            satellite_provider_url=url,
            service_api_key=Secret(KEY),
            max_concurrent_requests=1,
            retry_budget_capacity=1,
            retry_budget_refill_per_s=0.01,
            retry_budget_earned_per_success=0.25,
        )
        container = Container(
            config=Config(database_url=Secret(database_url), c11=c11), clock=clock
        )
        report = container.tile_downloader().download_tiles_for_area(create_request(root))
        waits = [
            json.loads(entry.body)
            for entry in container.audit_log().iter_entries()
            if b"retry_attempt" in entry.body
        ]
        container.shutdown_resources()
    lock.release()
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.SUCCESS, 3)
    assert {wait["retry_category"] for wait in waits} == {"RETRY_API_REQUEST"}
    rules = [wait["decision_record"]["decision"]["reason"] for wait in waits]
    assert rules == ["backoff", "retry_budget", "retry_budget"]
    logged = [record for record in caplog.records if record.__dict__.get("kind") == "retry.attempt"]
    assert [record.__dict__["attempt"] for record in logged] == [1, 1, 1]
    assert [record.__dict__["reason"] for record in logged] == rules
