"""Read-only queries on runs and partitions for operators, indexed and paged."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from attrs import astuple, frozen

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.partition_rows import (
    KEY_COLUMNS,
    KEY_MATCHES,
    PARTITION_COLUMNS,
    key_values,
    partition_from_row,
    raw_from_row,
    verdict_from_row,
)
from tileferry.adapters.postgres.run_rows import RUN_COLUMNS, refill_budget, run_from_row
from tileferry.application.ports.work import (
    PartitionAttempt,
    PartitionFilter,
    PartitionQuery,
    PlannedRetry,
    RunFilter,
    SourceLoad,
)
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.partitions import Partition, PartitionKey
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

with import_on_call(globals()):
    from tileferry.domain.partitions.manifest import SealedPartition

PAGE_ROWS = 1_000


@frozen(kw_only=True)
class PostgresWorkReader:
    """Reads committed runs, partitions and gates without locks."""

    database: Database
    budget: RetryBudget = QUEUE_BUDGET

    def now(self) -> datetime:
        """Return the server's time."""
        now: datetime = self.database.fetch_rows("SELECT now()")[0][0]
        return now

    # Runs

    def find_run(self, run_id: RunId) -> Run | None:
        row = self._fetch_first(_RUN, {"run_id": run_id})
        return None if row is None else run_from_row(row)

    def list_runs(self, wanted: RunFilter, *, limit: int) -> Sequence[Run]:
        """Return the matching runs, newest submission first."""
        values: dict[str, object] = {
            "statuses": list(map(str, wanted.statuses)),
            "kinds": list(map(str, wanted.kinds)),
            "source": wanted.source,
            "text": wanted.text,
            "limit": limit,
            "searched_max": wanted.searched_max,
        }
        if wanted.after is not None:
            values["after_date"], values["after_id"] = wanted.after
        conditions = [
            condition
            for condition, applies in (
                ("status = ANY (%(statuses)s)", wanted.statuses),
                (_HAS_LEASE, list(wanted.statuses) == [RunStatus.PROCESSING]),
                ("kind = ANY (%(kinds)s)", wanted.kinds),
                ("source = %(source)s", wanted.source is not None),
                ("(submitted_date, run_id) < (%(after_date)s, %(after_id)s)", wanted.after),
            )
            if applies
        ]
        query = f"{_RUNS}{_where(conditions)} {_NEWEST_FIRST}"
        if wanted.text is not None:  # without a maximum, LIMIT NULL is none
            query = _SEARCH.format(runs=f"{_RUNS}{_where(conditions)}")
        return [run_from_row(row) for row in self.database.fetch_rows(query, values)]

    def count_runs(self) -> Mapping[RunStatus, int]:
        """Return the number of runs by status."""
        return {RunStatus(row.status): row.number for row in self.database.fetch_rows(_COUNTS)}

    def list_attempts(self, run_id: RunId) -> Sequence[RunAttempt]:
        """Return all attempts of a run: the failed ones and the newest."""
        row = self._fetch_first(_RUN, {"run_id": run_id})
        rows = self.database.fetch_rows(_ATTEMPTS, {"id": run_id})
        ended = [_attempt_from_row(one) for one in rows]
        unfinished = {RunStatus.ERROR, RunStatus.DISCOVERED}
        if row is None or row.began_at is None or row.status in unfinished:
            return ended
        newest = build_newest_attempt(
            run_from_row(row), WorkerId(row.worker), row.began_at, row.ended_at
        )
        return [*ended, newest]

    def get_progress(self, run_ids: Sequence[RunId]) -> Mapping[RunId, RunProgress]:
        """Return the progress that workers have reported."""
        rows = self.database.fetch_rows(_PROGRESS, {"run_ids": list(run_ids)})
        found = {RunId(row.run_id): RunProgress.from_json(json.loads(row.progress)) for row in rows}
        return {run_id: progress for run_id, progress in found.items() if progress is not None}

    def list_gates(self) -> Sequence[tuple[SourceGate, float]]:
        """Return each source's gate and its retry tokens."""
        return [self._gate_from_row(row) for row in self.database.fetch_rows(_GATES)]

    def _gate_from_row(self, row: Any) -> tuple[SourceGate, float]:
        gate = SourceGate(source=row.source, closed_until=row.closed_until)
        return gate, refill_budget(self.budget, row).tokens

    def get_loads(self) -> Mapping[str, SourceLoad]:
        """Return the queued and running work of each source."""
        return {row.source: _load_from_row(row) for row in self.database.fetch_rows(_LOADS)}

    # Partitions

    def find_partition(self, key: PartitionKey) -> Partition | None:
        row = self._fetch_first(_PARTITION, key_values(key))
        return None if row is None else partition_from_row(row)

    def find_partitions(
        self, wanted: PartitionFilter, *, limit: int | None = None
    ) -> Iterator[Partition]:
        """Yield the matching partitions, sorted by key."""
        after, left = wanted.after, limit
        while True:
            query, values = _build_partition_query(wanted, after)
            rows_max = PAGE_ROWS if left is None else min(left, PAGE_ROWS)
            rows = self.database.fetch_rows(query, {**values, "limit": rows_max})
            found = [partition_from_row(row) for row in rows]
            yield from found
            left = None if left is None else left - len(found)
            if len(found) < PAGE_ROWS or left == 0:
                return
            after = found[-1].key

    def list_queries(
        self, *, after: PartitionQuery | None = None, limit: int
    ) -> Sequence[tuple[PartitionQuery, date, date]]:
        """Return queries with their first and last date; the index is not read in full."""
        start = ("", "", "") if after is None else astuple(after)
        values = dict(zip(("source", "customer_id", "query_name"), start, strict=True))
        rows = self.database.fetch_rows(_QUERIES, {**values, "limit": limit})
        return [
            (
                PartitionQuery(
                    source=row.source, customer_id=row.customer_id, query_name=row.query_name
                ),
                row.first,
                row.last,
            )
            for row in rows
        ]

    def list_partition_attempts(self, key: PartitionKey) -> Sequence[PartitionAttempt]:
        """Return the validator's verdicts on a partition, oldest first."""
        return [
            verdict_from_row(row) for row in self.database.fetch_rows(_VERDICTS, key_values(key))
        ]

    def find_planned_retry(self, key: PartitionKey) -> PlannedRetry | None:
        """Return a partition's planned automatic retry, if there is one."""
        row = self._fetch_first(_PLANNED, key_values(key))
        if row is None:
            return None
        return PlannedRetry(next_run_at=row.next_run_at, backoff_strategy=row.backoff_strategy)

    def has_raw(self, run_id: RunId) -> bool:
        """Return whether a run sealed a raw partition."""
        return bool(self.database.fetch_rows(_HAS_RAW, {"run_id": run_id})[0][0])

    def find_raw(self, run_id: RunId) -> SealedPartition | None:
        """Return the raw partition that a run sealed, if there is one."""
        row = self._fetch_first(_RAW, {"run_id": run_id})
        return None if row is None else raw_from_row(row)

    def _fetch_first(self, query: str, values: Mapping[str, object]) -> Any | None:
        return next(iter(self.database.fetch_rows(query, values)), None)


def _build_partition_query(
    wanted: PartitionFilter, after: PartitionKey | None
) -> tuple[str, dict[str, object]]:
    """Return the query of a page that begins behind a key, and its parameters."""
    conditions = {
        "source = %(source)s": wanted.source,
        "customer_id = %(customer_id)s": wanted.customer_id,
        "query_name = %(query_name)s": wanted.query_name,
        "logical_date >= %(first)s": wanted.first,
        "logical_date <= %(last)s": wanted.last,
        "status = ANY (%(statuses)s)": list(map(str, wanted.statuses)) or None,
        f"({KEY_COLUMNS}) > (%(after_source)s, %(after_customer_id)s, %(after_query_name)s,"
        " %(after_logical_date)s)": after,
    }
    values: dict[str, object] = {
        "source": wanted.source,
        "customer_id": wanted.customer_id,
        "query_name": wanted.query_name,
        "first": wanted.first,
        "last": wanted.last,
        "statuses": list(map(str, wanted.statuses)),
    }
    if after is not None:
        values |= {f"after_{name}": value for name, value in key_values(after).items()}
    where = _where([text for text, value in conditions.items() if value is not None])
    return f"{_PARTITIONS}{where} ORDER BY {KEY_COLUMNS} LIMIT %(limit)s", values


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _load_from_row(row: Any) -> SourceLoad:
    return SourceLoad(
        ready=row.ready,
        waiting=row.waiting,
        under_way=row.under_way,
        next_retry_at=row.next_retry_at,
    )


def _attempt_from_row(row: Any) -> RunAttempt:
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


_RUNS = f"SELECT {RUN_COLUMNS} FROM runs"  # noqa: S608  # interpolates constants only, here and below
_NEWEST_FIRST = "ORDER BY submitted_date DESC, run_id DESC LIMIT %(limit)s"
_HAS_LEASE = "lease_expires_at IS NOT NULL"
"""True of every run in progress; an index has just these."""
_HAS_TEXT = "strpos(lower(concat_ws(' ', run_id, dedupe_key, error_message)), lower(%(text)s)) > 0"
_SEARCH = f"""
    SELECT * FROM (
        {{runs}} ORDER BY submitted_date DESC, run_id DESC LIMIT %(searched_max)s
    ) AS searched WHERE {_HAS_TEXT} {_NEWEST_FIRST}
"""  # noqa: S608  # interpolates constants only
_RUN = f"{_RUNS} WHERE run_id = %(run_id)s"
_ATTEMPTS = "SELECT * FROM run_attempts WHERE run_id = %(id)s ORDER BY epoch"
_HAS_RAW = "SELECT EXISTS (SELECT FROM raw_partitions WHERE run_id = %(run_id)s)"
_PROGRESS = (
    "SELECT run_id, progress FROM runs WHERE run_id = ANY (%(run_ids)s) AND progress IS NOT NULL"
)
_COUNTS = "SELECT status, count(*) AS number FROM runs GROUP BY status"
_GATES = "SELECT *, now() AS now FROM source_gates ORDER BY source"
_MINE = "FROM runs WHERE runs.source = g.source"
_WAITING = f"{_MINE} AND next_retry_at IS NOT NULL AND NOT ready"
_LOADS = (
    f"SELECT source, (SELECT count(*) {_MINE} AND ready) AS ready,"  # noqa: S608
    f" (SELECT count(*) {_WAITING}) AS waiting,"
    f" (SELECT min(next_retry_at) {_WAITING}) AS next_retry_at,"
    f" (SELECT count(*) {_MINE} AND lease_expires_at IS NOT NULL) AS under_way"
    " FROM source_gates AS g ORDER BY source"
)
_PARTITIONS = f"SELECT {PARTITION_COLUMNS} FROM partitions"  # noqa: S608
_QUERY_COLUMNS = "source, customer_id, query_name"
_NEXT_QUERY = f"SELECT {_QUERY_COLUMNS} FROM partitions AS p WHERE ({_QUERY_COLUMNS}) >"  # noqa: S608
_DATE_OF_QUERY = (
    "(SELECT {}(logical_date) FROM partitions AS p WHERE p.source = q.source"
    " AND p.customer_id = q.customer_id AND p.query_name = q.query_name)"
)
# A step of the recursion finds the next query in the index, so the partitions between are skipped.
_QUERIES = (
    "WITH RECURSIVE queries AS ("  # noqa: S608
    f"({_NEXT_QUERY} (%(source)s, %(customer_id)s, %(query_name)s)"
    f" ORDER BY {_QUERY_COLUMNS} LIMIT 1)"
    " UNION ALL SELECT n.* FROM queries AS q CROSS JOIN LATERAL ("
    f"{_NEXT_QUERY} (q.source, q.customer_id, q.query_name)"
    f" ORDER BY {_QUERY_COLUMNS} LIMIT 1) AS n"
    f") SELECT q.*, {_DATE_OF_QUERY.format('min')} AS first, {_DATE_OF_QUERY.format('max')} AS last"
    f" FROM (SELECT * FROM queries LIMIT %(limit)s) AS q ORDER BY {_QUERY_COLUMNS}"
)
_PARTITION = f"{_PARTITIONS} WHERE {KEY_MATCHES}"
_OF_IT = f"= (SELECT id FROM partitions WHERE {KEY_MATCHES})"  # noqa: S608
_VERDICTS = f"SELECT * FROM partition_attempts WHERE partition_id {_OF_IT} ORDER BY attempt"  # noqa: S608
_PLANNED = f"SELECT * FROM partition_retries WHERE partition_id {_OF_IT}"  # noqa: S608
_RAW = "SELECT * FROM raw_partitions JOIN partitions ON id = partition_id WHERE run_id = %(run_id)s"
