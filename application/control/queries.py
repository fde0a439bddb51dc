"""Looking at runs and partitions: all that the books know of one, at about the same time."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from attrs import evolve, frozen

from tileferry.application.control.policies import WorkPolicies
from tileferry.application.ports.raw_partitions import PartitionReader, RawSink, refuse_changed
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
from tileferry.domain.partitions import (
    Partition,
    PartitionGiveUpReason,
    PartitionKey,
    PartitionStatus,
    find_give_up_reason,
    get_readable_run,
)
from tileferry.domain.partitions.manifest import SealedPartition
from tileferry.domain.runs import Run, RunAttempt, RunId, SourceGate

_NO_LOAD = SourceLoad(ready=0, waiting=0, under_way=0, next_retry_at=None)


@frozen(kw_only=True)
class SourceDetails:
    """How a source stands: whether its runs may start, and how many want to."""

    gate: SourceGate
    tokens: float
    """What its retries are paid from."""
    load: SourceLoad


@frozen(kw_only=True)
class RunDetails:
    """A run with all of its attempts."""

    now: datetime
    run: Run
    attempts: Sequence[RunAttempt]


@frozen(kw_only=True)
class PartitionDetails:
    """A partition with its newest run, its verdicts, and what comes next."""

    now: datetime
    partition: Partition
    newest: RunDetails
    verdicts: Sequence[PartitionAttempt]
    planned: PlannedRetry | None
    terminal: PartitionGiveUpReason | None
    has_raw: bool
    """Whether its newest run left a raw partition, without which an operator cannot retry it."""


@frozen(kw_only=True)
class WorkInspector:
    """Reads for people; nothing is locked, so what happens meanwhile may show in one part only."""

    books: WorkReader
    policies: WorkPolicies

    def run(self, run_id: RunId) -> RunDetails:
        """Return what is known of a run."""
        run = self.books.find_run(run_id)
        if run is None:
            raise NotFoundError(what="run", name=run_id, remedy=Remedy.LIST_RUNS)
        return RunDetails(now=self.books.now(), run=run, attempts=self.books.list_attempts(run_id))

    def find_partition(self, key: PartitionKey) -> PartitionDetails | None:
        """Return what is known of a partition, if it is."""
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
            has_raw=self.books.has_raw(partition.last_run_id),
        )

    def find_terminal_reason(
        self, partition: Partition, now: datetime
    ) -> PartitionGiveUpReason | None:
        """Return why a failed partition is not tried again by itself, if it is not."""
        return find_give_up_reason(partition, self.policies.terminality, now)

    def iter_terminal(
        self, wanted: PartitionFilter
    ) -> Iterator[tuple[Partition, PartitionGiveUpReason]]:
        """Yield the failed partitions among ``wanted`` that nothing retries, and why."""
        now = self.books.now()
        failed = evolve(wanted, statuses=(PartitionStatus.FAILED,))
        for partition in self.books.find_partitions(failed):
            reason = self.find_terminal_reason(partition, now)
            if reason is not None:
                yield partition, reason

    def list_sources(self) -> Sequence[SourceDetails]:
        """Return every source, in the order of their names."""
        loads = self.books.get_loads()
        return [
            SourceDetails(gate=gate, tokens=tokens, load=loads.get(gate.source, _NO_LOAD))
            for gate, tokens in self.books.list_gates()
        ]

    def get_source(self, name: str) -> SourceDetails:
        """Return one source; one that no run was ever for is open and has nothing to do."""
        for source in self.list_sources():
            if source.gate.source == name:
                return source
        return SourceDetails(gate=SourceGate(source=name), tokens=0.0, load=_NO_LOAD)


@frozen(kw_only=True)
class PartitionDataReader:
    """The consumers' way to raw partitions; it starts no retry, and changes nothing."""

    partitions: PartitionRecords
    raw: RawRecords
    sink: RawSink

    def open(self, key: PartitionKey) -> AbstractContextManager[PartitionReader] | None:
        """Return a block in which the raw partition that speaks for ``key`` can be read."""
        sealed = self.find_readable(key)
        return None if sealed is None else self.sink.open_reader(sealed)

    def find_readable(self, key: PartitionKey) -> SealedPartition | None:
        """Return the raw partition that speaks for ``key``.

        ``None`` is a gap: it is unknown, pending or failed, and a consumer takes it as that. What
        the books vouch for and the sink does not have as it was sealed is refused.
        """
        partition = self.partitions.find_partition(key)
        run_id = None if partition is None else get_readable_run(partition)
        noted = None if run_id is None else self.raw.find_raw(run_id)
        if noted is not None and self.sink.find(key, noted.run_id) != noted:
            refuse_changed(noted)
        return noted
