"""What the use cases need from the outside, in the domain's words."""

from tileferry.application.ports.budget import (
    CacheBooks,
    CacheBudgetEnforcer,
    CacheLedger,
    DiskSpace,
)
from tileferry.application.ports.clock import AsyncSleep, Clock
from tileferry.application.ports.fdr import FdrClient, FdrRecord
from tileferry.application.ports.journal import Journal, JournalStore
from tileferry.application.ports.lock import CacheLock
from tileferry.application.ports.tile_metadata import TileMetadataStore
from tileferry.application.ports.tile_store import BlobIndex, TileStore

__all__ = [
    "AsyncSleep",
    "BlobIndex",
    "CacheBooks",
    "CacheBudgetEnforcer",
    "CacheLedger",
    "CacheLock",
    "Clock",
    "DiskSpace",
    "FdrClient",
    "FdrRecord",
    "Journal",
    "JournalStore",
    "TileMetadataStore",
    "TileStore",
]
