"""The store of the control plane: the run queue, units of work, and queries."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date, datetime, timedelta
from types import MappingProxyType
from typing import Protocol

from attrs import field, frozen

from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.runs import (
    Run,
    RunAttempt,
    RunId,
    RunKind,
    RunProgress,
    RunStatus,
    SourceGate,
    VerdictOutcome,
    WorkerId,
)
from tileferry.domain.state_machine import Change
from tileferry.domain.validation import aware, text

with import_on_call(globals()):  # not needed to list runs
    from tileferry.domain.partitions import Partition, PartitionKey, PartitionStatus
    from tileferry.domain.partitions.manifest import SealedPartition

ALL_KINDS = tuple(RunKind)
NO_PROGRESS: Mapping[RunId, RunProgress] = MappingProxyType({})


class RunQueue(Protocol):
    """The queue as workers use it. Times are those of the queue, not of the workers' clocks."""

    def claim(
        self,
        worker: WorkerId,
        *,
        limit: int,
        lease: timedelta,
        kinds: Sequence[RunKind] = ALL_KINDS,
        sources: Sequence[str] | None = None,
    ) -> Sequence[Run]:
        """Claim due runs for a worker, in fair order, each under a new epoch.

        ``sources`` limits the sources; ``None``: all. A run that has lost a worker is claimed
        alone. Retries take tokens of their source; see ``domain.runs.take_batch``.
        """
        ...

    def get_wait_s(
        self, *, kinds: Sequence[RunKind] = ALL_KINDS, sources: Sequence[str] | None = None
    ) -> float | None:
        """Return the seconds until the next queued run may start; ``None`` if none is queued.

        It is 0 while a run is due, even if that run still waits for a token, and while the lease of
        a run has expired: a sweep will queue that run.
        """
        ...

    def renew(
        self,
        held: Sequence[Run],
        *,
        lease: timedelta,
        progress: Mapping[RunId, RunProgress] = NO_PROGRESS,
    ) -> Sequence[RunId]:
        """Extend leases, store progress, and return the runs that the worker still holds.

        An expired lease is extended unless the run was rescued.
        """
        ...

    def find_cancelled(self, held: Sequence[Run]) -> Collection[RunId]:
        """Return those of the claimed runs that an operator cancelled under these claims."""
        ...

    def complete(self, ended: Sequence[Run]) -> Sequence[RunId]:
        """End passed runs, and return those that the worker still held, in the same order.

        Only for runs without a partition; other results need a ``WorkUnit``.
        """
        ...

    def exchange(
        self,
        ended: Sequence[Run],
        worker: WorkerId,
        *,
        limit: int,
        lease: timedelta,
        kinds: Sequence[RunKind] = ALL_KINDS,
        sources: Sequence[str] | None = None,
    ) -> tuple[Sequence[RunId], Sequence[Run]]:
        """``complete`` the ended runs and ``claim`` the next ones in one step."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait until runs may be due, or the time is over; return whether runs may be due."""
        ...


class UnitTime(Protocol):
    """The time of a unit of work."""

    @property
    def now(self) -> datetime:
        """The time at the store, the same during the whole unit."""
        ...


class RunUnit(UnitTime, Protocol):
    """Reads, locks and saves runs."""

    def run(self, run_id: RunId) -> Run | None:
        """Return a run."""
        ...

    def get_runs(self, run_ids: Sequence[RunId]) -> Mapping[RunId, Run]:
        """Return those of the runs that exist."""
        ...

    def find_unfinished(self, dedupe_key: str) -> Run | None:
        """Return the unfinished run with this key; until the unit ends, no other can be created."""
        ...

    def find_overdue(self, *, limit: int) -> Sequence[Run]:
        """Return runs whose lease expired; skip those that another unit has locked."""
        ...

    def save_run(self, change: Change[Run]) -> None:
        """Save a change of a run."""
        ...


class PartitionUnit(UnitTime, Protocol):
    """Reads, locks and saves partitions."""

    def get_partitions(self, keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, Partition]:
        """Return those that exist; until the unit ends, no other unit can create the rest."""
        ...

    def find_partition_by_run(self, run_id: RunId) -> Partition | None:
        """Return the partition whose newest run this is."""
        ...

    def find_due_partitions(self, *, limit: int) -> Sequence[Partition]:
        """Return failed partitions whose automatic retry is due; skip those that are locked.

        The earliest first; of those that are due at the same time, the one that was made first.
        """
        ...

    def save_partition(
        self, change: Change[Partition], *, retry: "PlannedRetry | None" = None
    ) -> None:
        """Save a change of a partition with its next automatic retry, if there is one."""
        ...

    def plan_retry(self, key: PartitionKey, retry: "PlannedRetry | None") -> None:
        """Replace the planned retry of a partition that has not changed."""
        ...


class GateUnit(UnitTime, Protocol):
    """Reads, locks and saves the gates of sources."""

    def get_gate(self, source: str) -> SourceGate:
        """Return the gate of a source."""
        ...

    def save_gate(self, gate: SourceGate) -> None:
        """Save a gate."""
        ...


class RawUnit(Protocol):
    """Records which runs sealed a raw partition."""

    def save_raw(self, sealed: SealedPartition) -> None:
        """Record a sealed raw partition; recording it again changes nothing."""
        ...


class WorkUnit(RunUnit, PartitionUnit, GateUnit, RawUnit, Protocol):
    """One transaction: its changes and their audit events are saved together, or not at all.

    Returned rows are locked until it ends. Always lock runs before partitions, to avoid deadlock.
    """


class WorkStore(Protocol):
    """Opens units of work."""

    def open_unit(self, *, by: str | None = None) -> AbstractContextManager[WorkUnit]:
        """Open a unit; it is committed when the block ends without an error. ``by`` is audited."""
        ...


@frozen(kw_only=True)
class PartitionAttempt:
    """One verdict of the validator."""

    attempt: int
    run_id: RunId
    outcome: VerdictOutcome
    explanation: str | None
    judged_at: datetime


@frozen(kw_only=True)
class PlannedRetry:
    """The time of a partition's automatic retry, and the rule that set it."""

    next_run_at: datetime = field(validator=aware)
    backoff_strategy: str = field(validator=text)


@frozen(kw_only=True)
class RunFilter:
    """Selects runs."""

    statuses: Sequence[RunStatus] = ()
    kinds: Sequence[RunKind] = ()
    source: str | None = None
    text: str | None = None
    """Part of the id, the dedupe key or the error; case-insensitive."""
    searched_max: int | None = None
    """Search the text in so many of the newest runs that match the rest; in all by default."""
    after: tuple[datetime, RunId] | None = None
    """Only runs after this submission in the list, to continue an earlier one."""

    def matches(self, run: Run) -> bool:
        """Return whether a run is selected."""
        written = " ".join(filter(None, (run.run_id, run.dedupe_key, run.error_message)))
        return (
            (not self.statuses or run.status in self.statuses)
            and (not self.kinds or run.kind in self.kinds)
            and self.source in {None, run.source}
            and (self.text is None or self.text.lower() in written.lower())
            and (self.after is None or (run.submitted_date, run.run_id) < self.after)
        )


@frozen(kw_only=True)
class PartitionFilter:
    """Selects partitions; fields that are not set do not restrict the selection."""

    source: str | None = None
    customer_id: str | None = None
    query_name: str | None = None
    first: date | None = None
    last: date | None = None
    statuses: Sequence[PartitionStatus] = ()
    after: PartitionKey | None = None
    """Only partitions after this key, in key order, to continue an earlier list."""

    def matches(self, partition: Partition) -> bool:
        """Return whether a partition is selected."""
        key = partition.key
        return (
            self.source in {None, key.source}
            and self.customer_id in {None, key.customer_id}
            and self.query_name in {None, key.query_name}
            and (self.first is None or key.logical_date >= self.first)
            and (self.last is None or key.logical_date <= self.last)
            and (not self.statuses or partition.status in self.statuses)
            and (self.after is None or get_sort_key(key) > get_sort_key(self.after))
        )


def get_sort_key(key: PartitionKey) -> tuple[str, str, str, date]:
    """Return the sort key of a partition in lists."""
    return key.source, key.customer_id, key.query_name, key.logical_date


@frozen(kw_only=True, order=True)
class PartitionQuery:
    """A customer's query of a source; its partitions differ only in their date."""

    source: str
    customer_id: str
    query_name: str

    def __str__(self) -> str:
        return f"{self.source}/{self.customer_id}/{self.query_name}"


@frozen(kw_only=True)
class SourceLoad:
    """The number of unfinished runs of one source."""

    ready: int
    """Runs that are due, including retries that wait for a token."""
    waiting: int
    """Runs whose next attempt is later."""
    under_way: int
    next_retry_at: datetime | None
    """The earliest attempt of the waiting runs."""


class RunRecords(Protocol):
    """Reads runs, without locks."""

    def find_run(self, run_id: RunId) -> Run | None:
        """Return a run."""
        ...

    def list_runs(self, wanted: RunFilter, *, limit: int) -> Sequence[Run]:
        """Return runs, the newest submission first."""
        ...

    def count_runs(self) -> Mapping[RunStatus, int]:
        """Return the number of runs by status."""
        ...

    def list_attempts(self, run_id: RunId) -> Sequence[RunAttempt]:
        """Return all attempts of a run, oldest first."""
        ...

    def get_progress(self, run_ids: Sequence[RunId]) -> Mapping[RunId, RunProgress]:
        """Return the progress of those runs whose workers have reported it."""
        ...


class SourceRecords(Protocol):
    """Reads the gates, tokens and queues of sources, without locks."""

    def list_gates(self) -> Sequence[tuple[SourceGate, float]]:
        """Return the gate of every source, and its retry tokens."""
        ...

    def get_loads(self) -> Mapping[str, SourceLoad]:
        """Return the queued work of every source that has a gate."""
        ...


class PartitionRecords(Protocol):
    """Reads partitions, without locks."""

    def find_partition(self, key: PartitionKey) -> Partition | None:
        """Return a partition."""
        ...

    def find_partitions(
        self, wanted: PartitionFilter, *, limit: int | None = None
    ) -> Iterator[Partition]:
        """Yield partitions in the order of their keys, a page at a time; ``None``: all."""
        ...

    def list_queries(
        self, *, after: PartitionQuery | None = None, limit: int
    ) -> Sequence[tuple[PartitionQuery, date, date]]:
        """Return queries with partitions, in order, each with its first and last date."""
        ...

    def list_partition_attempts(self, key: PartitionKey) -> Sequence[PartitionAttempt]:
        """Return the validator's verdicts on a partition, oldest first."""
        ...

    def find_planned_retry(self, key: PartitionKey) -> PlannedRetry | None:
        """Return the next automatic retry of a partition."""
        ...


class RawRecords(Protocol):
    """Reads which runs sealed a raw partition, without locks."""

    def has_raw(self, run_id: RunId) -> bool:
        """Return whether a run has a sealed raw partition."""
        ...

    def find_raw(self, run_id: RunId) -> SealedPartition | None:
        """Return the raw partition that a run sealed, as recorded."""
        ...


class WorkReader(RunRecords, SourceRecords, PartitionRecords, RawRecords, Protocol):
    """Reads everything about runs, sources and partitions; changes nothing."""

    def now(self) -> datetime:
        """Return the time at the store."""
        ...
