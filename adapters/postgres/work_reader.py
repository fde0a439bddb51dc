"""Read-only queries on runs and partitions for operators, indexed and paged."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from attrs import frozen
from sqlalchemy import Row, Select, select, text, tuple_

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.partition_rows import (
    KEY_MATCHES,
    PARTITION_COLUMNS,
    key_values,
    partition_from_row,
    raw_from_row,
    verdict_from_row,
)
from tileferry.adapters.postgres.run_rows import RUN_COLUMNS, refill_budget, run_from_row
from tileferry.adapters.postgres.work_schema import partitions, runs
from tileferry.application.ports.work import (
    PartitionAttempt,
    PartitionFilter,
    PlannedRetry,
    RunFilter,
    SourceLoad,
    get_sort_key,
)
from tileferry.domain.partitions import Partition, PartitionKey
from tileferry.domain.partitions.manifest import SealedPartition
from tileferry.domain.retry import RetryBudget
from tileferry.domain.runs import (
    QUEUE_BUDGET,
    AttemptOutcome,
    Run,
    RunAttempt,
    RunId,
    RunProgress,
    RunStatus,
    SourceGate,
    WorkerId,
    build_newest_attempt,
)

PAGE_ROWS = 1_000


@frozen(kw_only=True)
class PostgresWorkReader:
    """Reads committed runs, partitions and gates without locks."""

    database: Database
    budget: RetryBudget = QUEUE_BUDGET

    def now(self) -> datetime:
        """Return the server's time."""
        with self.database.read_connection() as connection:
            now: datetime = connection.execute(text("SELECT now()")).scalar_one()
            return now

    # Runs

    def find_run(self, run_id: RunId) -> Run | None:
        row = self._fetch_first(_RUN, {"run_id": run_id})
        return None if row is None else run_from_row(row)

    def list_runs(self, wanted: RunFilter, *, limit: int) -> Sequence[Run]:
        """Return the matching runs, newest submission first."""
        query = select(*_RUN_COLUMNS).order_by(runs.c.submitted_date.desc(), runs.c.run_id.desc())
        if wanted.statuses:
            query = query.where(runs.c.status.in_(wanted.statuses))
        if wanted.kinds:
            query = query.where(runs.c.kind.in_(wanted.kinds))
        if wanted.source is not None:
            query = query.where(runs.c.source == wanted.source)
        with self.database.read_connection() as connection:
            return [run_from_row(row) for row in connection.execute(query.limit(limit))]

    def count_runs(self) -> Mapping[RunStatus, int]:
        """Return the number of runs by status."""
        with self.database.read_connection() as connection:
            return {RunStatus(row.status): row.number for row in connection.execute(_COUNTS)}

    def list_attempts(self, run_id: RunId) -> Sequence[RunAttempt]:
        """Return all attempts of a run: the failed ones and the newest."""
        with self.database.read_connection() as connection:
            row = connection.execute(_RUN, {"run_id": run_id}).first()
            ended = [
                _attempt_from_row(one) for one in connection.execute(_ATTEMPTS, {"id": run_id})
            ]
        unfinished = {RunStatus.ERROR, RunStatus.DISCOVERED}
        if row is None or row.began_at is None or row.status in unfinished:
            return ended
        newest = build_newest_attempt(
            run_from_row(row), WorkerId(row.worker), row.began_at, row.ended_at
        )
        return [*ended, newest]

    def get_progress(self, run_ids: Sequence[RunId]) -> Mapping[RunId, RunProgress]:
        """Return the progress that workers have reported."""
        with self.database.read_connection() as connection:
            rows = connection.execute(_PROGRESS, {"run_ids": list(run_ids)}).all()
        found = {RunId(row.run_id): RunProgress.from_json(json.loads(row.progress)) for row in rows}
        return {run_id: progress for run_id, progress in found.items() if progress is not None}

    def list_gates(self) -> Sequence[tuple[SourceGate, float]]:
        """Return each source's gate and its retry tokens."""
        with self.database.read_connection() as connection:
            return [self._gate_from_row(row) for row in connection.execute(_GATES)]

    def _gate_from_row(self, row: Row[Any]) -> tuple[SourceGate, float]:
        gate = SourceGate(source=row.source, closed_until=row.closed_until)
        return gate, refill_budget(self.budget, row).tokens

    def get_loads(self) -> Mapping[str, SourceLoad]:
        """Return the queued and running work of each source."""
        with self.database.read_connection() as connection:
            return {row.source: _load_from_row(row) for row in connection.execute(_LOADS)}

    # Partitions

    def find_partition(self, key: PartitionKey) -> Partition | None:
        row = self._fetch_first(_PARTITION, key_values(key))
        return None if row is None else partition_from_row(row)

    def find_partitions(self, wanted: PartitionFilter) -> Iterator[Partition]:
        """Yield the matching partitions, sorted by key."""
        table = partitions.c
        key = tuple_(table.source, table.customer_id, table.query_name, table.logical_date)
        query = _build_partition_query(wanted).order_by(*key.clauses).limit(PAGE_ROWS)
        page = query if wanted.after is None else query.where(key > get_sort_key(wanted.after))
        while True:
            with self.database.read_connection() as connection:
                found = [partition_from_row(row) for row in connection.execute(page)]
            yield from found
            if len(found) < PAGE_ROWS:
                return
            page = query.where(key > get_sort_key(found[-1].key))

    def list_partition_attempts(self, key: PartitionKey) -> Sequence[PartitionAttempt]:
        """Return the validator's verdicts on a partition, oldest first."""
        with self.database.read_connection() as connection:
            return [verdict_from_row(row) for row in connection.execute(_VERDICTS, key_values(key))]

    def find_planned_retry(self, key: PartitionKey) -> PlannedRetry | None:
        """Return a partition's planned automatic retry, if there is one."""
        row = self._fetch_first(_PLANNED, key_values(key))
        if row is None:
            return None
        return PlannedRetry(next_run_at=row.next_run_at, backoff_strategy=row.backoff_strategy)

    def has_raw(self, run_id: RunId) -> bool:
        """Return whether a run sealed a raw partition."""
        with self.database.read_connection() as connection:
            return bool(connection.execute(_HAS_RAW, {"run_id": run_id}).scalar_one())

    def find_raw(self, run_id: RunId) -> SealedPartition | None:
        """Return the raw partition that a run sealed, if there is one."""
        row = self._fetch_first(_RAW, {"run_id": run_id})
        return None if row is None else raw_from_row(row)

    def _fetch_first(self, query: Any, values: Mapping[str, object]) -> Row[Any] | None:
        with self.database.read_connection() as connection:
            return connection.execute(query, values).first()


def _build_partition_query(wanted: PartitionFilter) -> Select[Any]:
    table = partitions.c
    query = select(partitions)
    for column, value in (
        (table.source, wanted.source),
        (table.customer_id, wanted.customer_id),
        (table.query_name, wanted.query_name),
    ):
        if value is not None:
            query = query.where(column == value)
    if wanted.first is not None:
        query = query.where(table.logical_date >= wanted.first)
    if wanted.last is not None:
        query = query.where(table.logical_date <= wanted.last)
    if wanted.statuses:
        query = query.where(table.status.in_(wanted.statuses))
    return query


def _load_from_row(row: Row[Any]) -> SourceLoad:
    return SourceLoad(
        ready=row.ready,
        waiting=row.waiting,
        under_way=row.under_way,
        next_retry_at=row.next_retry_at,
    )


def _attempt_from_row(row: Row[Any]) -> RunAttempt:
    return RunAttempt(
        run_id=RunId(row.run_id),
        epoch=row.epoch,
        worker=WorkerId(row.worker),
        began_at=row.began_at,
        ended_at=row.ended_at,
        outcome=AttemptOutcome(row.outcome),
        error_class=row.error_class,
        error_message=row.error_message,
        delay_s=row.delay_s,
    )


_RUN_COLUMNS = [runs.c[name] for name in RUN_COLUMNS.split(", ")]
_RUN = text(f"SELECT {RUN_COLUMNS} FROM runs WHERE run_id = :run_id")  # noqa: S608  # interpolates constants only, here and below
_ATTEMPTS = text("SELECT * FROM run_attempts WHERE run_id = :id ORDER BY epoch")
_HAS_RAW = text("SELECT EXISTS (SELECT FROM raw_partitions WHERE run_id = :run_id)")
_PROGRESS = text(
    "SELECT run_id, progress FROM runs WHERE run_id = ANY (:run_ids) AND progress IS NOT NULL"
)
_COUNTS = text("SELECT status, count(*) AS number FROM runs GROUP BY status")
_GATES = text("SELECT *, now() AS now FROM source_gates ORDER BY source")
_MINE = "FROM runs WHERE runs.source = g.source"
_WAITING = f"{_MINE} AND next_retry_at IS NOT NULL AND NOT ready"
_LOADS = text(
    f"SELECT source, (SELECT count(*) {_MINE} AND ready) AS ready,"  # noqa: S608
    f" (SELECT count(*) {_WAITING}) AS waiting,"
    f" (SELECT min(next_retry_at) {_WAITING}) AS next_retry_at,"
    f" (SELECT count(*) {_MINE} AND lease_expires_at IS NOT NULL) AS under_way"
    " FROM source_gates AS g ORDER BY source"
)
_PARTITION = text(f"SELECT {PARTITION_COLUMNS} FROM partitions WHERE {KEY_MATCHES}")  # noqa: S608
_OF_IT = f"= (SELECT id FROM partitions WHERE {KEY_MATCHES})"  # noqa: S608
_VERDICTS = text(
    f"SELECT * FROM partition_attempts WHERE partition_id {_OF_IT} ORDER BY attempt"  # noqa: S608
)
_PLANNED = text(f"SELECT * FROM partition_retries WHERE partition_id {_OF_IT}")  # noqa: S608
_RAW = text(
    "SELECT * FROM raw_partitions JOIN partitions ON id = partition_id WHERE run_id = :run_id"
)
