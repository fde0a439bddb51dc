"""Looking at runs and partitions: all that the books know of one, at about the same time."""

from collections.abc import Sequence
from datetime import datetime

from attrs import frozen

from tileferry.application.control.work_policies import WorkPolicies
from tileferry.application.ports.work import (
    PartitionAttempt,
    PlannedRetry,
    SourceLoad,
    WorkReader,
)
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions import (
    GivenUp,
    Partition,
    PartitionKey,
    given_up,
)
from tileferry.domain.runs import Run, RunAttempt, RunId, SourceGate

_NO_LOAD = SourceLoad(ready=0, waiting=0, under_way=0, next_retry_at=None)


@frozen(kw_only=True)
class InspectedSource:
    """How a source stands: whether its runs may start, and how many want to."""

    gate: SourceGate
    tokens: float
    """What its retries are paid from."""
    load: SourceLoad


@frozen(kw_only=True)
class InspectedRun:
    """A run with all of its attempts."""

    now: datetime
    run: Run
    attempts: Sequence[RunAttempt]


@frozen(kw_only=True)
class InspectedPartition:
    """A partition with its newest run, its verdicts, and what comes next."""

    now: datetime
    partition: Partition
    newest: InspectedRun
    verdicts: Sequence[PartitionAttempt]
    planned: PlannedRetry | None
    terminal: GivenUp | None
    has_raw: bool
    """Whether its newest run left a raw partition, without which an operator cannot retry it."""


@frozen(kw_only=True)
class Inspection:
    """Reads for people; nothing is locked, so what happens meanwhile may show in one part only."""

    books: WorkReader
    policies: WorkPolicies

    def run(self, run_id: RunId) -> InspectedRun:
        """Return what is known of a run."""
        run = self.books.find_run(run_id)
        if run is None:
            raise InvalidValueError(
                field="run_id",
                value=run_id,
                problem="names no run",
                remedy="see tileferry runs list",
            )
        return InspectedRun(now=self.books.now(), run=run, attempts=self.books.attempts(run_id))

    def partition(self, key: PartitionKey) -> InspectedPartition | None:
        """Return what is known of a partition, if it is."""
        partition = self.books.find_partition(key)
        if partition is None:
            return None
        now = self.books.now()
        return InspectedPartition(
            now=now,
            partition=partition,
            newest=self.run(partition.last_run_id),
            verdicts=self.books.partition_attempts(key),
            planned=self.books.planned_retry(key),
            terminal=self.terminal(partition, now),
            has_raw=self.books.has_raw(partition.last_run_id),
        )

    def terminal(self, partition: Partition, now: datetime) -> GivenUp | None:
        """Return why a failed partition is not tried again by itself, if it is not."""
        return given_up(partition, self.policies.terminality, now)

    def sources(self) -> Sequence[InspectedSource]:
        """Return every source, in the order of their names."""
        loads = self.books.loads()
        return [
            InspectedSource(gate=gate, tokens=tokens, load=loads.get(gate.source, _NO_LOAD))
            for gate, tokens in self.books.gates()
        ]

    def source(self, name: str) -> InspectedSource:
        """Return one source; one that no run was ever for is open and has nothing to do."""
        for source in self.sources():
            if source.gate.source == name:
                return source
        return InspectedSource(gate=SourceGate(source=name), tokens=0.0, load=_NO_LOAD)
