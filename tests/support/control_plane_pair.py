"""The books in Postgres and in memory side by side: one clock, the same steps, the same answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import psycopg
import pytest
from attrs import define, field, frozen
from sqlalchemy import text
from sqlalchemy.engine import make_url

from support.control_plane import ControlPlane
from tileferry.adapters.memory import ManualClock, MemoryAuditSink, MemoryWork
from tileferry.adapters.postgres import (
    Database,
    PostgresAuditLog,
    PostgresRunQueue,
    PostgresWorkReader,
    PostgresWorkStore,
)
from tileferry.application.control.policies import WorkPolicies
from tileferry.application.ports.work import (
    PartitionAttempt,
    PartitionFilter,
    PlannedRetry,
    RunFilter,
)
from tileferry.domain.audit import event_from_bytes
from tileferry.domain.errors import TileManagerError
from tileferry.domain.partitions import Partition, PartitionKey, PartitionStatus
from tileferry.domain.retry import RetryBudget
from tileferry.domain.runs import (
    Run,
    RunAttempt,
    RunId,
    RunKind,
    SourceGate,
    has_ended,
)

START = datetime(2026, 3, 2, tzinfo=UTC)
T = TypeVar("T")
_ALL = 10_000
_TABLES = (
    "runs, run_attempts, source_gates, partitions, raw_partitions, partition_attempts,"
    " partition_retries"
)


@frozen(kw_only=True)
class Snapshot:
    """All that the books say, at one time."""

    runs: Mapping[RunId, Run]
    attempts: Mapping[RunId, Sequence[RunAttempt]]
    raw: frozenset[RunId]
    partitions: Mapping[PartitionKey, Partition]
    verdicts: Mapping[PartitionKey, Sequence[PartitionAttempt]]
    planned: Mapping[PartitionKey, PlannedRetry | None]
    gates: Sequence[SourceGate]
    tokens: Sequence[float]
    events: int

    @classmethod
    def from_control_plane(
        cls, control_plane: ControlPlane, earlier: "Snapshot | None" = None
    ) -> "Snapshot":
        """Read everything; what is kept of runs that are as they were earlier, only once."""
        reader = control_plane.reader
        runs = {run.run_id: run for run in reader.list_runs(RunFilter(), limit=_ALL)}
        old = {} if earlier is None else earlier.attempts
        known = {} if earlier is None else earlier.runs
        changed = [run_id for run_id, run in runs.items() if known.get(run_id) != run]
        raw = frozenset() if earlier is None else earlier.raw
        partitions = {one.key: one for one in reader.find_partitions(PartitionFilter())}
        gates = reader.list_gates()
        return cls(
            runs=runs,
            attempts={**old, **{run_id: list(reader.list_attempts(run_id)) for run_id in changed}},
            raw=raw | {run_id for run_id in changed if reader.has_raw(run_id)},
            partitions=partitions,
            verdicts={key: list(reader.list_partition_attempts(key)) for key in partitions},
            planned={key: reader.find_planned_retry(key) for key in partitions},
            gates=[gate for gate, _ in gates],
            tokens=[tokens for _, tokens in gates],
            events=len(control_plane.events()),
        )

    def check_same(self, other: "Snapshot") -> None:
        """See that two are the same in everything, the times included."""
        for name in ("runs", "attempts", "raw", "partitions", "verdicts", "planned", "gates"):
            assert getattr(self, name) == getattr(other, name), name
        assert self.tokens == pytest.approx(other.tokens)
        assert self.events == other.events


def check_step(before: Snapshot, after: Snapshot) -> None:
    """See that nothing went back that only ever goes on."""
    assert before.runs.keys() <= after.runs.keys()
    for run_id, run in before.runs.items():
        assert 0 <= after.runs[run_id].lease_epoch - run.lease_epoch <= 1
        assert after.runs[run_id].rescues >= run.rescues
        assert after.runs[run_id].submitted_date == run.submitted_date
    assert before.raw <= after.raw
    for wanted, partition in before.partitions.items():
        now = after.partitions[wanted]
        verdicts = now.attempt_count - partition.attempt_count
        assert verdicts in {0, 1}
        assert after.verdicts[wanted][: partition.attempt_count] == before.verdicts[wanted]
        if partition.status is PartitionStatus.SUCCESS:
            assert now.status is PartitionStatus.SUCCESS
        if now.current_run_id != partition.current_run_id:
            assert verdicts == 1
            assert now.current_run_id == partition.active_run_id


def check_snapshot(books: Snapshot) -> None:
    """See that runs and partitions tell one story."""
    active = [one.active_run_id for one in books.partitions.values() if one.active_run_id]
    unfinished = [
        run.run_id
        for run in books.runs.values()
        if run.kind is RunKind.ACQUIRE_PARTITION and not has_ended(run)
    ]
    assert sorted(active) == sorted(unfinished)
    keys = [run.dedupe_key for run in books.runs.values() if not has_ended(run)]
    assert len(keys) == len(set(keys))
    for wanted, partition in books.partitions.items():
        assert partition.attempt_count == len(books.verdicts[wanted])
        assert partition.current_run_id is None or partition.current_run_id in books.raw
        if books.planned[wanted] is not None:
            assert partition.status is PartitionStatus.FAILED


@define(kw_only=True)
class ControlPlanePair:
    """Both desks. What one refuses, the other must refuse in the same words."""

    database: Database
    postgres: ControlPlane
    memory: ControlPlane
    _clock: ManualClock = field(repr=False)

    def run_on_both(self, act: Callable[[ControlPlane], T]) -> T | TileManagerError:
        """Do something at both, and return what came of it."""
        in_postgres, in_memory = _run_or_catch(self.postgres, act), _run_or_catch(self.memory, act)
        assert _to_comparable(in_postgres) == _to_comparable(in_memory)
        return in_postgres

    def pass_time(self, seconds: float) -> None:
        """Let time pass for both."""
        self._clock.advance(seconds)
        with self.database.transaction() as connection:
            connection.execute(
                text("UPDATE set_time.clock SET at = at + :passed"),
                {"passed": timedelta(seconds=seconds)},
            )

    def compare_snapshots(self, earlier: Snapshot | None = None) -> Snapshot:
        """Return what both say, which must be the same."""
        snapshot = Snapshot.from_control_plane(self.postgres, earlier)
        snapshot.check_same(Snapshot.from_control_plane(self.memory, earlier))
        return snapshot

    def check_audit(self) -> None:
        """See that both have told the audit the same, to the byte."""
        told = [
            [event.canonical_bytes() for event in desk.events()]
            for desk in (self.postgres, self.memory)
        ]
        assert told[0] == told[1]


def _run_or_catch(
    control_plane: ControlPlane, act: Callable[[ControlPlane], T]
) -> T | TileManagerError:
    try:
        return act(control_plane)
    except TileManagerError as refusal:
        return refusal


def _to_comparable(outcome: Any) -> Any:
    if isinstance(outcome, TileManagerError):
        return type(outcome), str(outcome)
    return list(outcome) if isinstance(outcome, Sequence) else outcome


@contextmanager
def open_with_manual_clock(url: str) -> Iterator[Database]:
    """Have a database take the time from a table: our clocks are found before its own."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA set_time")
        connection.execute("CREATE TABLE set_time.clock (at timestamptz NOT NULL)")
        connection.execute("INSERT INTO set_time.clock VALUES (%s)", (START,))
        for clock in ("now", "clock_timestamp"):
            connection.execute(
                f"CREATE FUNCTION set_time.{clock}() RETURNS timestamptz LANGUAGE sql STABLE"  # noqa: S608  # names of ours
                " AS 'SELECT at FROM set_time.clock'"
            )
        name = make_url(url).database
        connection.execute(
            f'ALTER DATABASE "{name}" SET search_path = set_time, pg_catalog, public'.encode()
        )
    database = Database.from_url(url)
    try:
        yield database
    finally:
        database.close()


def create_pair(
    database: Database, *, policies: WorkPolicies, budget: RetryBudget
) -> ControlPlanePair:
    """Begin anew in both, at the same time; the audit of Postgres alone goes on."""
    with database.transaction() as connection:
        # Past the triggers that keep what is there.
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(text(f"TRUNCATE {_TABLES}"))
        connection.execute(text("UPDATE set_time.clock SET at = :at"), {"at": START})
    clock, sink, log = (
        ManualClock(START.timestamp()),
        MemoryAuditSink(),
        PostgresAuditLog(database=database),
    )
    head = log.read_head().sequence
    work = MemoryWork(clock=clock, audit_sink=sink, budget=budget)
    postgres = ControlPlane(
        queue=PostgresRunQueue(database=database, budget=budget),
        store=PostgresWorkStore(database=database, budget=budget),
        reader=PostgresWorkReader(database=database, budget=budget),
        pass_time=clock.advance,
        events=lambda: [event_from_bytes(entry.body) for entry in log.iter_entries(after=head)],
        policies=policies,
    )
    memory = ControlPlane(
        queue=work,
        store=work,
        reader=work,
        pass_time=clock.advance,
        events=lambda: sink.events,
        policies=policies,
    )
    return ControlPlanePair(database=database, postgres=postgres, memory=memory, clock=clock)
