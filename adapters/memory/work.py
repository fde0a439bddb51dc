"""In-memory run queue, work store and work reader, built on the domain rules."""

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import RLock

from attrs import define, evolve, field

from tileferry.adapters.memory.event_logs import MemoryAuditSink
from tileferry.adapters.memory.work_tables import WorkTables
from tileferry.application.audit import build_unit_events
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.work import (
    ALL_KINDS,
    PartitionAttempt,
    PartitionFilter,
    PlannedRetry,
    RunFilter,
    SourceLoad,
    get_sort_key,
)
from tileferry.domain.errors import IllegalTransitionError
from tileferry.domain.partitions import Partition, PartitionKey
from tileferry.domain.partitions.manifest import SealedPartition
from tileferry.domain.retry import RetryBudget
from tileferry.domain.runs import (
    QUEUE_BUDGET,
    Run,
    RunAttempt,
    RunId,
    RunKind,
    RunStatus,
    SourceGate,
    Verdict,
    VerdictOutcome,
    WorkerId,
    admit_due_retries,
    build_newest_attempt,
    claim,
    complete,
    is_lease_expired,
    renew,
    select_eligible,
    take_batch,
)
from tileferry.domain.state_machine import Actor, Change


@define(kw_only=True, eq=False)
class MemoryWork:
    """Run queue, work store and reader in one object."""

    clock: Clock
    audit_sink: MemoryAuditSink | None = None
    budget: RetryBudget = QUEUE_BUDGET
    _books: WorkTables = field(factory=WorkTables, init=False)
    _guard: RLock = field(factory=RLock, init=False)

    # Queue

    def claim(
        self,
        worker: WorkerId,
        *,
        limit: int,
        lease: timedelta,
        kinds: Sequence[RunKind] = ALL_KINDS,
        sources: Sequence[str] | None = None,
    ) -> Sequence[Run]:
        """Claim due runs for a worker."""
        with self._guard:
            now, books = self.now(), self._books
            for source, gate in books.gates.items():
                if gate.is_open(now):
                    self._admit_due_retries(source, now)
            ready = (
                run
                for run in map(books.runs.__getitem__, books.ready)
                if sources is None or run.source in sources
            )
            ordered = select_eligible(ready, now, books.gates.values(), kinds=kinds)
            return [self._claim_run(run, worker, now, lease) for run in take_batch(ordered, limit)]

    def _claim_run(self, run: Run, worker: WorkerId, now: datetime, lease: timedelta) -> Run:
        books = self._books
        taken = claim(run, actor=Actor.WORKER, owner=worker, now=now, lease=lease).after
        books.ready.remove(run.run_id)
        books.runs[run.run_id] = taken
        books.holders[run.run_id] = (worker, now, None)
        if taken.lease_epoch == 1:
            books.budgets[run.source] = books.budgets[run.source].earn()
        return taken

    def _admit_due_retries(self, source: str, now: datetime) -> None:
        books = self._books
        waiting = [
            run
            for run_id, run in books.runs.items()
            if run.source == source and run_id not in books.ready and run.next_retry_at is not None
        ]
        budget = books.budgets[source].refill(now.timestamp())
        woken = admit_due_retries(waiting, budget, now)
        if woken:
            books.budgets[source] = budget.spend(len(woken))
            books.ready.update(run.run_id for run in woken)

    def renew(self, held: Sequence[Run], *, lease: timedelta) -> Sequence[RunId]:
        """Extend leases; return the runs that the worker still held."""
        with self._guard:
            return [run.run_id for run in held if self._renew_run(run, lease)]

    def _renew_run(self, held: Run, lease: timedelta) -> bool:
        assert held.lease_owner is not None  # noqa: S101  # a claimed run has an owner
        try:
            change = renew(
                self._books.runs[held.run_id],
                actor=Actor.WORKER,
                owner=held.lease_owner,
                epoch=held.lease_epoch,
                now=self.now(),
                lease=lease,
            )
        except IllegalTransitionError:
            return False
        self._books.runs[held.run_id] = change.after
        return True

    def complete(self, ended: Sequence[Run]) -> Sequence[RunId]:
        """Mark runs as passed; return those that the worker still held."""
        with self._guard:
            return [run.run_id for run in ended if self._complete_run(run)]

    def _complete_run(self, held: Run) -> bool:
        assert held.lease_owner is not None  # noqa: S101  # as above
        try:
            change = complete(
                self._books.runs[held.run_id],
                Verdict(run_id=held.run_id, outcome=VerdictOutcome.PASSED),
                actor=Actor.WORKER,
                owner=held.lease_owner,
                epoch=held.lease_epoch,
                now=self.now(),
            )
        except IllegalTransitionError:
            return self._has_passed(held)
        self._books.apply_run_change(change)
        return True

    def _has_passed(self, held: Run) -> bool:
        """Return whether this claim has already completed the run."""
        known = self._books.runs[held.run_id]
        return (known.status, known.lease_epoch, self._books.holders[held.run_id][0]) == (
            RunStatus.PASSED,
            held.lease_epoch,
            held.lease_owner,
        )

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
        """Complete runs and claim the next ones, in one step."""
        with self._guard:
            kept = self.complete(ended)
            return kept, self.claim(worker, limit=limit, lease=lease, kinds=kinds, sources=sources)

    def wait(self, seconds: float) -> bool:
        """Sleep; there are no notifications in memory."""
        self.clock.sleep(seconds)
        return False

    # Units of work

    @contextmanager
    def open_unit(self, *, by: str | None = None) -> Iterator["MemoryWorkUnit"]:
        """Run a block as one unit on a copy of the tables; replace them if it succeeds."""
        with self._guard:
            unit = MemoryWorkUnit(books=self._books.copy(), now=self.now(), budget=self.budget)
            yield unit
            if self.audit_sink is not None:
                self.audit_sink.emit(
                    build_unit_events(unit.run_changes, unit.partition_changes, by)
                )
            self._books = unit.books

    # Reader

    def now(self) -> datetime:
        """Return the clock's time."""
        return datetime.fromtimestamp(self.clock.now(), UTC)

    def find_run(self, run_id: RunId) -> Run | None:
        return self._books.runs.get(run_id)

    def list_runs(self, wanted: RunFilter, *, limit: int) -> Sequence[Run]:
        """Return the matching runs, newest submission first."""
        found = [
            run
            for run in self._books.runs.values()
            if (not wanted.statuses or run.status in wanted.statuses)
            and (not wanted.kinds or run.kind in wanted.kinds)
            and wanted.source in {None, run.source}
        ]
        found.sort(key=lambda run: (run.submitted_date, run.run_id), reverse=True)
        return found[:limit]

    def count_runs(self) -> Mapping[RunStatus, int]:
        """Return the number of runs by status."""
        statuses = [run.status for run in self._books.runs.values()]
        return {status: statuses.count(status) for status in set(statuses)}

    def list_attempts(self, run_id: RunId) -> Sequence[RunAttempt]:
        """Return all attempts of a run: the failed ones and the newest."""
        books = self._books
        ended = books.attempts.get(run_id, ())
        run, holder = books.runs.get(run_id), books.holders.get(run_id)
        if run is None or holder is None or run.status is RunStatus.ERROR:
            return ended
        return (*ended, build_newest_attempt(run, *holder))

    def list_gates(self) -> Sequence[tuple[SourceGate, float]]:
        """Return each source's gate and its retry tokens."""
        now_s = self.now().timestamp()
        books = self._books
        return [
            (gate, books.budgets[source].refill(now_s).tokens)
            for source, gate in sorted(books.gates.items())
        ]

    def get_loads(self) -> Mapping[str, SourceLoad]:
        """Return the queued and running work of each source."""
        return {source: self._count_load(source) for source in self._books.gates}

    def _count_load(self, source: str) -> SourceLoad:
        books = self._books
        mine = [run for run in books.runs.values() if run.source == source]
        ready = [run for run in mine if run.run_id in books.ready]
        retries = [run.next_retry_at for run in mine if run.run_id not in books.ready]
        times = [moment for moment in retries if moment is not None]
        return SourceLoad(
            ready=len(ready),
            waiting=len(times),
            under_way=sum(run.status is RunStatus.PROCESSING for run in mine),
            next_retry_at=min(times, default=None),
        )

    def find_partition(self, key: PartitionKey) -> Partition | None:
        return self._books.partitions.get(key)

    def find_partitions(self, wanted: PartitionFilter) -> Iterator[Partition]:
        """Yield the matching partitions, sorted by key."""
        known = self._books.partitions
        for key in sorted(known, key=get_sort_key):
            if wanted.matches(known[key]):
                yield known[key]

    def list_partition_attempts(self, key: PartitionKey) -> Sequence[PartitionAttempt]:
        """Return the validator's verdicts on a partition, oldest first."""
        return self._books.verdicts.get(key, ())

    def find_planned_retry(self, key: PartitionKey) -> PlannedRetry | None:
        """Return a partition's planned automatic retry, if there is one."""
        return self._books.retries.get(key)

    def has_raw(self, run_id: RunId) -> bool:
        """Return whether a run sealed a raw partition."""
        return run_id in self._books.raw

    def find_raw(self, run_id: RunId) -> SealedPartition | None:
        """Return the raw partition that a run sealed, if there is one."""
        return self._books.raw.get(run_id)


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
        """Return failed partitions whose automatic retry is due."""
        due = [
            (retry.next_run_at, str(key))
            for key, retry in self.books.retries.items()
            if retry.next_run_at <= self.now
        ]
        keys = {str(key): key for key in self.books.retries}
        return [self.books.partitions[keys[name]] for _, name in sorted(due)[:limit]]

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

    def find_runs_with_raw(self, run_ids: Sequence[RunId]) -> Container[RunId]:
        """Return the ids of the runs that sealed a raw partition."""
        return self.books.raw.keys() & set(run_ids)
