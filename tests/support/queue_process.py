"""A process that works on a queue until all of it has ended, or until it is killed."""

import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import psycopg
from attrs import define, field, frozen

from support.control_plane import RecordedRuns
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
from tileferry.application.control.policies import WorkPolicies
from tileferry.application.control.run_control import RunControl
from tileferry.application.control.worker import RunResult, Worker, WorkerSettings
from tileferry.domain.errors import DatabaseError, StorageError
from tileferry.domain.retry import RetryBudget, RetryPolicy, build_quarantine_policy
from tileferry.domain.runs import Run, RunKind, RunStatus, Verdict, VerdictOutcome, WorkerId

LOST_LEASE = 4
POLICIES = WorkPolicies(
    run=RetryPolicy(max_attempts=8, base_delay=0.05, max_delay=0.2, jitter_enabled=False),
    quarantine=build_quarantine_policy(999),
)
CREATE_HANDLED_TABLE = """
    CREATE TABLE handled (
        run_id text COLLATE "C" NOT NULL, epoch bigint NOT NULL, worker text NOT NULL,
        began_at timestamptz NOT NULL DEFAULT clock_timestamp(), ended_at timestamptz,
        PRIMARY KEY (run_id, epoch)
    )
"""


_OUTAGE_S_MAX = 60.0


@define(eq=False)
class Notebook:
    """Where handlers note what they do; it waits for a database that restarts."""

    url: str
    _connection: "psycopg.Connection[object] | None" = field(default=None, init=False)

    def write(self, statement: str, values: tuple[object, ...]) -> None:
        deadline_s = time.monotonic() + _OUTAGE_S_MAX
        while True:
            try:
                if self._connection is None:
                    self._connection = psycopg.connect(self.url, autocommit=True)
                self._connection.execute(statement.encode(), values)
            except psycopg.OperationalError:
                self._connection = None
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.05)
            else:
                return


@frozen(kw_only=True)
class QueuePlan:
    """Whose queue it is, and how it is worked on."""

    database_url: str
    lease_s: float
    sweep_s: float
    batch: int = 10
    errors_share: float = 0.05
    work_s: float = 0.012


def create_run_control(database: Database) -> RunControl:
    """The use cases, with retries that come soon and are never short of tokens."""
    budget = RetryBudget(capacity=1e6)
    return RunControl(
        queue=PostgresRunQueue(database=database, budget=budget),
        store=PostgresWorkStore(database=database, budget=budget),
        logger=logging.getLogger("test.queue"),
        new_run_id=new_run_id,
        policies=POLICIES,
    )


def execute_worker(plan: QueuePlan, name: str) -> None:
    """Work until no run is left that has not ended."""
    database = Database.from_url(plan.database_url)
    control = create_run_control(database)
    reader = PostgresWorkReader(database=database)
    notebook = Notebook(plan.database_url)
    worker = Worker(
        name=WorkerId(name),
        queue=control.queue,
        control=control,
        partitions=PartitionControl(
            store=control.store,
            raw=RecordedRuns(reader),
            logger=control.logger,
            new_run_id=new_run_id,
        ),
        keys=KeyExpiry(store=PostgresIdempotencyStore(database=database)),
        handlers=dict.fromkeys(RunKind, partial(_handle, plan, notebook)),
        heartbeat=ThreadHeartbeat(),
        clock=SystemClock(),
        logger=control.logger,
        settings=WorkerSettings(
            lease_s=plan.lease_s,
            batch=plan.batch,
            poll_s=0.05,
            sweep_s=plan.sweep_s,
            until_idle=True,
        ),
    )
    while not _all_ended(reader):
        with suppress(DatabaseError):  # gone while the last results were reported
            worker.run()
        time.sleep(0.02)


def _all_ended(reader: PostgresWorkReader) -> bool:
    try:
        counts = reader.count_runs()
        return not (counts.keys() - {RunStatus.PASSED, RunStatus.ERROR}) and not any(
            row for row in _list_waiting_runs(reader)
        )
    except DatabaseError:  # it may be restarting
        return False


def _list_waiting_runs(reader: PostgresWorkReader) -> list[str]:
    with reader.database.read_connection() as connection:
        rows = connection.exec_driver_sql(
            "SELECT run_id FROM runs WHERE next_retry_at IS NOT NULL LIMIT 1"
        )
        return [row.run_id for row in rows]


def _handle(
    plan: QueuePlan, notebook: "Notebook", run: Run, check: Callable[[], None], /
) -> RunResult:
    """Note when the work on a run begins and ends; in between it takes its time, or breaks."""
    place = (run.run_id, run.lease_epoch)
    notebook.write(
        "INSERT INTO handled (run_id, epoch, worker) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        (*place, run.lease_owner),
    )
    chance = random.Random(f"{place}")  # noqa: S311  # a repeatable test, not a secret
    time.sleep(chance.uniform(0, 2 * plan.work_s))
    check()
    if chance.random() < plan.errors_share:
        raise StorageError(action="write", path="x", problem="full", remedy="wait")
    notebook.write(
        "UPDATE handled SET ended_at = clock_timestamp() WHERE run_id = %s AND epoch = %s", place
    )
    return RunResult(verdict=Verdict(run_id=run.run_id, outcome=VerdictOutcome.PASSED))
