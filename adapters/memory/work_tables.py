"""The tables of the in-memory work store."""

from datetime import datetime

from attrs import define, field, fields

from tileferry.application.ports.work import PartitionAttempt, PlannedRetry
from tileferry.domain.partitions import Partition, PartitionKey, find_verdict
from tileferry.domain.partitions.manifest import SealedPartition
from tileferry.domain.retry import RetryBudget
from tileferry.domain.runs import (
    Run,
    RunAttempt,
    RunId,
    RunProgress,
    RunStatus,
    SourceGate,
    WorkerId,
    build_ended_attempt,
    has_ended,
    is_due,
)
from tileferry.domain.state_machine import Change


@define
class WorkTables:
    """Runs and partitions as dictionaries. A unit changes a copy, which replaces the original."""

    runs: dict[RunId, Run] = field(factory=dict)
    ready: set[RunId] = field(factory=set)
    holders: dict[RunId, tuple[WorkerId, datetime, datetime | None]] = field(factory=dict)
    """The worker, start and end of each run's newest attempt."""
    attempts: dict[RunId, tuple[RunAttempt, ...]] = field(factory=dict)
    gates: dict[str, SourceGate] = field(factory=dict)
    budgets: dict[str, RetryBudget] = field(factory=dict)
    partitions: dict[PartitionKey, Partition] = field(factory=dict)
    verdicts: dict[PartitionKey, tuple[PartitionAttempt, ...]] = field(factory=dict)
    retries: dict[PartitionKey, PlannedRetry] = field(factory=dict)
    raw: dict[RunId, SealedPartition] = field(factory=dict)
    progress: dict[RunId, RunProgress] = field(factory=dict)

    def copy(self) -> "WorkTables":
        """Return an independent copy."""
        return WorkTables(*[getattr(self, name).copy() for name in _NAMES])

    def find_unfinished(self, dedupe_key: str) -> Run | None:
        """Return the unfinished run with this key."""
        for run in self.runs.values():
            if run.dedupe_key == dedupe_key and not has_ended(run):
                return run
        return None

    def apply_run_change(self, change: Change[Run]) -> None:
        """Store a changed run and the attempt that the change ended."""
        run = change.after
        self.runs[run.run_id] = run
        if is_due(run, change.at):
            self.ready.add(run.run_id)
        else:
            self.ready.discard(run.run_id)
        if run.run_id not in self.holders:
            return
        worker, began_at, _ = self.holders[run.run_id]
        attempt = build_ended_attempt(change, began_at)
        if attempt is not None:
            self.attempts[run.run_id] = (*self.attempts.get(run.run_id, ()), attempt)
        self.progress.pop(run.run_id, None)
        if run.status is not RunStatus.PROCESSING:
            self.holders[run.run_id] = (worker, began_at, change.at)

    def apply_partition_change(self, change: Change[Partition], retry: PlannedRetry | None) -> None:
        """Store a changed partition, its planned retry and the verdict behind the change."""
        partition = change.after
        key = partition.key
        self.partitions[key] = partition
        self.retries.pop(key, None)
        if retry is not None:
            self.retries[key] = retry
        outcome = find_verdict(change)
        if outcome is not None:
            verdict = PartitionAttempt(
                attempt=partition.attempt_count,
                run_id=partition.last_run_id,
                outcome=outcome,
                explanation=change.reason,
                judged_at=change.at,
            )
            self.verdicts[key] = (*self.verdicts.get(key, ()), verdict)


_NAMES = tuple(item.name for item in fields(WorkTables))
