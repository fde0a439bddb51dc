"""In-memory adapters, for tests and for embedding without a database."""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.adapters.memory.archives import MemoryArchive
    from tileferry.adapters.memory.cache import (
        MemoryCacheBindings,
        MemoryCacheLedger,
        MemoryCacheLock,
        MemoryCacheMark,
    )
    from tileferry.adapters.memory.clock import ManualClock
    from tileferry.adapters.memory.event_logs import (
        MemoryAuditOutbox,
        MemoryAuditSink,
        MemoryFdrClient,
    )
    from tileferry.adapters.memory.fetches import InlineFetchRunner, SequentialFetches
    from tileferry.adapters.memory.flights import MemoryFlightBook
    from tileferry.adapters.memory.idempotency import MemoryIdempotencyStore
    from tileferry.adapters.memory.map_index import MemoryMapIndex
    from tileferry.adapters.memory.raw_sink import MemoryRawSink
    from tileferry.adapters.memory.tile_store import MemoryTileStore
    from tileferry.adapters.memory.tiles import (
        MemoryAbsentTiles,
        MemoryBlobIndex,
        MemoryRefusedTiles,
        MemoryTileMetadataStore,
        MemoryTileOrigins,
        MemoryTileTables,
    )
    from tileferry.adapters.memory.transfers import (
        MemoryEnvelopeStore,
        MemoryJournal,
        MemoryJournalStore,
        MemorySpoolStore,
    )
    from tileferry.adapters.memory.work import MemoryWork

__all__ = [
    "InlineFetchRunner",
    "ManualClock",
    "MemoryAbsentTiles",
    "MemoryArchive",
    "MemoryAuditOutbox",
    "MemoryAuditSink",
    "MemoryBlobIndex",
    "MemoryCacheBindings",
    "MemoryCacheLedger",
    "MemoryCacheLock",
    "MemoryCacheMark",
    "MemoryEnvelopeStore",
    "MemoryFdrClient",
    "MemoryFlightBook",
    "MemoryIdempotencyStore",
    "MemoryJournal",
    "MemoryJournalStore",
    "MemoryMapIndex",
    "MemoryRawSink",
    "MemoryRefusedTiles",
    "MemorySpoolStore",
    "MemoryTileMetadataStore",
    "MemoryTileOrigins",
    "MemoryTileStore",
    "MemoryTileTables",
    "MemoryWork",
    "SequentialFetches",
]
