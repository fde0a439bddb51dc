"""What the use cases need from the outside, in the domain's words."""

from tileferry.application.ports.audit import AuditLog, AuditSink
from tileferry.application.ports.budget import (
    CacheBooks,
    CacheBudgetEnforcer,
    CacheLedger,
    DiskSpace,
)
from tileferry.application.ports.cache_binding import CacheBindings, CacheMark
from tileferry.application.ports.clock import AsyncSleep, Clock, Offload
from tileferry.application.ports.downloads import (
    DownloadObserver,
    ListingSpool,
    SpoolStore,
    TileDownloader,
    TileFate,
    Workers,
)
from tileferry.application.ports.fdr import FdrClient, FdrRecord
from tileferry.application.ports.idempotency import Heartbeat, IdempotencyStore, ResultCodec
from tileferry.application.ports.journal import Journal, JournalStore
from tileferry.application.ports.lock import CacheLock
from tileferry.application.ports.provider import FetchedTile, TileProvider
from tileferry.application.ports.raw_partitions import (
    OpenPartition,
    PartitionReader,
    RawDownloaders,
    RawSink,
)
from tileferry.application.ports.retry_tokens import RetryTokens
from tileferry.application.ports.telemetry import CallInfo, CallObserver, Telemetry
from tileferry.application.ports.tile_metadata import TileMetadataStore
from tileferry.application.ports.tile_store import BlobIndex, TileStore
from tileferry.application.ports.uploads import TileUploader

__all__ = [
    "AsyncSleep",
    "AuditLog",
    "AuditSink",
    "BlobIndex",
    "CacheBindings",
    "CacheBooks",
    "CacheBudgetEnforcer",
    "CacheLedger",
    "CacheLock",
    "CacheMark",
    "CallInfo",
    "CallObserver",
    "Clock",
    "DiskSpace",
    "DownloadObserver",
    "FdrClient",
    "FdrRecord",
    "FetchedTile",
    "Heartbeat",
    "IdempotencyStore",
    "Journal",
    "JournalStore",
    "ListingSpool",
    "Offload",
    "OpenPartition",
    "PartitionReader",
    "RawDownloaders",
    "RawSink",
    "ResultCodec",
    "RetryTokens",
    "SpoolStore",
    "Telemetry",
    "TileDownloader",
    "TileFate",
    "TileMetadataStore",
    "TileProvider",
    "TileStore",
    "TileUploader",
    "Workers",
]
