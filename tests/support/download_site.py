"""A place to download to: all of it in memory, or a real cache on Postgres and files."""

import logging
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from attrs import define, field

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
from tileferry.application.ports.tile_metadata import TileMetadataStore
from tileferry.application.ports.tile_store import TileStore
from tileferry.domain.tiles import (
    BBox,
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
class Budget:
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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@define(kw_only=True)
class DownloadSite:
    """Everything around one downloader."""

    root: Path
    provider: ScriptedProvider
    tile_store: SpyStore
    metadata: TileMetadataStore
    new_http_client: Callable[[], httpx.Client]
    clock: ManualClock
    budget: Budget = field(factory=Budget)
    logger: logging.Logger = field(factory=lambda: logging.getLogger("tests.download"))

    def downloader(self, **options: Any) -> HttpTileDownloader:
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

    def request(self, **options: Any) -> DownloadRequest:
        given: dict[str, Any] = {
            "flight_id": "F1",
            "bbox": DERKACHI,
            "zoom_levels": (ZOOM,),
            "sector_class": SectorClass.STABLE_REAR,
            "cache_root": self.root,
        }
        return DownloadRequest(**(given | options))

    def stored(self) -> dict[TileId, TileMetadata]:
        """Return what the cache holds of the area."""
        return {tile.tile_id: tile for tile in self.metadata.query_by_bbox(DERKACHI, [ZOOM])}


NewSite = Callable[[int], DownloadSite]
"""Makes a site whose provider has so many tiles."""


@contextmanager
def memory_site(root: Path, provider: ScriptedProvider) -> Iterator[DownloadSite]:
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

        stack.enter_context(_locked(root))
        yield DownloadSite(
            root=root,
            provider=provider,
            tile_store=SpyStore(MemoryTileStore(index)),
            metadata=MemoryTileMetadataStore(clock=clock, index=index),
            new_http_client=client,
            clock=clock,
        )


@contextmanager
def real_site(root: Path, provider: ScriptedProvider, database: Database) -> Iterator[DownloadSite]:
    """Real sockets, real files, a real database; only the clock is ours."""
    clock = ManualClock(NOW_S)
    with ExitStack() as stack:
        url = stack.enter_context(provider.served())

        def client() -> httpx.Client:
            address = ProviderAddress(url=url, service_api_key=KEY)
            return stack.enter_context(new_client(address))

        stack.enter_context(_locked(root))
        store = stack.enter_context(SegmentTileStore(root=root, index=PostgresBlobIndex(database)))
        yield DownloadSite(
            root=root,
            provider=provider,
            tile_store=SpyStore(store),
            metadata=PostgresTileMetadataStore(database=database, clock=clock),
            new_http_client=client,
            clock=clock,
        )


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    lock = FileCacheLock(root=root)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()
