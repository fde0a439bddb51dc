"""A downloader that an embedder gets for a configuration, and nothing else."""

import gc
from pathlib import Path

import typed_settings as ts
from support.download_env import DERKACHI, ZOOM
from support.scripted_provider import KEY, ScriptedProvider, tile_content, tile_path

from tileferry.adapters.filesystem import FileCacheLock, SegmentTileStore
from tileferry.adapters.postgres import Database, PostgresBlobIndex
from tileferry.application.ports.downloads import TileDownloader
from tileferry.domain.tiles import DownloadOutcome, DownloadRequest, SectorClass
from tileferry.entrypoints.config import C11Config, Config
from tileferry.entrypoints.container import build_tile_downloader


def test_downloader_built_from_config_downloads_area(
    tmp_path: Path, database: Database, database_url: str
) -> None:
    provider = ScriptedProvider.for_area(DERKACHI, ZOOM, 12)
    root = tmp_path / "cache"
    request = DownloadRequest(
        flight_id="F1",
        bbox=DERKACHI,
        zoom_levels=(ZOOM,),
        sector_class=SectorClass.STABLE_REAR,
        cache_root=root,
    )
    lock = FileCacheLock(root=root)
    lock.acquire()
    with provider.serve() as url:
        config = Config(
            database_url=ts.Secret(database_url),
            c11=C11Config(
                cache_root=root, satellite_provider_url=url, service_api_key=ts.Secret(KEY)
            ),
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
