"""The parts of read-only commands: the database, and its queries.

These parts are wired here, not in the container: importing its library takes three times as long as
starting Python, and a command that lists something needs no other part of the container.
"""

import logging
from collections.abc import Callable
from functools import cached_property, partial

from tileferry.domain.lazy_imports import import_on_call
from tileferry.entrypoints.config import Config, SinkName
from tileferry.entrypoints.database import forgo_patience, open_database

with import_on_call(globals()):
    from tileferry.adapters.filesystem import (
        FileFdrClient,
        FileRawSink,
        TileImageFolder,
        find_waiting,
    )
    from tileferry.adapters.postgres import (
        Database,
        PostgresAuditLog,
        PostgresCacheUsage,
        PostgresFigureReader,
        PostgresFlightBook,
        PostgresTileInventory,
        PostgresWorkReader,
        build_reopen_sql,
    )
    from tileferry.adapters.system import ReferenceClock, SystemDisk
    from tileferry.application import RetryManager
    from tileferry.application.audit_reader import AuditReader
    from tileferry.application.cache.flights import FlightRegister
    from tileferry.application.cache.inventory import CacheInventory
    from tileferry.application.control.policies import WorkPolicies
    from tileferry.application.control.queries import PartitionDataReader, WorkInspector
    from tileferry.application.ports import Clock, TileStore
    from tileferry.application.ports.progress import ProgressListener
    from tileferry.application.retries.retries_on_failure import RetriesOnFailure
    from tileferry.application.upload.giveups import GiveupReview
    from tileferry.domain.retry import RetryBudget
    from tileferry.entrypoints.factories import get_budget_bytes, get_reserve_bytes
    from tileferry.entrypoints.work_factories import build_queue_budget, build_work_policies


class ReadingParts:
    """Builds each part once, on first use, and closes what it opened."""

    def __init__(self, config: Config, clock: Clock, progress: ProgressListener) -> None:
        self._config, self._clock, self._progress = config, clock, progress

    @cached_property
    def database(self) -> Database:
        return open_database(self._config, clock=self._clock, progress=self._progress)

    @cached_property
    def database_clock(self) -> ReferenceClock:
        """Returns the database's time, with which the dates of tiles and flights are compared."""
        return ReferenceClock(
            self._clock,
            lambda: self.database.now(),  # noqa: PLW0108  # opens the database when it is needed
        )

    @cached_property
    def control_database(self) -> Database:
        """For the queue, which waits by itself, and for the audit log, which must not block."""
        return forgo_patience(self.database)

    @cached_property
    def flight_book(self) -> PostgresFlightBook:
        """Commits changes with their events when the audit log is in Postgres."""
        audited = SinkName.POSTGRES in self._config.audit.sinks
        return PostgresFlightBook(database=self.database, audited=audited)

    @cached_property
    def tile_inventory(self) -> PostgresTileInventory:
        return PostgresTileInventory(database=self.database)

    @cached_property
    def flights(self) -> FlightRegister:
        return FlightRegister(
            book=self.flight_book, tiles=self.tile_inventory, clock=self.database_clock
        )

    @cached_property
    def cache_inventory(self) -> CacheInventory:
        disk = SystemDisk(self._config.c11.cache_root)
        return CacheInventory(
            tiles=self.tile_inventory,
            usage=PostgresCacheUsage(database=self.database),
            flights=self.flights,
            disk=disk,
            budget_bytes=partial(get_budget_bytes, self._config, disk),
            free_space_reserve_bytes=partial(get_reserve_bytes, self._config, disk),
        )

    @cached_property
    def fdr(self) -> FileFdrClient:
        return FileFdrClient(root=self._config.c11.cache_root, clock=self._clock)

    def build_giveup_review(self, tile_store: Callable[[], TileStore]) -> GiveupReview:
        """Return the list of giveups; ``tile_store`` opens the cache, to show an image."""
        return GiveupReview(
            tiles=self.tile_inventory,
            tile_store=tile_store,
            images=partial(TileImageFolder, self._config.c11.cache_root),
            fdr_client=self.fdr,
            build_reopening_sql=build_reopen_sql,
        )

    @cached_property
    def audit_log(self) -> PostgresAuditLog:
        return PostgresAuditLog(database=self.control_database)

    def build_audit_reader(self, build_manager: Callable[[], RetryManager]) -> AuditReader:
        """Return the reader of the log in Postgres; a failed read builds the retry manager."""
        return AuditReader(
            log=self.audit_log,
            retries=RetriesOnFailure(self._clock, build_manager),
            false_copies=self.audit_log.find_false_copies,
            find_waiting=partial(find_waiting, self._config.c11.cache_root),
            progress=self._progress,
        )

    @cached_property
    def queue_budget(self) -> RetryBudget:
        return build_queue_budget(self._config)

    @cached_property
    def work_policies(self) -> WorkPolicies:
        return build_work_policies(self._config)

    @cached_property
    def work_reader(self) -> PostgresWorkReader:
        return PostgresWorkReader(database=self.control_database, budget=self.queue_budget)

    @cached_property
    def figure_reader(self) -> PostgresFigureReader:
        return PostgresFigureReader(database=self.control_database, budget=self.queue_budget)

    @cached_property
    def raw_sink(self) -> FileRawSink:
        return FileRawSink(
            root=self._config.partitions.raw_root,
            clock=self.database_clock,
            logger=logging.getLogger("tileferry.c11"),
        )

    @cached_property
    def inspector(self) -> WorkInspector:
        return WorkInspector(
            books=self.work_reader,
            raw=lambda: self.raw_sink,
            policies=self.work_policies,
            budget=self.queue_budget,
        )

    @cached_property
    def partition_data(self) -> PartitionDataReader:
        reader = self.work_reader
        return PartitionDataReader(partitions=reader, raw=reader, sink=self.raw_sink)

    def close(self) -> None:
        """Close the flight data recorder and the database, if they were opened."""
        if "fdr" in self.__dict__:
            self.fdr.close()
        if "database" in self.__dict__:
            self.database.close()
