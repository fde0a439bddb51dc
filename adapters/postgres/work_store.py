"""Work store in Postgres: each unit is a transaction that includes its audit events."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from attrs import define, field
from sqlalchemy import Connection

from tileferry.adapters.postgres.audit_log import append_events
from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.partition_rows import (
    FORGET_RETRY,
    INSERT_PARTITION,
    INSERT_RAW,
    INSERT_VERDICT,
    PARTITION_COLUMNS,
    PLAN_RETRY,
    UPDATE_PARTITION,
    key_arrays,
    key_values,
    partition_from_row,
    to_partition_row,
    to_raw_row,
    to_verdict_row,
)
from tileferry.adapters.postgres.run_rows import (
    INSERT,
    INSERT_ATTEMPT,
    OPEN_GATE,
    RUN_COLUMNS,
    UPDATE,
    run_from_row,
    to_attempt_row,
    to_insert_row,
    to_update_row,
)
from tileferry.adapters.postgres.wake_ups import NOTIFY, WakeUps
from tileferry.application.control.audit_events import (
    PastFailures,
    build_unit_events,
    find_retried_runs,
)
from tileferry.application.ports.work import PlannedRetry
from tileferry.domain.partitions import Partition, PartitionKey
from tileferry.domain.partitions.manifest import SealedPartition
from tileferry.domain.retry import RetryBudget
from tileferry.domain.runs import QUEUE_BUDGET, Run, RunId, SourceGate, build_ended_attempt, is_due
from tileferry.domain.state_machine import Change


@define(kw_only=True, eq=False)
class PostgresWorkStore:
    """Opens units of work."""

    database: Database
    audited: bool = True
    """Whether units write audit events to this database; if false, they write none."""
    budget: RetryBudget = QUEUE_BUDGET
    start_grace: timedelta = timedelta()
    """How long after a start of the server no run is overdue. Its worker may still hold it: while
    the server was away, no lease could be renewed.
    """
    wake_ups: WakeUps = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.wake_ups = WakeUps(self.database)

    @contextmanager
    def open_unit(self, *, by: str | None = None) -> Iterator["PostgresWorkUnit"]:
        """Run a block as one unit; its changes and audit events are committed together."""
        with self.database.transaction() as connection:
            now = connection.exec_driver_sql(_NOW).scalar_one()
            unit = PostgresWorkUnit(
                connection=connection,
                now=now,
                tokens=self.budget.tokens,
                start_grace=self.start_grace,
                wake_ups=self.wake_ups,
            )
            yield unit
            unit.write()
            if self.audited:  # last: it blocks every other writer of the log
                failures = unit.collect_failures()
                append_events(
                    connection,
                    build_unit_events(unit.run_changes, unit.partition_changes, by, failures),
                )
        if unit.owes_wake_up:
            self.wake_ups.owe()


@define(kw_only=True, eq=False)
class PostgresWorkUnit:
    """A unit of work: reads lock rows; changes are written at the end, in foreign-key order."""

    connection: Connection
    now: datetime
    tokens: float
    """Initial retry tokens of a new source."""
    wake_ups: WakeUps
    start_grace: timedelta = timedelta()
    owes_wake_up: bool = field(default=False, init=False)
    """Whether workers must be notified after the commit."""
    run_changes: list[Change[Run]] = field(factory=list, init=False)
    partition_changes: list[Change[Partition]] = field(factory=list, init=False)
    _began: dict[RunId, datetime] = field(factory=dict, init=False)
    """When the newest attempt of each run that was read began."""
    _gates: list[SourceGate] = field(factory=list, init=False)
    _sealed: list[SealedPartition] = field(factory=list, init=False)
    _retries: dict[PartitionKey, PlannedRetry | None] = field(factory=dict, init=False)

    # Reading

    def run(self, run_id: RunId) -> Run | None:
        return next(iter(self._fetch_runs(_RUN, {"run_id": run_id})), None)

    def get_runs(self, run_ids: Sequence[RunId]) -> Mapping[RunId, Run]:
        """Return the runs that exist, by id."""
        found = self._fetch_runs(_SOME_RUNS, {"run_ids": list(run_ids)})
        return {run.run_id: run for run in found}

    def find_unfinished(self, dedupe_key: str) -> Run | None:
        """Return the unfinished run with this key; block others from creating one."""
        self._reserve([f"run {dedupe_key}"])
        return next(iter(self._fetch_runs(_UNFINISHED, {"dedupe_key": dedupe_key})), None)

    def find_overdue(self, *, limit: int) -> Sequence[Run]:
        """Return runs with an expired lease, the earliest expiry first."""
        return self._fetch_runs(_OVERDUE, {"limit": limit, "grace": self.start_grace})

    def get_gate(self, source: str) -> SourceGate:
        row = self.connection.exec_driver_sql(_GATE, {"source": source}).first()
        return SourceGate(source=source, closed_until=None if row is None else row.closed_until)

    def get_partitions(self, keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, Partition]:
        """Return the partitions that exist, by key; block others from creating the rest."""
        # One lock per query, not per date: a query can have many dates. Units that need other dates
        # of the query wait too.
        self._reserve({f"{key.source}/{key.customer_id}/{key.query_name}" for key in keys})
        rows = self.connection.exec_driver_sql(_PARTITIONS, key_arrays(keys))
        return {found.key: found for found in map(partition_from_row, rows)}

    def find_partition_by_run(self, run_id: RunId) -> Partition | None:
        """Return the partition whose newest run this is."""
        return self._fetch_partition(_PARTITION_OF, {"run_id": run_id})

    def find_due_partitions(self, *, limit: int) -> Sequence[Partition]:
        """Return failed partitions whose automatic retry is due."""
        rows = self.connection.exec_driver_sql(_DUE_PARTITIONS, {"limit": limit})
        return [partition_from_row(row) for row in rows]

    def _reserve(self, names: Iterable[str]) -> None:
        """Lock names until the end of the unit, so that no other unit creates the same rows.

        A row that does not exist yet cannot be locked itself.
        """
        for name in sorted(names):
            self.connection.exec_driver_sql(_RESERVE, {"name": name})

    def _fetch_runs(self, query: str, values: Mapping[str, object]) -> list[Run]:
        rows: Sequence[Any] = self.connection.exec_driver_sql(query, dict(values)).all()
        self._began.update((row.run_id, row.began_at) for row in rows if row.began_at is not None)
        return [run_from_row(row) for row in rows]

    def _fetch_partition(self, query: str, values: Mapping[str, object]) -> Partition | None:
        row = self.connection.exec_driver_sql(query, dict(values)).first()
        return None if row is None else partition_from_row(row)

    # Saving

    def save_run(self, change: Change[Run]) -> None:
        self.run_changes.append(change)

    def save_partition(
        self, change: Change[Partition], *, retry: PlannedRetry | None = None
    ) -> None:
        """Save a change and replace the partition's planned retry."""
        self.partition_changes.append(change)
        if change.before is not None:  # a new partition has no planned retry
            self._retries[change.after.key] = retry

    def plan_retry(self, key: PartitionKey, retry: PlannedRetry | None) -> None:
        """Replace a partition's planned retry; ``None`` removes it."""
        self._retries[key] = retry

    def save_gate(self, gate: SourceGate) -> None:
        self._gates.append(gate)

    def save_raw(self, sealed: SealedPartition) -> None:
        """Record a sealed raw partition; recording it again has no effect."""
        self._sealed.append(sealed)

    def write(self) -> None:
        """Write all saved changes: runs before partitions, which reference them."""
        self._write_runs()
        made = [change for change in self.partition_changes if change.before is None]
        moved = [change for change in self.partition_changes if change.before is not None]
        self._execute(INSERT_PARTITION, [to_partition_row(change) for change in made])
        self._execute(INSERT_RAW, [to_raw_row(sealed) for sealed in self._sealed])
        self._execute(UPDATE_PARTITION, [to_partition_row(change) for change in moved])
        verdicts = (to_verdict_row(change) for change in moved)
        self._execute(INSERT_VERDICT, [row for row in verdicts if row is not None])
        forgotten = [key_values(key) for key, retry in self._retries.items() if retry is None]
        self._execute(FORGET_RETRY, forgotten)
        self._execute(
            PLAN_RETRY,
            [
                {
                    **key_values(key),
                    "next_run_at": retry.next_run_at,
                    "backoff_strategy": retry.backoff_strategy,
                }
                for key, retry in self._retries.items()
                if retry is not None
            ],
        )

    def collect_failures(self) -> dict[RunId, PastFailures]:
        """Return the failed attempts of the runs that end after one."""
        run_ids = find_retried_runs(self.run_changes)
        if not run_ids:
            return {}
        rows = self.connection.exec_driver_sql(_FAILURES, {"run_ids": run_ids})
        return {
            RunId(row.run_id): PastFailures(count=row.failed, waited_s=row.waited_s) for row in rows
        }

    def _write_runs(self) -> None:
        made = [change for change in self.run_changes if change.before is None]
        moved = [change for change in self.run_changes if change.before is not None]
        sources = sorted({change.after.source for change in made})
        self._execute(OPEN_GATE, [{"source": name, "tokens": self.tokens} for name in sources])
        self._execute(INSERT, [to_insert_row(change) for change in made])
        self._execute(UPDATE, [to_update_row(change) for change in moved])
        ended = (
            build_ended_attempt(change, self._began[change.after.run_id])
            for change in moved
            if change.after.run_id in self._began
        )
        self._execute(INSERT_ATTEMPT, [to_attempt_row(one) for one in ended if one is not None])
        self._execute(
            _SAVE_GATE,
            [{"source": gate.source, "closed_until": gate.closed_until} for gate in self._gates],
        )
        if any(is_due(change.after, change.at) for change in self.run_changes):
            if self.wake_ups.begin_window():
                self.connection.exec_driver_sql(NOTIFY)
            else:
                self.owes_wake_up = True

    def _execute(self, statement: str, rows: Sequence[Mapping[str, object]]) -> None:
        if rows:
            self.connection.exec_driver_sql(statement, list(map(dict, rows)))


_NOW = "SELECT now()"
_RESERVE = "SELECT pg_advisory_xact_lock(hashtextextended(%(name)s, 0))"
_RUNS = f"SELECT {RUN_COLUMNS} FROM runs"  # noqa: S608  # interpolates constants only, here and below
_RUN = f"{_RUNS} WHERE run_id = %(run_id)s FOR UPDATE"
_SOME_RUNS = f"{_RUNS} WHERE run_id = ANY (%(run_ids)s) ORDER BY run_id FOR UPDATE"
_UNFINISHED = (
    f"{_RUNS} WHERE dedupe_key = %(dedupe_key)s"
    " AND (status IN ('discovered', 'processing') OR next_retry_at IS NOT NULL) FOR UPDATE"
)
# After a crash of one of its processes, a server restarts all but its first one.
_OVERDUE = (
    f"{_RUNS} WHERE lease_expires_at <= now()"  # noqa: S608
    " AND statement_timestamp() - greatest(pg_postmaster_start_time(),"
    " (SELECT backend_start FROM pg_stat_activity WHERE backend_type = 'checkpointer'))"
    " >= %(grace)s ORDER BY lease_expires_at, run_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED"
)
_FAILURES = (
    "SELECT run_id, count(*) AS failed, coalesce(sum(delay_s), 0.0) AS waited_s FROM run_attempts"
    " WHERE run_id = ANY (%(run_ids)s) AND outcome = 'error' GROUP BY run_id"
)
_GATE = "SELECT closed_until FROM source_gates WHERE source = %(source)s FOR UPDATE"
_SAVE_GATE = "UPDATE source_gates SET closed_until = %(closed_until)s WHERE source = %(source)s"
_PARTITIONS_FROM = f"SELECT {PARTITION_COLUMNS} FROM partitions"  # noqa: S608
_PARTITION_OF = f"{_PARTITIONS_FROM} WHERE last_run_id = %(run_id)s FOR UPDATE"
# Locks in id order, so that units with overlapping keys cannot deadlock.
_PARTITIONS = (
    f"{_PARTITIONS_FROM} JOIN unnest(CAST(%(sources)s AS text[]), CAST(%(customer_ids)s AS text[]),"
    " CAST(%(query_names)s AS text[]), CAST(%(logical_dates)s AS date[]))"
    " AS wanted(source, customer_id, query_name, logical_date)"
    " USING (source, customer_id, query_name, logical_date)"
    " ORDER BY id FOR UPDATE OF partitions"
)
_DUE_PARTITIONS = (
    f"{_PARTITIONS_FROM} JOIN partition_retries ON partition_id = id"
    " WHERE next_run_at <= now() AND status = 'failed'"
    " ORDER BY next_run_at, id LIMIT %(limit)s FOR UPDATE OF partitions SKIP LOCKED"
)
