"""Queries of runs, partitions, sources and raw partitions."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from attrs import evolve, frozen

from tileferry.application.control.policies import WorkPolicies
from tileferry.application.ports.raw_partitions import (
    PartitionReader,
    RawFinder,
    RawSink,
    refuse_changed,
)
from tileferry.application.ports.work import (
    PartitionAttempt,
    PartitionFilter,
    PartitionRecords,
    PlannedRetry,
    RawRecords,
    SourceLoad,
    WorkReader,
)
from tileferry.domain.errors import NotFoundError, Remedy
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.partitions import (
    Partition,
    PartitionGiveUpReason,
    PartitionKey,
    PartitionStatus,
    find_give_up_reason,
    get_readable_run,
)
from tileferry.domain.retry import RetryBudget
from tileferry.domain.runs import QUEUE_BUDGET, Run, RunAttempt, RunId, RunProgress, SourceGate

with import_on_call(globals()):
    from tileferry.domain.partitions.manifest import SealedPartition

_NO_LOAD = SourceLoad(ready=0, waiting=0, under_way=0, next_retry_at=None)


@frozen(kw_only=True)
class SourceDetails:
    """The state of a source: whether its runs may start, and how many are waiting."""

    gate: SourceGate
    budget: RetryBudget
    """The source's retry budget now."""
    load: SourceLoad

    @property
    def tokens(self) -> float:
        """The source's retry tokens."""
        return self.budget.tokens


@frozen(kw_only=True)
class RunDetails:
    """A run with all of its attempts."""

    now: datetime
    run: Run
    attempts: Sequence[RunAttempt]
    progress: RunProgress | None = None
    """As its worker last reported it; ``None`` unless the run is in progress."""


@frozen(kw_only=True)
class PartitionDetails:
    """A partition with its newest run, its verdicts and its next retry."""

    now: datetime
    partition: Partition
    newest: RunDetails
    verdicts: Sequence[PartitionAttempt]
    planned: PlannedRetry | None
    terminal: PartitionGiveUpReason | None
    has_raw: bool
    """Whether the sink has a raw partition of any of its runs; a retry requires one."""


@frozen(kw_only=True)
class WorkInspector:
    """Reads without locks, so a concurrent change may show in only one part of the result."""

    books: WorkReader
    raw: Callable[[], RawFinder]
    policies: WorkPolicies
    budget: RetryBudget = QUEUE_BUDGET
    """The limits of every source's retry budget."""

    def run(self, run_id: RunId) -> RunDetails:
        """Return a run with its attempts."""
        run = self.books.find_run(run_id)
        if run is None:
            raise NotFoundError(what="run", name=run_id, remedy=Remedy.LIST_RUNS)
        return RunDetails(
            now=self.books.now(),
            run=run,
            attempts=self.books.list_attempts(run_id),
            progress=self.books.get_progress([run_id]).get(run_id),
        )

    def find_partition(self, key: PartitionKey) -> PartitionDetails | None:
        """Return a partition with its history; ``None`` if it does not exist."""
        partition = self.books.find_partition(key)
        if partition is None:
            return None
        now = self.books.now()
        return PartitionDetails(
            now=now,
            partition=partition,
            newest=self.run(partition.last_run_id),
            verdicts=self.books.list_partition_attempts(key),
            planned=self.books.find_planned_retry(key),
            terminal=self.find_terminal_reason(partition, now),
            has_raw=self.raw().find_newest(key) is not None,
        )

    def find_terminal_reason(
        self, partition: Partition, now: datetime
    ) -> PartitionGiveUpReason | None:
        """Return why a failed partition is not retried automatically; ``None`` if it is."""
        return find_give_up_reason(partition, self.policies.terminality, now)

    def iter_terminal(
        self, wanted: PartitionFilter
    ) -> Iterator[tuple[Partition, PartitionGiveUpReason]]:
        """Yield the failed partitions among ``wanted`` that have no automatic retry, and why."""
        now = self.books.now()
        failed = evolve(wanted, statuses=(PartitionStatus.FAILED,))
        for partition in self.books.find_partitions(failed):
            reason = self.find_terminal_reason(partition, now)
            if reason is not None:
                yield partition, reason

    def list_sources(self) -> Sequence[SourceDetails]:
        """Return every source, ordered by name."""
        loads = self.books.get_loads()
        return [
            SourceDetails(
                gate=gate,
                budget=evolve(self.budget, tokens=tokens),
                load=loads.get(gate.source, _NO_LOAD),
            )
            for gate, tokens in self.books.list_gates()
        ]

    def get_source(self, name: str) -> SourceDetails:
        """Return one source; a source without runs is open and has no work."""
        for source in self.list_sources():
            if source.gate.source == name:
                return source
        return SourceDetails(gate=SourceGate(source=name), budget=self.budget, load=_NO_LOAD)


@frozen(kw_only=True)
class PartitionDataReader:
    """Read-only access to raw partitions for consumers; it never starts a retry."""

    partitions: PartitionRecords
    raw: RawRecords
    sink: RawSink

    def open(self, key: PartitionKey) -> AbstractContextManager[PartitionReader] | None:
        """Return a context manager that reads the raw partition of ``key``; ``None`` for a gap."""
        sealed = self.find_readable(key)
        return None if sealed is None else self.sink.open_reader(sealed)

    def find_readable(self, key: PartitionKey) -> SealedPartition | None:
        """Return the current raw partition of ``key``.

        ``None`` means a gap: the partition is unknown, pending or failed. A raw partition that the
        sink does not hold as it was sealed raises an error.
        """
        partition = self.partitions.find_partition(key)
        run_id = None if partition is None else get_readable_run(partition)
        noted = None if run_id is None else self.raw.find_raw(run_id)
        if noted is not None and self.sink.find(key, noted.run_id) != noted:
            refuse_changed(noted)
        return noted
