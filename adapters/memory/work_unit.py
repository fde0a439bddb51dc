"""A unit of work on the tables of the in-memory work store."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter

from attrs import define, evolve, field

from tileferry.adapters.memory.work_tables import WorkTables
from tileferry.application.control.audit_events import PastFailures, find_retried_runs
from tileferry.application.ports.work import PlannedRetry
from tileferry.domain.partitions import Partition, PartitionKey
from tileferry.domain.partitions.manifest import SealedPartition
from tileferry.domain.retry import RetryBudget
from tileferry.domain.runs import AttemptOutcome, Run, RunId, SourceGate, is_lease_expired
from tileferry.domain.state_machine import Change


@define(kw_only=True, eq=False)
class MemoryWorkUnit:
    """A unit of work on a copy of the tables."""

    books: WorkTables
    now: datetime
    budget: RetryBudget
    run_changes: list[Change[Run]] = field(factory=list, init=False)
    partition_changes: list[Change[Partition]] = field(factory=list, init=False)

    def run(self, run_id: RunId) -> Run | None:
        return self.books.runs.get(run_id)

    def get_runs(self, run_ids: Sequence[RunId]) -> Mapping[RunId, Run]:
        """Return the runs that exist, by id."""
        known = self.books.runs
        return {run_id: known[run_id] for run_id in run_ids if run_id in known}

    def find_unfinished(self, dedupe_key: str) -> Run | None:
        """Return the unfinished run with this key."""
        return self.books.find_unfinished(dedupe_key)

    def find_overdue(self, *, limit: int) -> Sequence[Run]:
        """Return runs with an expired lease, the earliest expiry first."""
        late = [run for run in self.books.runs.values() if is_lease_expired(run, self.now)]
        late.sort(key=lambda run: (run.lease_expires_at or self.now, run.run_id))
        return late[:limit]

    def get_gate(self, source: str) -> SourceGate:
        return self.books.gates.get(source) or SourceGate(source=source)

    def get_partitions(self, keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, Partition]:
        """Return the partitions that exist, by key."""
        known = self.books.partitions
        return {key: known[key] for key in keys if key in known}

    def find_partition_by_run(self, run_id: RunId) -> Partition | None:
        """Return the partition whose newest run this is."""
        for partition in self.books.partitions.values():
            if partition.last_run_id == run_id:
                return partition
        return None

    def find_due_partitions(self, *, limit: int) -> Sequence[Partition]:
        """Return failed partitions whose automatic retry is due, in the order of their times."""
        retries = self.books.retries
        due = [
            (retries[key].next_run_at, number, partition)
            for number, (key, partition) in enumerate(self.books.partitions.items())
            if key in retries and retries[key].next_run_at <= self.now
        ]
        return [partition for _, _, partition in sorted(due, key=itemgetter(0, 1))[:limit]]

    def collect_failures(self) -> dict[RunId, PastFailures]:
        """Return the failed attempts of the runs that end after one."""
        found = {}
        for run_id in find_retried_runs(self.run_changes):
            attempts = self.books.attempts.get(run_id, ())
            failed = [one for one in attempts if one.outcome is AttemptOutcome.ERROR]
            waited_s = sum(one.delay_s or 0.0 for one in failed)
            found[run_id] = PastFailures(count=len(failed), waited_s=waited_s)
        return found

    def save_run(self, change: Change[Run]) -> None:
        run = change.after
        if run.source not in self.books.gates:
            self.books.gates[run.source] = SourceGate(source=run.source)
            now_s = self.now.timestamp()
            self.books.budgets[run.source] = evolve(self.budget, updated_s=now_s)
        self.books.apply_run_change(change)
        self.run_changes.append(change)

    def save_partition(
        self, change: Change[Partition], *, retry: PlannedRetry | None = None
    ) -> None:
        """Save a change and replace the partition's planned retry."""
        self.books.apply_partition_change(change, retry)
        self.partition_changes.append(change)

    def plan_retry(self, key: PartitionKey, retry: PlannedRetry | None) -> None:
        """Replace a partition's planned retry; ``None`` removes it."""
        self.books.retries.pop(key, None)
        if retry is not None:
            self.books.retries[key] = retry

    def save_gate(self, gate: SourceGate) -> None:
        self.books.gates[gate.source] = gate

    def save_raw(self, sealed: SealedPartition) -> None:
        """Record a sealed raw partition; recording it again has no effect."""
        self.books.raw.setdefault(sealed.run_id, sealed)
