"""The queue of runs against procrastinate and a raw loop, and how it bears a million."""

import asyncio
import logging
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import procrastinate
import psycopg
from attrs import define, field
from procrastinate.types import JSONValue  # noqa: TC002  # of a local variable
from sqlalchemy import text

from benchmarks.cache_site import Site
from benchmarks.harness import Ratio, seconds_per_call
from tileferry.adapters.filesystem import FileRawSink
from tileferry.adapters.postgres import (
    Database,
    PostgresIdempotencyStore,
    PostgresRunQueue,
    PostgresWorkReader,
    PostgresWorkStore,
)
from tileferry.adapters.system import SystemClock, ThreadHeartbeat, new_run_id
from tileferry.application.control.key_expiry import KeyExpiry
from tileferry.application.control.partition_control import PartitionControl
from tileferry.application.control.run_control import RunControl
from tileferry.application.control.worker import RunResult, Worker, WorkerSettings
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.runs import Run, RunKind, Verdict, VerdictOutcome, WorkerId

BATCH = 100
RUNS, JOBS, ROUNDS = 5_000, 400, 7
MANY, FEW = 1_000_000, 1_000
PAYLOAD = '{"bbox":[2.0,48.0,2.1,48.1],"flight_id":"F1","version":1,"zoom_levels":[15,16]}'

FILL = """
    INSERT INTO runs (run_id, kind, source, priority, submitted_date, payload, status, ready)
    SELECT format('%%s-%%s', %(name)s::text, lpad(n::text, 8, '0')), 'download_area', 'osm', 0,
           now() + n * interval '1 microsecond', %(payload)s, 'discovered', true
    FROM generate_series(1, %(count)s) AS n
"""
GATE = "INSERT INTO source_gates VALUES ('osm', NULL, 100, now()) ON CONFLICT DO NOTHING"
RAW = """
    CREATE TABLE raw_runs (
        id bigint PRIMARY KEY, status text NOT NULL, submitted_date timestamptz NOT NULL,
        payload text NOT NULL, worker text, lease_expires_at timestamptz
    )
"""
RAW_INDEX = "CREATE INDEX ON raw_runs (submitted_date, id) WHERE status = 'queued'"
RAW_FILL = """
    INSERT INTO raw_runs SELECT n, 'queued', now() + n * interval '1 microsecond', %(payload)s
    FROM generate_series(1, %(count)s) AS n
"""
RAW_CLAIM = """
    UPDATE raw_runs SET status = 'processing', worker = 'w', lease_expires_at = now() + '1 min'
    WHERE id IN (
        SELECT id FROM raw_runs WHERE status = 'queued' ORDER BY submitted_date, id
        LIMIT %s FOR UPDATE SKIP LOCKED
    ) RETURNING id, payload
"""
RAW_COMPLETE = """
    UPDATE raw_runs SET status = 'passed', worker = NULL, lease_expires_at = NULL
    WHERE id = ANY (%s)
"""


@define
class Contest:
    """One Postgres, and all who work on it in turns."""

    url: str
    database: Database = field(init=False)
    connection: "psycopg.Connection[tuple[object, ...]]" = field(init=False)
    app: procrastinate.App = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.database = Database.from_url(self.url)
        self.connection = psycopg.connect(self.url, autocommit=True)
        self.connection.execute(RAW)
        self.connection.execute(RAW_INDEX)
        self.connection.execute(GATE)
        connector = procrastinate.PsycopgConnector(conninfo=self.url)
        self.app = procrastinate.App(connector=connector)
        self.app.task(name="no_op")(_no_op)

    async def prepare_peer(self) -> None:
        """Make the peer's tables."""
        async with self.app.open_async():
            await self.app.schema_manager.apply_schema_async()

    def close(self) -> None:
        """Hang up."""
        self.connection.close()
        self.database.close()

    def ours(self, batch: int, count: int) -> float:
        """Have our worker do so many runs; return runs a second."""
        self.connection.execute("DELETE FROM runs")
        self.connection.execute("VACUUM runs")
        values = {"name": "bench", "payload": PAYLOAD, "count": count}
        self.connection.execute(FILL, values)
        self._settle("runs")
        return _rate(count, worker_on(self.database, batch).run)

    def raw(self, batch: int, count: int) -> float:
        """Have a bare loop do so many."""
        self.connection.execute("TRUNCATE raw_runs")
        self.connection.execute(RAW_FILL, {"payload": PAYLOAD, "count": count})
        self._settle("raw_runs")

        def loop() -> None:
            while rows := self.connection.execute(RAW_CLAIM, (batch,)).fetchall():
                self.connection.execute(RAW_COMPLETE, ([row[0] for row in rows],))

        return _rate(count, loop)

    async def peer(self, count: int) -> float:
        """Have the peer's worker do so many."""
        app = self.app
        async with app.open_async():
            jobs: list[dict[str, JSONValue]] = [{"number": number} for number in range(count)]
            await app.tasks["no_op"].batch_defer_async(*jobs)
            self._settle("procrastinate_jobs")
            began_s = time.perf_counter()
            await app.run_worker_async(
                wait=False, listen_notify=False, install_signal_handlers=False
            )
            return count / (time.perf_counter() - began_s)

    def _settle(self, table: str) -> None:
        """Begin each round alike: statistics are there, and the last one's writes are done."""
        self.connection.execute(f"VACUUM ANALYZE {table}")
        self.connection.execute("CHECKPOINT")


def _no_op(number: int) -> None:  # a job has to have something
    pass


def worker_on(database: Database, batch: int) -> Worker:
    """Return a worker as the command has it, whose work is nothing."""
    logger = logging.getLogger("benchmarks.queue")
    queue = PostgresRunQueue(database=database)
    store = PostgresWorkStore(database=database)
    return Worker(
        name=WorkerId("bench"),
        queue=queue,
        control=RunControl(queue=queue, store=store, logger=logger, new_run_id=new_run_id),
        partitions=PartitionControl(
            store=store,
            raw=FileRawSink(root=Path("unused"), clock=SystemClock(), logger=logger),
            logger=logger,
            new_run_id=new_run_id,
        ),
        keys=KeyExpiry(store=PostgresIdempotencyStore(database=database)),
        handlers=dict.fromkeys(RunKind, _nothing),
        heartbeat=ThreadHeartbeat(),
        clock=SystemClock(),
        logger=logger,
        settings=WorkerSettings(batch=batch, until_idle=True),
    )


def _nothing(run: Run, _check: Callable[[], None], /) -> RunResult:
    return RunResult(verdict=Verdict(run_id=run.run_id, outcome=VerdictOutcome.PASSED))


def _rate(count: int, work: Callable[[], None]) -> float:
    began_s = time.perf_counter()
    work()
    return count / (time.perf_counter() - began_s)


def throughput(url: str) -> Iterator[Ratio]:
    """Claim and complete no-op runs, with the same batch, in turns."""
    contest = Contest(url)
    asyncio.run(contest.prepare_peer())
    rates: dict[str, list[float]] = {"ours": [], "raw": [], "peer": [], "ours1": [], "raw1": []}
    for _ in range(ROUNDS):
        rates["ours"].append(contest.ours(BATCH, RUNS))
        rates["raw"].append(contest.raw(BATCH, RUNS))
        rates["peer"].append(asyncio.run(contest.peer(JOBS)))
        rates["ours1"].append(contest.ours(1, JOBS))
        rates["raw1"].append(contest.raw(1, JOBS))
    contest.close()
    median = {name: statistics.median(values) for name, values in rates.items()}
    detail = ", ".join(f"{name} {rate:,.0f}/s" for name, rate in median.items())
    yield Ratio(
        name="no-op runs, of procrastinate's worker",
        ratio=median["ours"] / median["peer"],
        goal=60,
        at_least=True,
        detail=detail,
    )
    yield Ratio(
        name=f"no-op runs in batches of {BATCH}, of a raw loop",
        ratio=median["ours"] / median["raw"],
        goal=0.5,
        at_least=True,
    )
    yield Ratio(
        name="no-op runs one by one, of a raw loop",
        ratio=median["ours1"] / median["raw1"],
        goal=0.9,
        at_least=True,
    )


def filled(url: str, count: int) -> Database:
    """Queue so many runs, and have as many partitions that failed."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(GATE)
        connection.execute(FILL, {"name": "queued", "payload": PAYLOAD, "count": count})
        connection.execute(FAILED_RUNS, {"payload": PAYLOAD, "count": count})
        connection.execute("ALTER TABLE partitions DISABLE TRIGGER USER")
        connection.execute(PARTITIONS, {"count": count})
        connection.execute("ALTER TABLE partitions ENABLE TRIGGER USER")
        connection.execute(VERDICTS)
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")
    return Database.from_url(url)


FAILED_RUNS = """
    INSERT INTO runs (run_id, kind, source, priority, submitted_date, payload, status, ready,
                      lease_epoch, worker, began_at, ended_at, error_message)
    SELECT 'failed-' || lpad(n::text, 8, '0'), 'acquire_partition', 'sat', 0,
           now() - n * interval '1 second', %(payload)s, 'failed', false, 1, 'w', now(), now(),
           'bad'
    FROM generate_series(1, %(count)s) AS n
"""
PARTITIONS = """
    INSERT INTO partitions (source, customer_id, query_name, logical_date, status, attempt_count,
        last_run_id, error_message, created_at, updated_at, transition, changed_by)
    SELECT 'sat', 'c' || n / 1000, 'city', date '2020-01-01' + n %% 1000, 'failed', 1,
           'failed-' || lpad(n::text, 8, '0'), 'bad', now(), now(), 'reject', 'validator'
    FROM generate_series(1, %(count)s) AS n
"""
VERDICTS = """
    INSERT INTO partition_attempts
    SELECT id, 1, last_run_id, 'failed', 'bad', now() FROM partitions
"""


def sizes(few: Database, many: Database) -> Iterator[Ratio]:
    """Claim and inspect among few and among many, in turns."""
    worker = WorkerId("bench")
    lease = WorkerSettings().lease

    def claims(database: Database) -> Callable[[int], None]:
        queue = PostgresRunQueue(database=database)

        def claim(calls: int) -> None:
            for _ in range(calls):
                assert queue.claim(worker, limit=1, lease=lease)

        return claim

    def inspects(database: Database, count: int) -> Callable[[int], None]:
        reader = PostgresWorkReader(database=database)
        with database.read_connection() as connection:
            query = text("SELECT * FROM partitions ORDER BY id LIMIT 200 OFFSET :offset")
            rows = connection.execute(query, {"offset": count // 2}).all()
        keys = [
            PartitionKey(
                source=row.source,
                customer_id=row.customer_id,
                query_name=row.query_name,
                logical_date=row.logical_date,
            )
            for row in rows
        ]

        def inspect(calls: int) -> None:
            for key in keys[:calls]:
                partition = reader.find_partition(key)
                assert partition is not None
                reader.find_planned_retry(key)
                assert reader.list_partition_attempts(key)
                assert reader.list_attempts(partition.last_run_id)

        return inspect

    taken = seconds_per_call({"few": claims(few), "many": claims(many)}, calls=10, rounds=31)
    yield Ratio(
        name=f"claim with {MANY:,} queued, of {FEW:,}",
        ratio=taken["many"] / taken["few"],
        goal=2,
        detail=f"{taken['few'] * 1e3:.2f} ms and {taken['many'] * 1e3:.2f} ms",
    )
    looked = seconds_per_call(
        {"few": inspects(few, FEW), "many": inspects(many, MANY)}, calls=50, rounds=21
    )
    yield Ratio(
        name=f"inspect a partition of {MANY:,}, of {FEW:,}",
        ratio=looked["many"] / looked["few"],
        goal=1.5,
        detail=f"{looked['few'] * 1e3:.2f} ms and {looked['many'] * 1e3:.2f} ms",
    )


def run() -> Iterator[Ratio]:
    """All measurements of this file."""
    site = Site.prepared("queue")
    with ExitStack() as stack:
        _, url = stack.enter_context(site.place())
        yield from throughput(url)
    with ExitStack() as stack:
        databases = []
        for count in (FEW, MANY):
            _, url = stack.enter_context(site.place())
            databases.append(filled(url, count))
            stack.callback(databases[-1].close)
        yield from sizes(*databases)
