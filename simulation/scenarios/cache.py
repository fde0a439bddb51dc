"""The cache that several scenarios share: its disk, its database and its lock."""

from functools import partial
from typing import Any

from attrs import define, field, frozen

from simulation.faults import PortKind
from simulation.ports import PortSpec
from simulation.scenarios.base import Scenario
from simulation.scheduler import Process
from simulation.threads import WorkerClock
from tileferry.adapters.memory import (
    MemoryCacheLedger,
    MemoryCacheLock,
    MemoryFlightBook,
    MemoryJournalStore,
    MemoryTileMetadataStore,
    MemoryTileStore,
    MemoryTileTables,
)
from tileferry.application import CacheBudget
from tileferry.domain.tiles import OperatorNote

STORE = PortSpec(name="store", kind=PortKind.DISK, fails_for_good={"write_tiles", "flush"})
METADATA = PortSpec(
    name="metadata", kind=PortKind.DATABASE, quiet={"insert_all", "detach", "flush"}
)
JOURNALS = PortSpec(
    name="journals",
    kind=PortKind.DISK,
    parts={
        "open": PortSpec(
            name="journals.journal",
            kind=PortKind.DISK,
            quiet={"close"},
            fails_for_good={"append", "flush", "finish", "read_into"},
        )
    },
)
LEDGER = PortSpec(
    name="ledger",
    kind=PortKind.DATABASE,
    lock="decisions",
    parts={"begin_transaction": PortSpec(name="ledger.transaction", kind=PortKind.DATABASE)},
)
FLIGHTS = PortSpec(name="flights", kind=PortKind.DATABASE, lock="decisions")
SPOOLS = PortSpec(name="spools", kind=PortKind.DISK)
ABSENT = PortSpec(name="absent_tiles", kind=PortKind.DATABASE)
LOCK = PortSpec(name="lock", kind=PortKind.LOCAL, quiet={"check_held", "release"})
NOTE = OperatorNote(by="ann@desk", reason="simulated")


@frozen
class SimulatedDisk:
    """A disk that is never the tighter limit."""

    def free_bytes(self) -> int:
        return 10**9

    def total_bytes(self) -> int:
        return 10**9


@define(eq=False)
class CacheScenario(Scenario):
    """A cache: tiles on a disk, rows in a database, one lock."""

    tables: MemoryTileTables = field(init=False)
    rows: MemoryTileMetadataStore = field(init=False)
    """The database as the world sees it, not as a client does."""
    store: MemoryTileStore = field(init=False)
    journals: MemoryJournalStore = field(factory=MemoryJournalStore, init=False)
    flights: MemoryFlightBook = field(init=False)
    ledger: MemoryCacheLedger = field(init=False)
    lock_holders: dict[str, str] = field(factory=dict, init=False)
    budget_bytes: int = field(default=10**6, init=False)

    def build(self) -> None:
        world = self.world
        self.tables = MemoryTileTables(clock=world)
        self.rows = MemoryTileMetadataStore(clock=world, tables=self.tables)
        self.store = MemoryTileStore(self.rows)
        self.flights = MemoryFlightBook(tiles=self.rows, clock=world)
        self.ledger = MemoryCacheLedger(tiles=self.rows, flights=self.flights)
        world.disks += [self.store.lose_power, self.journals.lose_power]

    def acquire_lock(self, process: Process, *, waits: bool = False) -> Any:
        """Take the lock of the cache; with ``waits``, as soon as it is free."""
        owner = f"{process.name}-{process.generation}"
        lock = self.pair(LOCK, MemoryCacheLock(holders=self.lock_holders, owner=owner), process)
        process.on_death.append(lock.release)
        process.data["lock"] = lock
        port = self.connect(process, LOCK, lock)
        while waits and self.lock_holders:
            self.world.wait(0.5 + self.world.schedule.random())
        port.acquire()
        process.on_crash.append(self.store.lose_power)  # only the holder writes
        return lock

    def connect_metadata(self, process: Process, clock: WorkerClock) -> Any:
        """Return a client of the database, whose buffered rows end with its process."""
        client = MemoryTileMetadataStore(
            clock=self.create_database_clock(clock),
            tables=self.tables,
            commit=partial(self.world.call, process, PortKind.DATABASE, "metadata.commit"),
        )
        return self.connect(process, METADATA, client)

    def create_budget(self, process: Process, journals: Any) -> CacheBudget:
        return CacheBudget(
            ledger=self.connect(process, LEDGER, self.ledger),
            disk=SimulatedDisk(),
            reclaim=lambda: None,
            before_eviction=journals.discard_complete,
            find_reservation_id=lambda: "cache",
            budget_bytes=self.budget_bytes,
            free_space_reserve_bytes=0,
        )
