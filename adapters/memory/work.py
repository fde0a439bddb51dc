"""In-memory run queue, work store and work reader, built on the domain rules."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from threading import RLock

from attrs import define, evolve, field

from tileferry.adapters.memory.event_logs import MemoryAuditSink
from tileferry.adapters.memory.work_tables import WorkTables
from tileferry.adapters.memory.work_unit import MemoryWorkUnit
from tileferry.application.control.audit_events import build_unit_events
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.work import (
    ALL_KINDS,
    NO_PROGRESS,
    PartitionAttempt,
    PartitionFilter,
    PartitionQuery,
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
    AttemptOutcome,
    Run,
    RunAttempt,
    RunId,
    RunKind,
    RunProgress,
    RunStatus,
    SourceGate,
    Verdict,
    VerdictOutcome,
    WorkerId,
    admit_due_retries,
    build_newest_attempt,
    claim,
    complete,
    compute_wait_s,
    is_due,
    renew,
    select_eligible,
    take_batch,
)
from tileferry.domain.state_machine import Actor


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
            wanted = books.gates.keys() if sources is None else books.gates.keys() & set(sources)
            for source in wanted:
                if books.gates[source].is_open(now):
                    self._admit_due_retries(source, now)
            ready = (
                run for run in map(books.runs.__getitem__, books.ready) if run.source in wanted
            )
            ordered = select_eligible(ready, now, books.gates.values(), kinds=kinds)
            allowed = {source: books.budgets[source].retries_allowed for source in wanted}
            batch = take_batch(ordered, limit, allowed)
            for run in batch:  # first: what new runs earn may be lost in a full bucket
                if run.needs_token:
                    books.budgets[run.source] = books.budgets[run.source].spend()
            return [self._claim_run(run, worker, now, lease) for run in batch]

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
        """Put due retries into the line of their source, and refill its tokens."""
        books = self._books
        due = [
            run
            for run in books.runs.values()
            if run.source == source and run.next_retry_at is not None and is_due(run, now)
        ]
        if due:
            books.budgets[source] = books.budgets[source].refill(now.timestamp())
            waiting = (run for run in due if run.run_id not in books.ready)
            books.ready.update(run.run_id for run in admit_due_retries(waiting, now))

    def get_wait_s(
        self, *, kinds: Sequence[RunKind] = ALL_KINDS, sources: Sequence[str] | None = None
    ) -> float | None:
        """Return the seconds until the next queued run may start."""
        runs = [
            run
            for run in self._books.runs.values()
            if run.kind in kinds and (sources is None or run.source in sources)
        ]
        return compute_wait_s(runs, self.now(), self._books.gates.values())

    def renew(
        self,
        held: Sequence[Run],
        *,
        lease: timedelta,
        progress: Mapping[RunId, RunProgress] = NO_PROGRESS,
    ) -> Sequence[RunId]:
        """Extend leases and store progress; return the runs that the worker still held."""
        with self._guard:
            renewed = [run.run_id for run in held if self._renew_run(run, lease)]
            known = {run_id: progress[run_id] for run_id in renewed if run_id in progress}
            self._books.progress.update(known)
            return renewed

    def find_cancelled(self, held: Sequence[Run]) -> Collection[RunId]:
        """Return the runs that an operator cancelled under these claims."""
        cancelled = {
            (attempt.run_id, attempt.epoch)
            for run in held
            for attempt in self._books.attempts.get(run.run_id, ())
            if attempt.outcome is AttemptOutcome.CANCELLED
        }
        return {run.run_id for run in held if (run.run_id, run.lease_epoch) in cancelled}

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
    def open_unit(self, *, by: str | None = None) -> Iterator[MemoryWorkUnit]:
        """Run a block as one unit on a copy of the tables; replace them if it succeeds."""
        with self._guard:
            unit = MemoryWorkUnit(books=self._books.copy(), now=self.now(), budget=self.budget)
            yield unit
            if self.audit_sink is not None:
                self.audit_sink.emit(
                    build_unit_events(
                        unit.run_changes, unit.partition_changes, by, unit.collect_failures()
                    )
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
        rest = evolve(wanted, text=None)
        found = [run for run in self._books.runs.values() if rest.matches(run)]
        found.sort(key=lambda run: (run.submitted_date, run.run_id), reverse=True)
        return [run for run in found[: wanted.searched_max] if wanted.matches(run)][:limit]

    def count_runs(self) -> Mapping[RunStatus, int]:
        """Return the number of runs by status."""
        statuses = [run.status for run in self._books.runs.values()]
        return {status: statuses.count(status) for status in set(statuses)}

    def list_attempts(self, run_id: RunId) -> Sequence[RunAttempt]:
        """Return all attempts of a run: the failed ones and the newest."""
        books = self._books
        ended = books.attempts.get(run_id, ())
        run, holder = books.runs.get(run_id), books.holders.get(run_id)
        if run is None or holder is None or run.status in {RunStatus.ERROR, RunStatus.DISCOVERED}:
            return ended
        return (*ended, build_newest_attempt(run, *holder))

    def get_progress(self, run_ids: Sequence[RunId]) -> Mapping[RunId, RunProgress]:
        """Return the progress that workers have reported."""
        known = self._books.progress
        return {run_id: known[run_id] for run_id in run_ids if run_id in known}

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

    def find_partitions(
        self, wanted: PartitionFilter, *, limit: int | None = None
    ) -> Iterator[Partition]:
        """Yield the matching partitions, sorted by key."""
        known = self._books.partitions
        found = (known[key] for key in sorted(known, key=get_sort_key))
        return islice(filter(wanted.matches, found), limit)

    def list_queries(
        self, *, after: PartitionQuery | None = None, limit: int
    ) -> Sequence[tuple[PartitionQuery, date, date]]:
        """Return queries with their first and last date."""
        dates: dict[PartitionQuery, list[date]] = {}
        for key in self._books.partitions:
            query = PartitionQuery(
                source=key.source, customer_id=key.customer_id, query_name=key.query_name
            )
            dates.setdefault(query, []).append(key.logical_date)
        found = sorted(query for query in dates if after is None or query > after)
        return [(query, min(dates[query]), max(dates[query])) for query in found[:limit]]

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
