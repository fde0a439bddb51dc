"""A process that downloads an area over HTTP into a real cache, until it is done or killed."""

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

from attrs import frozen

from support.download_site import DERKACHI, ZOOM, Budget
from support.scripted_provider import KEY
from tileferry.adapters.filesystem import FileCacheLock, SegmentTileStore
from tileferry.adapters.http import HttpTileDownloader, ProviderAddress, new_client
from tileferry.adapters.postgres import Database, PostgresBlobIndex, PostgresTileMetadataStore
from tileferry.adapters.system import SystemClock, ThreadWorkers
from tileferry.application import DownloadSettings, GroupLimits
from tileferry.domain.tiles import DownloadRequest, SectorClass


@frozen(kw_only=True)
class DownloadPlan:
    """What to download, and how."""

    root: Path
    database_url: str
    provider_url: str
    flight_id: str
    group_tiles: int
    in_background: bool

    @property
    def request(self) -> DownloadRequest:
        return DownloadRequest(
            flight_id=self.flight_id,
            bbox=DERKACHI,
            zoom_levels=(ZOOM,),
            sector_class=SectorClass.STABLE_REAR,
            cache_root=self.root,
        )


def download(plan: DownloadPlan, begun: Connection) -> None:
    """Download, and say how many tiles the report counts."""
    clock = SystemClock()
    database = Database.at(plan.database_url)
    with ExitStack() as stack:
        lock = FileCacheLock(root=plan.root)
        lock.acquire()
        stack.callback(lock.release)
        store = stack.enter_context(
            SegmentTileStore(root=plan.root, index=PostgresBlobIndex(database))
        )
        executor = stack.enter_context(ThreadPoolExecutor(max_workers=1))
        address = ProviderAddress(url=plan.provider_url, service_api_key=KEY)
        downloader = HttpTileDownloader(
            http_client=stack.enter_context(new_client(address)),
            tile_store=store,
            tile_metadata_store=PostgresTileMetadataStore(database=database, clock=clock),
            budget_enforcer=Budget(),
            logger=logging.getLogger("tests.download"),
            clock=clock,
            settings=DownloadSettings(group=GroupLimits(tiles_max=plan.group_tiles)),
            workers=ThreadWorkers(4),
            background=executor if plan.in_background else None,
        )
        begun.send("begun")
        report = downloader.download_tiles_for_area(plan.request)
        begun.send((report.outcome.value, report.tiles_downloaded))
        begun.close()
