"""The ports: the interfaces through which the use cases reach the outside."""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.application.ports.audit import AuditLog, AuditSink
    from tileferry.application.ports.cache import (
        CacheBindings,
        CacheBudgetEnforcer,
        CacheLedger,
        CacheLock,
        CacheMark,
        DiskSpace,
        LedgerTransaction,
    )
    from tileferry.application.ports.clock import AsyncSleep, Clock, Offload
    from tileferry.application.ports.downloads import (
        FetchRunner,
        FetchSteps,
        ListingSpool,
        SpoolStore,
        TileDownloader,
        TileFate,
    )
    from tileferry.application.ports.fdr import FdrClient, FdrRecord
    from tileferry.application.ports.idempotency import Heartbeat, IdempotencyStore, ResultCodec
    from tileferry.application.ports.journal import Journal, JournalStore
    from tileferry.application.ports.provider import (
        FetchedTile,
        TileFetches,
        TileProvider,
        TileRequest,
    )
    from tileferry.application.ports.raw_partitions import (
        DownloaderFactory,
        OpenPartition,
        PartitionReader,
        RawSink,
    )
    from tileferry.application.ports.retries import (
        CallInfo,
        CallObserver,
        RequestPace,
        RetryTokens,
        Telemetry,
    )
    from tileferry.application.ports.tiles import (
        AbsentTiles,
        BlobIndex,
        RefusedTiles,
        TileCatalogue,
        TileMetadataStore,
        TileOrigins,
        TileStore,
        UploadStatusStore,
    )
    from tileferry.application.ports.uploads import TileUploader

__all__ = [
    "AbsentTiles",
    "AsyncSleep",
    "AuditLog",
    "AuditSink",
    "BlobIndex",
    "CacheBindings",
    "CacheBudgetEnforcer",
    "CacheLedger",
    "CacheLock",
    "CacheMark",
    "CallInfo",
    "CallObserver",
    "Clock",
    "DiskSpace",
    "DownloaderFactory",
    "FdrClient",
    "FdrRecord",
    "FetchRunner",
    "FetchSteps",
    "FetchedTile",
    "Heartbeat",
    "IdempotencyStore",
    "Journal",
    "JournalStore",
    "LedgerTransaction",
    "ListingSpool",
    "Offload",
    "OpenPartition",
    "PartitionReader",
    "RawSink",
    "RefusedTiles",
    "RequestPace",
    "ResultCodec",
    "RetryTokens",
    "SpoolStore",
    "Telemetry",
    "TileCatalogue",
    "TileDownloader",
    "TileFate",
    "TileFetches",
    "TileMetadataStore",
    "TileOrigins",
    "TileProvider",
    "TileRequest",
    "TileStore",
    "TileUploader",
    "UploadStatusStore",
]
