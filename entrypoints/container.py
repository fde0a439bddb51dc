"""The composition root: the one place where ports meet their adapters."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

from dependency_injector import containers, providers

from tileferry.adapters.filesystem import FileCacheLock, SegmentTileStore
from tileferry.adapters.postgres import (
    Database,
    PostgresBlobIndex,
    PostgresCacheLedger,
    PostgresTileMetadataStore,
    start_embedded,
)
from tileferry.adapters.system import SystemClock, SystemDisk
from tileferry.application import CacheBudget
from tileferry.domain.tiles import default_budget_bytes, default_reserve_bytes
from tileferry.entrypoints.config import Config


def _database(config: Config) -> Iterator[Database]:
    url = config.database_url
    address = start_embedded(config.data_dir) if url is None else url.get_secret_value()
    database = Database.at(address)
    yield database
    database.close()


def _tile_store(root: Path, index: PostgresBlobIndex) -> Iterator[SegmentTileStore]:
    with SegmentTileStore(root=root, index=index) as store:
        yield store


def _budget(
    config: Config, ledger: PostgresCacheLedger, disk: SystemDisk, store: SegmentTileStore
) -> CacheBudget:
    def reclaim() -> None:
        store.forget_locations()
        store.compact()

    budget, reserve = config.c6.budget_bytes, config.c6.free_space_reserve_bytes
    size = disk.total_bytes()
    return CacheBudget(
        ledger=ledger,
        disk=disk,
        reclaim=reclaim,
        reservation_id=f"{socket.gethostname()}:{os.getpid()}",
        budget_bytes=default_budget_bytes(size) if budget is None else budget,
        free_space_reserve_bytes=default_reserve_bytes(size) if reserve is None else reserve,
    )


class Container(containers.DeclarativeContainer):
    """Makes each part once, when it is first asked for, and closes what needs closing."""

    config = providers.Dependency(instance_of=Config)
    clock = providers.Singleton(SystemClock)
    database = providers.Resource(_database, config)
    cache_root = config.provided.c11.cache_root
    metadata_store = providers.Singleton(PostgresTileMetadataStore, database=database, clock=clock)
    blob_index = providers.Singleton(PostgresBlobIndex, database)
    tile_store = providers.Resource(_tile_store, cache_root, blob_index)
    cache_lock = providers.Singleton(FileCacheLock, root=cache_root)
    disk = providers.Singleton(SystemDisk, cache_root)
    cache_ledger = providers.Singleton(PostgresCacheLedger, database=database)
    budget_enforcer = providers.Singleton(_budget, config, cache_ledger, disk, tile_store)
