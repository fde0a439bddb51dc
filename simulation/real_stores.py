"""Real stores under a history: Postgres and a folder, which follow the time of the simulation.

Faults happen at the ports, to both stores alike: an error before or after the effect, a lost
answer, a crash (whose open transactions are rolled back), jumps of clocks, providers. A power loss
is left out of the plans: no real disk loses its cache when told to. ``make powerloss`` does that.
"""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from attrs import define, field, frozen
from sqlalchemy.engine import make_url

from simulation.checkers.base import Checker
from simulation.scheduler import Process
from simulation.twins import Twin, create_twin, is_memory_adapter
from simulation.world import World
from tileferry.adapters.filesystem import (
    FileCacheLock,
    FileFdrClient,
    FileJournalStore,
    FileRawSink,
    FileSpoolStore,
    SegmentTileStore,
)
from tileferry.adapters.memory import (
    MemoryAbsentTiles,
    MemoryAuditSink,
    MemoryCacheLedger,
    MemoryCacheLock,
    MemoryEnvelopeStore,
    MemoryFdrClient,
    MemoryFlightBook,
    MemoryIdempotencyStore,
    MemoryJournalStore,
    MemoryRawSink,
    MemorySpoolStore,
    MemoryTileMetadataStore,
    MemoryTileStore,
    MemoryWork,
)
from tileferry.adapters.postgres import (
    Database,
    EmbeddedServer,
    PostgresAbsentTiles,
    PostgresAuditLog,
    PostgresBlobIndex,
    PostgresCacheLedger,
    PostgresEnvelopeStore,
    PostgresFlightBook,
    PostgresIdempotencyStore,
    PostgresRunQueue,
    PostgresTileMetadataStore,
    PostgresWorkReader,
    PostgresWorkStore,
    upgrade,
)
from tileferry.adapters.postgres.session import SessionLimits
from tileferry.adapters.postgres.tile_index import build_rows
from tileferry.application.ports.work import PartitionFilter, RunFilter
from tileferry.domain.tiles import NewTiles

Found = TypeVar("Found")
LOGGER = logging.getLogger("simulation")
_WITH_FILES = SegmentTileStore, FileFdrClient
_ALONE = {"metadata": frozenset({"detach", "flush"}), "queue": frozenset({"wait"})}
"""Methods of memory adapters alone: ``RealStores._commit`` commits tiles, waits are simulated."""
LOCK_TIMEOUT_S = 2.0
"""A longer wait for a lock is a difference: no other process runs that could release it."""
TEMPLATE = "simulation_template"
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # files there get unique names
_NUMBERS = count()
# The server reads the time of the simulation from a file. As in Postgres, now() stays the same in a
# transaction. These functions are found before those of the server.
_FOLLOW_TIME = """
    CREATE SCHEMA simulation;
    CREATE FUNCTION simulation.clock_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
        AS $$ SELECT pg_read_file('{file}')::timestamptz $$;
    CREATE FUNCTION simulation.now() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
        DECLARE known text := current_setting('simulation.begin', true);
        BEGIN
            IF coalesce(known, '') = '' THEN
                known := set_config('simulation.begin', pg_read_file('{file}'), true);
            END IF;
            RETURN known::timestamptz;
        END
    $$;
    ALTER DATABASE {name} SET search_path = simulation, pg_catalog, public;
"""


@frozen
class RealServer:
    """A Postgres server with a database that has the tables of the product."""

    url: str
    template: str = TEMPLATE

    @contextmanager
    def open_stores(self) -> Iterator["RealStores"]:
        """Create the stores of one history: a database and a folder."""
        with tempfile.TemporaryDirectory(prefix="tileferry-simulation-") as folder:
            Path(folder).chmod(0o711)  # as root, the server runs as another user
            name = f"simulation_{os.getpid()}_{next(_NUMBERS)}"
            self.execute(f"CREATE DATABASE {name} TEMPLATE {self.template} STRATEGY file_copy")
            self.execute(_FOLLOW_TIME.format(name=name, file=f"{folder}/now"), name)
            database = Database.from_url(
                self.get_url(name), limits=SessionLimits(lock_timeout_s=LOCK_TIMEOUT_S)
            )
            try:
                yield RealStores(self, database, Path(folder))
            finally:
                database.close()
                self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def get_url(self, name: str) -> str:
        return make_url(self.url).set(database=name).render_as_string(hide_password=False)

    def execute(self, statement: str, name: str = "postgres") -> None:
        """Run a statement in a connection of its own."""
        with psycopg.connect(self.get_url(name), autocommit=True) as connection:
            connection.execute(statement.encode())


@contextmanager
def run_server() -> Iterator[RealServer]:
    """Run a server in memory, until the block ends."""
    shared = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="tileferry-simulation-", dir=shared))
    embedded = EmbeddedServer(folder / "postgres")
    try:
        server = RealServer(embedded.join())
        server.execute(f"CREATE DATABASE {TEMPLATE}")
        database = Database.from_url(server.get_url(TEMPLATE))
        upgrade(database)
        database.close()
        yield server
    finally:
        embedded.leave()
        shutil.rmtree(folder)


@define(eq=False)
class RealStores:
    """The real adapters of one history, each the twin of a memory adapter."""

    server: RealServer
    database: Database
    folder: Path
    world: World = field(init=False)
    _shared: dict[str, Any] = field(factory=dict, init=False)
    """The real adapters that end with no process."""
    models: dict[str, Any] = field(factory=dict, init=False)
    """The memory adapters that have a twin, by the name of their port."""
    _now: str = field(default="", init=False)

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def attach(self, world: World) -> None:
        """Attach the stores to a history."""
        self.world = world
        world.watch(StateChecker(world, self))
        world.on_database_down.append(self._restart)

    def pair(self, name: str, model: Any, process: Process | None = None) -> Any:
        """Return a memory adapter with its real twin, if it has one."""
        if isinstance(model, Twin):
            return model
        known = self._shared if process is None else process.data.setdefault("real", {})
        twin = known.get(name)
        if twin is not None and twin._model is model:
            return twin
        real = self._create(name, model) if twin is None else twin._real
        if real is None:
            return model
        if twin is None and process is not None and isinstance(real, _WITH_FILES):
            process.on_death.append(real.close)
        if isinstance(real, PostgresTileMetadataStore):
            model.commit = partial(self._commit, real, model.commit)
        self.models[name] = model
        known[name] = Twin(name, model, real, self, alone=_ALONE.get(name, frozenset()))
        known[name] = create_twin(known[name])
        return known[name]

    def _create(self, name: str, model: Any) -> Any:
        """Return the real adapter for a memory adapter; ``None`` for what is simulated."""
        if name == "queue":
            return PostgresRunQueue(database=self.database)
        create = _find(_ADAPTERS, model)
        if create is not None:
            return create(self, model)
        assert not is_memory_adapter(model), f"{model} of the port {name} has no real twin"
        return None

    def open_twins(self) -> dict[str, Any]:
        """Return every memory adapter with a real one that no process has used."""
        real = {name: self._create(name, model) for name, model in self.models.items()}
        if isinstance(real.get("store"), PostgresWorkStore):
            real["store"] = PostgresWorkReader(database=self.database)
        return {
            name: create_twin(Twin(f"end of {name}", model, real[name], self))
            for name, model in self.models.items()
            if name != "queue"
        }

    def _commit(self, real: PostgresTileMetadataStore, commit: Any, show: Any) -> None:
        """Commit a group of tiles in both."""

        def show_both() -> None:
            show()
            self.follow_time()
            real._waiting = [
                row
                for tile, label in show.args[0]
                for row in build_rows(NewTiles.from_tile(tile), [label])
            ]
            try:
                real.flush()
            except Exception as error:  # noqa: BLE001  # whatever it is, it differs
                self.report(f"metadata.commit: memory has no error, real {error!r}")

        commit(show_both)

    def _restart(self) -> None:
        """End all connections, as a restart of the server does."""
        self.server.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()",
            str(self.database.engine.url.database),
        )

    def follow_time(self) -> None:
        """Write the time to the file that the server reads."""
        now = datetime.fromtimestamp(self.world.now(), UTC).isoformat()
        if now != self._now:
            self._now = now
            (self.folder / "now").write_text(now, encoding="ascii")

    def report(self, problem: str) -> None:
        """End the history with a violation."""
        self.world.fail("real stores", (), problem)


@define(eq=False)
class StateChecker(Checker):
    """At the end of a history, memory and real stores have the same content."""

    stores: RealStores

    def at_end(self) -> None:
        for name, twin in self.stores.open_twins().items():
            model = self.stores.models[name]
            read = _find(_CONTENTS, model)
            if read is not None:
                read(twin, model)


def _find(known: dict[type, Found], model: object) -> Found | None:
    """Return what is known about the class of an adapter, or about its base."""
    return next((known[kind] for kind in type(model).__mro__ if kind in known), None)


def _read_work(work: Any, model: MemoryWork) -> None:
    work.list_gates()
    work.get_loads()
    work.count_runs()
    work.find_partitions(PartitionFilter())
    for run in work.list_runs(RunFilter(), limit=1_000):
        work.list_attempts(run.run_id)
        work.find_raw(run.run_id)
    for key in model._books.partitions:
        work.list_partition_attempts(key)
        work.find_planned_retry(key)


def _read_journals(journals: Any, model: MemoryJournalStore) -> None:
    for name in model._contents:
        opened = journals.open(name)
        assert opened.complete or opened.count >= 0
        opened.close()


def _read_ledger(ledger: Any, _model: MemoryCacheLedger) -> None:
    with ledger.begin_transaction() as books:
        books.sum_reserved_bytes()
        books.iter_candidates()


_ADAPTERS: dict[type, Callable[[RealStores, Any], Any]] = {
    MemoryAbsentTiles: lambda on, _: PostgresAbsentTiles(database=on.database),
    MemoryAuditSink: lambda on, model: PostgresAuditLog(database=on.database, name=model.name),
    MemoryCacheLedger: lambda on, _: PostgresCacheLedger(database=on.database),
    MemoryCacheLock: lambda on, _: FileCacheLock(root=on.cache),
    MemoryEnvelopeStore: lambda on, _: PostgresEnvelopeStore(database=on.database),
    MemoryFdrClient: lambda on, _: FileFdrClient(root=on.cache, clock=on.world),
    MemoryFlightBook: lambda on, _: PostgresFlightBook(database=on.database, audited=False),
    MemoryIdempotencyStore: lambda on, _: PostgresIdempotencyStore(database=on.database),
    MemoryJournalStore: lambda on, _: FileJournalStore(root=on.cache, logger=LOGGER),
    MemoryRawSink: lambda on, _: FileRawSink(root=on.folder / "raw", clock=on.world, logger=LOGGER),
    MemorySpoolStore: lambda on, _: FileSpoolStore(root=on.cache),
    MemoryTileMetadataStore: lambda on, model: PostgresTileMetadataStore(
        database=on.database, clock=model.clock
    ),
    MemoryTileStore: lambda on, _: SegmentTileStore(
        root=on.cache, index=PostgresBlobIndex(on.database)
    ),
    MemoryWork: lambda on, _: PostgresWorkStore(database=on.database),
}
_CONTENTS: dict[type, Callable[[Any, Any], object]] = {
    MemoryAuditSink: lambda log, _: log.iter_entries(),
    MemoryCacheLedger: _read_ledger,
    MemoryEnvelopeStore: lambda envelopes, _: envelopes.list_open_envelopes("F1"),
    MemoryFdrClient: lambda recorder, _: recorder.records(),
    MemoryFlightBook: lambda flights, _: (flights.list_flights(), flights.measure_usage()),
    MemoryIdempotencyStore: lambda keys, model: [keys.find(key) for key in model._records],
    MemoryJournalStore: _read_journals,
    MemoryRawSink: lambda raw, model: [raw.find(*name) for name in model._partitions],
    MemoryTileMetadataStore: lambda rows, model: (
        rows.count(),
        rows.find_stored(list(model._tiles)),
    ),
    MemoryTileStore: lambda store, model: [
        store.read_tile(row.tile_id, blob=row.blob) for row in model._index.all_tiles()
    ],
    MemoryWork: _read_work,
}
"""Read all that a store has, from both; what differs is reported."""
