"""A place to download to: all of it in memory, or a real cache on Postgres and files."""

import logging
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
from attrs import define, field, frozen

from support.scripted_provider import KEY, ScriptedProvider
from tileferry.adapters.filesystem import FileCacheLock, SegmentTileStore
from tileferry.adapters.http import HttpTileDownloader, ProviderAddress, new_client
from tileferry.adapters.memory import (
    ManualClock,
    MemoryBlobIndex,
    MemoryTileMetadataStore,
    MemoryTileStore,
)
from tileferry.adapters.postgres import Database, PostgresBlobIndex, PostgresTileMetadataStore
from tileferry.adapters.system import SystemClock
from tileferry.application import DownloadSettings, GroupLimits
from tileferry.application.ports.downloads import TileFate
from tileferry.application.ports.progress import (
    DownloadFinished,
    DownloadStarted,
    ListingProgressed,
    ProgressEvent,
    TileProcessed,
    TilesStored,
)
from tileferry.application.ports.tiles import TileMetadataStore, TileStore
from tileferry.domain.tiles import (
    BBox,
    DownloadBatchReport,
    DownloadRequest,
    EvictionResult,
    SectorClass,
    TileId,
    TileMetadata,
)

DERKACHI = BBox(west=36.0, south=50.0, east=36.3, north=50.2)
ZOOM = 14
NOW_S = 1_793_000_000.0  # 2026-10-26


@define
class FakeBudget:
    """A budget that says what it is told."""

    available_bytes: int = 10**12
    asked: list[int] = field(factory=list, init=False)
    kept: list[Container[TileId]] = field(factory=list, init=False)
    calls: list[str] = field(factory=list, init=False)

    def reserve_headroom(
        self, estimated_bytes: int, *, keep: Container[TileId] = ()
    ) -> EvictionResult:
        self.calls.append("reserve")
        self.asked.append(estimated_bytes)
        self.kept.append(keep)
        return EvictionResult(requested_bytes=estimated_bytes, available_bytes=self.available_bytes)

    def release_headroom(self) -> None:
        self.calls.append("release")


class SpyStore:
    """Passes everything on, and notes which tiles are written."""

    def __init__(self, store: TileStore) -> None:
        self._store = store
        self.written: list[TileId] = []

    def write_tile(self, tile_id: TileId, content: Any, *, digest: bytes | None = None) -> Any:
        self.written.append(tile_id)
        return self._store.write_tile(tile_id, content, digest=digest)

    def write_tiles(
        self, tile_ids: Sequence[TileId], contents: Sequence[bytes], *, digests: Sequence[bytes]
    ) -> Any:
        self.written += tile_ids
        return self._store.write_tiles(tile_ids, contents, digests=digests)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@define(kw_only=True)
class DownloadEnv:
    """Everything around one downloader."""

    root: Path
    provider: ScriptedProvider
    tile_store: SpyStore
    metadata: TileMetadataStore
    new_http_client: Callable[[], httpx.Client]
    clock: ManualClock
    budget: FakeBudget = field(factory=FakeBudget)
    logger: logging.Logger = field(factory=lambda: logging.getLogger("tests.download"))

    def create_downloader(self, **options: Any) -> HttpTileDownloader:
        """Return a downloader, made by the constructor of the contract."""
        return HttpTileDownloader(
            http_client=self.new_http_client(),
            tile_store=self.tile_store,
            tile_metadata_store=self.metadata,
            budget_enforcer=self.budget,
            logger=self.logger,
            clock=self.clock,
            **options,
        )

    def create_request(self, **options: Any) -> DownloadRequest:
        given: dict[str, Any] = {
            "flight_id": "F1",
            "bbox": DERKACHI,
            "zoom_levels": (ZOOM,),
            "sector_class": SectorClass.STABLE_REAR,
            "cache_root": self.root,
        }
        return DownloadRequest(**(given | options))

    def list_stored(self) -> dict[TileId, TileMetadata]:
        """Return what the cache holds of the area."""
        return {tile.tile_id: tile for tile in self.metadata.query_by_bbox(DERKACHI, [ZOOM])}


NewDownloadEnv = Callable[[int], DownloadEnv]
"""Makes a site whose provider has so many tiles."""


@contextmanager
def open_memory_download_env(root: Path, provider: ScriptedProvider) -> Iterator[DownloadEnv]:
    """Fakes all around: a transport that is a function, stores that are dictionaries."""
    clock, index = ManualClock(NOW_S), MemoryBlobIndex()
    with ExitStack() as stack:

        def client() -> httpx.Client:
            return stack.enter_context(
                new_client(
                    ProviderAddress(url="http://127.0.0.1", service_api_key=KEY),
                    transport=httpx.MockTransport(provider),
                )
            )

        stack.enter_context(_hold_lock(root))
        yield DownloadEnv(
            root=root,
            provider=provider,
            tile_store=SpyStore(MemoryTileStore(index)),
            metadata=MemoryTileMetadataStore(clock=clock, index=index),
            new_http_client=client,
            clock=clock,
        )


@contextmanager
def open_real_download_env(
    root: Path, provider: ScriptedProvider, database: Database
) -> Iterator[DownloadEnv]:
    """Real sockets, real files, a real database; only the clock is ours."""
    clock = ManualClock(NOW_S)
    with ExitStack() as stack:
        url = stack.enter_context(provider.serve())

        def client() -> httpx.Client:
            address = ProviderAddress(url=url, service_api_key=KEY)
            return stack.enter_context(new_client(address))

        stack.enter_context(_hold_lock(root))
        store = stack.enter_context(SegmentTileStore(root=root, index=PostgresBlobIndex(database)))
        yield DownloadEnv(
            root=root,
            provider=provider,
            tile_store=SpyStore(store),
            metadata=PostgresTileMetadataStore(database=database, clock=clock),
            new_http_client=client,
            clock=clock,
        )


@contextmanager
def _hold_lock(root: Path) -> Iterator[None]:
    lock = FileCacheLock(root=root)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


class RecordingListener:
    """Records events, and interrupts after a number of tiles."""

    def __init__(self, *, interrupts_at: int | None = None) -> None:
        self.interrupts_at = interrupts_at
        self.listed: list[int] = []
        self.started: DownloadStarted | None = None
        self.fates: list[TileFate] = []
        self.safe: list[int] = []
        self.reports: list[DownloadBatchReport] = []

    def __call__(self, event: ProgressEvent, /) -> None:
        match event:
            case ListingProgressed():
                self.listed.append(event.tiles)
            case DownloadStarted():
                self.started = event
            case TileProcessed():
                is_stored = event.fate in {TileFate.STORED, TileFate.DOWNGRADED}
                assert (event.size_bytes > 0) == is_stored
                self.fates.append(event.fate)
                if len(self.fates) == self.interrupts_at:
                    raise KeyboardInterrupt
            case TilesStored():
                self.safe.append(event.tiles)
            case DownloadFinished():
                self.reports.append(event.report)
            case _:
                raise AssertionError(event)


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


def execute_download(plan: DownloadPlan, begun: Connection) -> None:
    """Download, and say how many tiles the report counts."""
    clock = SystemClock()
    database = Database.from_url(plan.database_url)
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
            budget_enforcer=FakeBudget(),
            logger=logging.getLogger("tests.download"),
            clock=clock,
            settings=DownloadSettings(group=GroupLimits(tiles_max=plan.group_tiles)),
            requests_max=4,
            background=executor if plan.in_background else None,
        )
        begun.send("begun")
        report = downloader.download_tiles_for_area(plan.request)
        begun.send((report.outcome.value, report.tiles_downloaded))
        begun.close()
