"""Checkers of the queue and of partitions: who may change what, how often, and in which order.

They compare the state before and after each call. The tables of allowed moves are written down here
again: a checker that asks the product's own tables would find no error in them.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import ClassVar, TypeVar

from attrs import define, field

from simulation.checkers.base import Checker
from simulation.world import Call
from tileferry.adapters.memory import MemoryAuditSink, MemoryRawSink, MemoryWork
from tileferry.domain.audit import StateChanged
from tileferry.domain.partitions import Partition, PartitionKey
from tileferry.domain.runs import Run, RunId, SourceGate, has_ended

COMMITS = ("queue.exchange", "queue.claim", "queue.renew", "queue.complete", "store.open_unit.end")
"""The calls that change runs or partitions."""
RUN_MOVES = {
    "discovered": {"processing", "error"},
    "processing": {"discovered", "passed", "needs_review", "failed", "error"},
    "error": {"processing"},
}
PARTITION_MOVES = {"pending": {"success", "failed"}, "failed": {"pending"}}
VERDICTS = {"passed", "needs_review", "failed"}
Key = TypeVar("Key")
Item = TypeVar("Item")
RETRIES_MAX, RESCUES_MAX, ATTEMPTS_MAX = 9, 6, 4


@define(eq=False)
class WorkChange:
    """What a call changed: each run and partition before and after it."""

    call: Call
    runs: list[tuple[Run | None, Run]]
    partitions: list[tuple[Partition | None, Partition]]
    runs_before: Mapping[RunId, Run]


@define(eq=False)
class WorkChecker(Checker):
    """Checks the changes that a ``WorkWatcher`` finds."""

    work: MemoryWork

    def check_change(self, change: WorkChange) -> None:
        """Check what a call changed, which may be nothing."""
        for before, run in change.runs:
            self.check_run(change.call, before, run)
        for known, partition in change.partitions:
            self.check_partition(change.call, known, partition)

    def check_run(self, call: Call, before: Run | None, after: Run) -> None:
        """Check one changed run."""

    def check_partition(self, call: Call, before: Partition | None, after: Partition) -> None:
        """Check one changed partition."""

    def get_now(self) -> datetime:
        return datetime.fromtimestamp(self.world.now(), UTC)


@define(eq=False)
class WorkWatcher(Checker):
    """Compares the runs and partitions before and after each call, once for all checkers."""

    work: MemoryWork
    checkers: Sequence[WorkChecker]
    _runs: dict[RunId, Run] = field(factory=dict, init=False)
    _partitions: dict[PartitionKey, Partition] = field(factory=dict, init=False)

    def handlers(self) -> Mapping[str, Callable[[Call], None]]:
        return dict.fromkeys(COMMITS, self.compare)

    def compare(self, call: Call) -> None:
        """Find what a call changed, and let it be checked."""
        books = self.work._books
        before = self._runs
        change = WorkChange(
            call,
            _find_changes(before, books.runs),
            _find_changes(self._partitions, books.partitions),
            before,
        )
        if change.runs:
            self._runs = books.runs.copy()
        if change.partitions:
            self._partitions = books.partitions.copy()
        for checker in self.checkers:
            checker.check_change(change)


def _find_changes(
    before: dict[Key, Item], after: dict[Key, Item]
) -> list[tuple[Item | None, Item]]:
    if before == after:
        return []
    return [(before.get(key), item) for key, item in after.items() if item is not before.get(key)]


@define(eq=False)
class LeaseChecker(WorkChecker):
    """Runs follow the declared moves; only the holder of a valid claim ends one."""

    invariants: ClassVar[tuple[int, ...]] = (9, 12, 13)
    on_claim: dict[RunId, Callable[[], None]] = field(factory=dict, init=False)
    """Called once, when a run is claimed."""

    def check_run(self, call: Call, before: Run | None, after: Run) -> None:
        if before is None:
            self.require(after.status == "discovered", f"{after.run_id} began as {after.status}")
            return
        was, now_is = str(before.status), str(after.status)
        self.world.transitions[f"run {was} -> {now_is}"] += 1
        if was != now_is:
            self.require(
                now_is in RUN_MOVES.get(was, set()), f"{after.run_id} went from {was} to {now_is}"
            )
        is_claim = now_is == "processing" and was != "processing"
        self.require(
            after.lease_epoch - before.lease_epoch == int(is_claim),
            f"{after.run_id} went from epoch {before.lease_epoch} to {after.lease_epoch}",
        )
        if is_claim:
            self.check_claim(before)
            self.on_claim.pop(after.run_id, lambda: None)()
        worker = call.process.data.get("worker")
        ends = was == "processing" and now_is in VERDICTS | {"discovered"}
        keeps = was == now_is == "processing"
        if ends or keeps:
            self.require(
                before.lease_owner == worker,
                f"{after.run_id} of {before.lease_owner} was changed by {call.process.name}",
            )
        self.check_counts(before, after)

    def check_change(self, change: WorkChange) -> None:
        super().check_change(change)
        if not change.runs:
            return
        keys = Counter(
            run.dedupe_key
            for run in self.work._books.runs.values()
            if run.dedupe_key and not has_ended(run)
        )
        twice = [key for key, count in keys.items() if count > 1]
        self.require(not twice, f"two runs do the same work: {twice}")

    def check_claim(self, before: Run) -> None:
        """Check that a run was free and due."""
        now = self.get_now()
        self.require(
            before.status == "discovered"
            or (before.next_retry_at is not None and before.next_retry_at <= now),
            f"{before.run_id} was claimed before it was due",
        )

    def check_counts(self, before: Run, after: Run) -> None:
        """Check that nothing is charged twice or beyond its limit."""
        charged = after.retry_count - before.retry_count
        is_limited = after.rate_limited_count > before.rate_limited_count
        is_asked_for = is_limited and not after.needs_token  # the source said how long to wait
        self.require(
            charged <= int(not is_asked_for), f"{after.run_id} was charged {charged} retries"
        )
        self.require(
            after.retry_count <= RETRIES_MAX and after.rescues <= RESCUES_MAX,
            f"{after.run_id} has {after.retry_count} retries and {after.rescues} rescues",
        )
        lost = after.rescues - before.rescues
        self.require(lost <= 1, f"{after.run_id} was charged {lost} lost workers at once")
        if lost == 1:
            self.require(
                before.lease_expires_at is not None and before.lease_expires_at <= self.get_now(),
                f"{after.run_id} was rescued while its lease was valid",
            )

    def handlers(self) -> Mapping[str, Callable[[Call], None]]:
        return {"queue.renew": self.check_renewal}

    def check_renewal(self, call: Call) -> None:
        """Check that a lease that is renewed counts from now."""
        expires_at = self.get_now() + call.kwargs["lease"]
        for run_id in call.result or ():
            known = self.work._books.runs[run_id].lease_expires_at
            self.require(
                known == expires_at, f"{run_id} is renewed until {known}, not until {expires_at}"
            )

    def check_held(self, run: Run, check: Callable[[], None]) -> None:
        """Let a worker check that it still holds a run, and check that it is right.

        A cancel is noticed later, at the next heartbeat.
        """
        step = self.world.step
        check()
        if self.world.step != step:
            return  # it called the database, and may have stood still since the answer
        self.world.checks += 1
        known = self.work._books.runs[run.run_id]
        is_held = (known.status, known.lease_epoch) == (run.status, run.lease_epoch)
        self.require(
            is_held or self.work.find_cancelled([run]),
            f"{run.lease_owner} goes on with {run.run_id}, which it lost",
        )

    def at_end(self) -> None:
        for run_id, attempts in self.work._books.attempts.items():
            epochs = [attempt.epoch for attempt in attempts]
            self.require(
                len(set(epochs)) == len(epochs), f"{run_id} has two attempts of one claim: {epochs}"
            )


@define(eq=False)
class QueueOrderChecker(WorkChecker):
    """Of the runs that wait for one source, the oldest is claimed first; gates are respected."""

    invariants: ClassVar[tuple[int, ...]] = (13, 23)
    _gates: dict[str, SourceGate] = field(factory=dict, init=False)

    def check_change(self, change: WorkChange) -> None:
        gates = self.work._books.gates
        if gates != self._gates:
            self.check_gates(gates)
        now = self.get_now()
        for run, after in change.runs:
            if run is None or after.lease_epoch == run.lease_epoch:
                continue
            closed_until = gates[run.source].closed_until
            self.require(
                closed_until is None or closed_until <= now,
                f"{run.run_id} was claimed while its source is rate-limited",
            )
            for other in change.runs_before.values():
                if _waits_ahead_of(other, run) and self.work._books.runs[other.run_id] is other:
                    self.world.fail(
                        type(self).__name__,
                        self.invariants,
                        f"{run.run_id} overtook {other.run_id}, which was submitted before it",
                    )

    def check_gates(self, gates: Mapping[str, SourceGate]) -> None:
        """Check that no gate opens earlier than it was to open."""
        for source, gate in self._gates.items():
            was, now_is = gate.closed_until, gates[source].closed_until
            self.require(
                was is None or (now_is is not None and now_is >= was),
                f"the gate of {source} opens at {now_is} instead of {was}",
            )
        self._gates = dict(gates)


def _waits_ahead_of(other: Run, run: Run) -> bool:
    """Return whether a run that is new or was returned has to be claimed before another one."""
    return (
        other.status == "discovered"
        and other.source == run.source
        and (other.priority, other.submitted_date, other.run_id)
        < (run.priority, run.submitted_date, run.run_id)
        # After a lost worker, a run is claimed alone, so it may end a batch early.
        and not (run.rescues or other.rescues)
    )


@define(eq=False)
class PartitionChecker(WorkChecker):
    """Partitions follow the declared moves; what is readable is sealed, and stays as it is."""

    invariants: ClassVar[tuple[int, ...]] = (9, 15, 16)
    raw: MemoryRawSink
    _manifests: dict[RunId, str] = field(factory=dict, init=False)

    def check_partition(
        self,
        call: Call,
        before: Partition | None,
        after: Partition,
    ) -> None:
        key = str(after.key)
        if before is None:
            self.require(after.status == "pending", f"{key} began as {after.status}")
            return
        was, now_is = str(before.status), str(after.status)
        self.world.transitions[f"partition {was} -> {now_is}"] += 1
        if was != now_is:
            self.require(
                now_is in PARTITION_MOVES.get(was, set()), f"{key} went from {was} to {now_is}"
            )
        self.require(
            after.active_run_id == before.active_run_id
            or None in {before.active_run_id, after.active_run_id},
            f"{key} has run {after.active_run_id} in place of run {before.active_run_id}",
        )
        counted = after.attempt_count - before.attempt_count
        judged = self.get_ended(before.active_run_id) in VERDICTS
        is_verdict = before.active_run_id is not None and after.active_run_id is None and judged
        self.require(
            counted == int(is_verdict),
            f"{key} counts {after.attempt_count} attempts after {before.attempt_count}",
        )
        if was == "failed" and now_is == "pending":
            self.require(
                after.last_run_id != before.last_run_id, f"{key} is tried again under the same run"
            )
            if "worker" in call.process.data:
                self.require(
                    not (before.abandoned or before.terminal_marker),
                    f"{key} is tried again, although that is for an operator to decide",
                )
                self.require(
                    before.attempt_count < ATTEMPTS_MAX,
                    f"{key} is tried again after {before.attempt_count} attempts",
                )
        if was == "success" and before.current_run_id is not None:
            self.require(after.current_run_id is not None, f"{key} is not readable any more")
        if after.current_run_id != before.current_run_id:
            self.check_readable(after)

    def get_ended(self, run_id: RunId | None) -> str | None:
        run = None if run_id is None else self.work._books.runs.get(run_id)
        return None if run is None else str(run.status)

    def check_readable(self, partition: Partition) -> None:
        """Check that the data of a partition exists, is recorded, and has not changed."""
        run_id = partition.current_run_id
        if run_id is None:
            return
        sealed = self.raw.find(partition.key, run_id)
        self.require(
            sealed is not None, f"{partition.key} names run {run_id}, which sealed nothing"
        )
        self.require(run_id in self.work._books.raw, f"the raw partition of {run_id} has no row")
        if sealed is not None:
            known = self._manifests.setdefault(run_id, sealed.manifest_sha256)
            self.require(
                known == sealed.manifest_sha256, f"the raw partition of {run_id} has changed"
            )
            with self.raw.open_reader(sealed) as reader:
                damage = list(reader.verify())
            self.require(not damage, f"the raw partition of {run_id} is damaged: {damage}")

    def after_power_loss(self) -> None:
        for partition in self.work._books.partitions.values():
            self.check_readable(partition)

    def at_end(self) -> None:
        self.after_power_loss()
        for partition in self.work._books.partitions.values():
            run_id = partition.active_run_id
            self.require(
                run_id is None or not has_ended(self.work._books.runs[run_id]),
                f"{partition.key} waits for run {run_id}, which has ended",
            )
        for key, verdicts in self.work._books.verdicts.items():
            runs = [verdict.run_id for verdict in verdicts]
            self.require(len(set(runs)) == len(runs), f"{key} was judged twice for one run")
            counted = self.work._books.partitions[key].attempt_count
            self.require(
                counted == len(verdicts), f"{key} counts {counted} of {len(verdicts)} verdicts"
            )


@define(eq=False)
class StateAuditChecker(WorkChecker):
    """Every change that is audited is in the log once, and the log never contradicts the state."""

    invariants: ClassVar[tuple[int, ...]] = (19,)
    log: MemoryAuditSink
    _read: int = field(default=0, init=False)

    def check_change(self, change: WorkChange) -> None:
        events = self.log._events[self._read :]
        self._read += len(events)
        if change.call.name != "store.open_unit.end":
            return
        changed: Counter[str] = Counter()
        for event in events:
            if not isinstance(event, StateChanged):
                continue
            changed[event.subject] += 1
            run = change.runs_before.get(RunId(event.subject.removeprefix("run ")))
            if run is not None:
                self.require(
                    event.from_status == run.status,
                    f"the log says that {event.subject} was {event.from_status}, not {run.status}",
                )
        subjects = {one.subject for _, one in change.runs}
        subjects |= {one.subject for _, one in change.partitions}
        for subject in sorted(subjects):
            self.require(changed[subject] == 1, f"the change of {subject} is unaudited")
