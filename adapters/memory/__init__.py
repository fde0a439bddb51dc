"""Implementations that keep everything in memory: for tests, and to embed without a database."""

from tileferry.adapters.memory.archives import MemoryArchive
from tileferry.adapters.memory.audit import MemoryAuditSink
from tileferry.adapters.memory.cache_bindings import MemoryCacheBindings, MemoryCacheMark
from tileferry.adapters.memory.cache_ledger import MemoryCacheLedger
from tileferry.adapters.memory.clock import ManualClock
from tileferry.adapters.memory.envelopes import MemoryEnvelopeStore
from tileferry.adapters.memory.fdr import MemoryFdrClient
from tileferry.adapters.memory.idempotency import MemoryIdempotencyStore
from tileferry.adapters.memory.journal import MemoryJournal, MemoryJournalStore
from tileferry.adapters.memory.lock import MemoryCacheLock
from tileferry.adapters.memory.raw_sink import MemoryRawSink
from tileferry.adapters.memory.spool import MemorySpoolStore
from tileferry.adapters.memory.tile_metadata import MemoryTileMetadataStore
from tileferry.adapters.memory.tiles import MemoryBlobIndex, MemoryTileStore
from tileferry.adapters.memory.work import MemoryWork

__all__ = [
    "ManualClock",
    "MemoryArchive",
    "MemoryAuditSink",
    "MemoryBlobIndex",
    "MemoryCacheBindings",
    "MemoryCacheLedger",
    "MemoryCacheLock",
    "MemoryCacheMark",
    "MemoryEnvelopeStore",
    "MemoryFdrClient",
    "MemoryIdempotencyStore",
    "MemoryJournal",
    "MemoryJournalStore",
    "MemoryRawSink",
    "MemorySpoolStore",
    "MemoryTileMetadataStore",
    "MemoryTileStore",
    "MemoryWork",
]
