"""The control plane of partitions: enqueue, retry, backfill, and operator overrides."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from logging import Logger

from attrs import define, evolve, field, frozen

from tileferry.application.control.control_calls import ControlCalls, call_once
from tileferry.application.control.policies import WorkPolicies
from tileferry.application.ports.raw_partitions import RawFinder
from tileferry.application.ports.work import (
    PartitionFilter,
    PartitionRecords,
    PartitionUnit,
    RunUnit,
    WorkStore,
    WorkUnit,
)
from tileferry.domain.errors import InvalidValueError, NotFoundError, PlanDriftedError, Remedy
from tileferry.domain.partitions import (
    BACKFILL_PARTITIONS_MAX,
    Partition,
    PartitionKey,
    PartitionStatus,
    enqueue,
    mark_terminal,
    reprocess,
    requeue,
)
from tileferry.domain.partitions.backfill import (
    BackfillAction,
    BackfillLine,
    BackfillPlan,
    BackfillRequest,
)
from tileferry.domain.partitions.backfill_planning import find_drift, is_applied, plan_backfill
from tileferry.domain.partitions.imagery_dates import ImageryDates
from tileferry.domain.partitions.manifest import SealedPartition
from tileferry.domain.partitions.retry_rules import check_confirmation, check_raw_partition
from tileferry.domain.partitions.transitions import ENQUEUE
from tileferry.domain.retry import RetryCategory
from tileferry.domain.runs import Run, RunId, RunKind, RunPriority, submit
from tileferry.domain.state_machine import Actor, Change
from tileferry.domain.work import AcquirePartition, Work, parse_work

DUE_MAX = 100
"""Maximum number of partitions that one pass of the scheduler retries."""


@frozen(kw_only=True)
class OperatorOverride:
    """An operator's decision against the policy: who, why, and how many partitions they expect."""

    by: str
    reason: str
    confirmed: int | None = None


@define(kw_only=True)
class PartitionControl:
    """The use cases of partitions. Each action is one unit: all of it is committed, or nothing."""

    store: WorkStore
    raw: RawFinder
    logger: Logger
    new_run_id: Callable[[], str]
    imagery: ImageryDates | None = None
    """What the configured source can serve; ``None`` if that is not known."""
    policies: WorkPolicies = field(factory=WorkPolicies)
    calls: ControlCalls = call_once

    def enqueue(
        self,
        works: Sequence[AcquirePartition],
        *,
        actor: Actor,
        priority: RunPriority = RunPriority.FRESH,
        by: str | None = None,
    ) -> Sequence[Partition]:
        """Create partitions, each with its first run."""
        with self.store.open_unit(by=by) as unit:
            known = dict(unit.get_partitions([work.key for work in works]))
            for work in works:
                there = known.get(work.key)
                if there is not None:  # the state machine names the states that would allow it
                    ENQUEUE.permit(there.subject, there.status, actor, unit.now)
                run_id = RunId(self.new_run_id())
                change = enqueue(work.key, run_id, actor=actor, now=unit.now)
                self._start_run(unit, run_id, work, actor=actor, priority=priority)
                unit.save_partition(change)
                known[work.key] = change.after
        return [known[work.key] for work in works]

    def list_retryable(
        self, reader: PartitionRecords, among: PartitionFilter
    ) -> Sequence[PartitionKey]:
        """Return the failed partitions of a range; an operator may retry all of them."""
        return self._list_failed(reader, among, lambda _partition: True)

    def list_markable(
        self, reader: PartitionRecords, among: PartitionFilter
    ) -> Sequence[PartitionKey]:
        """Return the failed partitions of a range that are not marked terminal yet."""
        return self._list_failed(reader, among, lambda partition: partition.terminal_marker is None)

    def _list_failed(
        self,
        reader: PartitionRecords,
        among: PartitionFilter,
        is_meant: Callable[[Partition], bool],
    ) -> Sequence[PartitionKey]:
        wanted = evolve(among, statuses=[PartitionStatus.FAILED])

        def found() -> list[PartitionKey]:
            keys = (one.key for one in reader.find_partitions(wanted) if is_meant(one))
            return list(islice(keys, BACKFILL_PARTITIONS_MAX + 1))

        taken = self.calls(RetryCategory.APPROVAL_CHECK, "Count partitions", found)
        if len(taken) > BACKFILL_PARTITIONS_MAX:
            raise InvalidValueError(
                field="range",
                value=str(among.last),
                problem=f"covers more than {BACKFILL_PARTITIONS_MAX} partitions",
                remedy="split it into several ranges",
            )
        return taken

    def retry(
        self, keys: Sequence[PartitionKey], override: OperatorOverride
    ) -> Sequence[Partition]:
        """Retry failed partitions, and successful ones that an operator wants to improve.

        The work is that of the newest run whose raw partition is in the sink. If the sink has none
        of any partition, the whole call is refused.
        """
        check_confirmation(len(set(keys)), override.confirmed)
        newest = {key: self.raw.find_newest(key) for key in dict.fromkeys(keys)}
        tried = self._call_approved(
            "Retry partitions", lambda: self._retry_all(keys, override, newest)
        )
        self._log_override("retry", override, keys)
        return tried

    def _retry_all(
        self,
        keys: Sequence[PartitionKey],
        override: OperatorOverride,
        newest: Mapping[PartitionKey, SealedPartition | None],
    ) -> Sequence[Partition]:
        with self.store.open_unit(by=override.by) as unit:
            found = self._get_all(unit, keys)
            for partition in found:
                if partition.active_run_id is None:  # an active run may still leave one
                    check_raw_partition(partition, has_raw=newest[partition.key] is not None)
            changes = [
                self._requeue_or_reprocess(
                    partition, RunId(self.new_run_id()), now=unit.now, reason=override.reason
                )
                for partition in found
            ]
            # Lock these runs only now: they have ended, so no other transaction can hold one of
            # them while it waits for its partition.
            sealed = [one.run_id for one in newest.values() if one is not None]
            ended = unit.get_runs([*sealed, *(partition.last_run_id for partition in found)])
            for change in changes:
                raw = newest[change.after.key]
                # An operator is waiting for the result.
                self._start_next_run(
                    unit, change, ended, RunPriority.FRESH, None if raw is None else raw.run_id
                )
        return [change.after for change in changes]

    def mark_terminal(
        self, keys: Sequence[PartitionKey], override: OperatorOverride
    ) -> Sequence[Partition]:
        """Exclude failed partitions from automatic retries."""
        check_confirmation(len(set(keys)), override.confirmed)
        marked = self._call_approved("Mark partitions", lambda: self._mark_all(keys, override))
        self._log_override("mark terminal", override, keys)
        return marked

    def _mark_all(
        self, keys: Sequence[PartitionKey], override: OperatorOverride
    ) -> Sequence[Partition]:
        with self.store.open_unit(by=override.by) as unit:
            changes = [
                mark_terminal(partition, actor=Actor.OPERATOR, now=unit.now, reason=override.reason)
                for partition in self._get_all(unit, keys)
            ]
            for change in changes:
                unit.save_partition(change)
        return [change.after for change in changes]

    def plan(self, request: BackfillRequest) -> BackfillPlan:
        """Return what a backfill would do for each date; nothing is changed."""
        return self.calls(
            RetryCategory.APPROVAL_CHECK, "Plan a backfill", lambda: self._plan_backfill(request)
        )

    def _plan_backfill(self, request: BackfillRequest) -> BackfillPlan:
        with self.store.open_unit() as unit:
            if self.imagery is not None:
                self.imagery.check(request.source, request.dates, today=unit.now.date())
            known = unit.get_partitions([request.get_key(day) for day in request.dates])
            return plan_backfill(
                request,
                known.values(),
                now=unit.now,
                terminality=self.policies.terminality,
            )

    def apply(self, plan: BackfillPlan, override: OperatorOverride) -> Sequence[Partition]:
        """Apply a plan exactly; refuse it if the partitions have changed since it was made.

        Runs that the plan has already started are left alone, so a plan can be applied again.
        """
        check_confirmation(plan.touched, override.confirmed)
        done = self._call_approved("Apply a backfill", lambda: self._apply_plan(plan, override))
        self._log_override("backfill", override, [partition.key for partition in done])
        return done

    def _apply_plan(self, plan: BackfillPlan, override: OperatorOverride) -> Sequence[Partition]:
        with self.store.open_unit(by=override.by) as unit:
            known = unit.get_partitions([plan.get_key(line) for line in plan.lines])
            drifted = [str(one) for one in find_drift(plan, known.values()) if one.blocks]
            if drifted:
                raise PlanDriftedError(count=len(drifted), drifted=drifted)
            return [
                self._apply_line(unit, plan, line, known.get(plan.get_key(line)), override.reason)
                for line in plan.lines
                if line.action is not BackfillAction.SKIP
                and not is_applied(plan, line, known.get(plan.get_key(line)))
            ]

    def _call_approved(
        self, operation: str, call: Callable[[], Sequence[Partition]]
    ) -> Sequence[Partition]:
        return self.calls(RetryCategory.APPROVAL_GRANT, operation, call)

    def retry_due(self, *, limit: int = DUE_MAX) -> int:
        """Start the automatic retries that are due; return how many."""
        with self.store.open_unit() as unit:
            due = [
                partition
                for partition in unit.find_due_partitions(limit=limit)
                if self._check_still_due(unit, partition)
            ]
            ended = unit.get_runs([partition.last_run_id for partition in due])
            tried = [partition for partition in due if self._try_retry(unit, partition, ended)]
        for partition in tried:
            self.logger.info(
                "%s is tried again by the policy",
                partition.subject,
                extra={"kind": "partition.retry", "partition": str(partition.key)},
            )
        return len(tried)

    # Steps

    def _apply_line(
        self,
        unit: WorkUnit,
        plan: BackfillPlan,
        line: BackfillLine,
        partition: Partition | None,
        reason: str,
    ) -> Partition:
        """Start the run of one date, with the area of the plan."""
        work = AcquirePartition(key=plan.get_key(line), area=plan.request.area)
        self._start_run(
            unit,
            plan.get_run_id(line),
            work,
            actor=Actor.OPERATOR,
            priority=RunPriority.BACKFILL,
        )
        if partition is None:
            change = enqueue(work.key, plan.get_run_id(line), actor=Actor.OPERATOR, now=unit.now)
        else:
            change = self._requeue_or_reprocess(
                partition, plan.get_run_id(line), now=unit.now, reason=reason
            )
        unit.save_partition(change)
        return change.after

    def _check_still_due(self, unit: PartitionUnit, partition: Partition) -> bool:
        """Return whether the policy still allows a planned retry; if not, plan it again.

        The partition may have become terminal: too old because no scheduler was running when it was
        due, or because the policy has changed.
        """
        planned = self.policies.plan_retry(partition, unit.now)
        if planned is not None and planned.next_run_at <= unit.now:
            return True
        unit.plan_retry(partition.key, planned)
        return False

    def _try_retry(self, unit: WorkUnit, partition: Partition, ended: Mapping[RunId, Run]) -> bool:
        """Retry a partition; leave one whose work cannot be read to an operator."""
        change = requeue(
            partition,
            RunId(self.new_run_id()),
            actor=Actor.SCHEDULER,
            now=unit.now,
            terminality=self.policies.terminality,
            policy=self.policies.partition,
        )
        try:
            # An automatic retry keeps the priority of the run before it.
            self._start_next_run(unit, change, ended, ended[partition.last_run_id].priority)
        except InvalidValueError as error:
            unit.plan_retry(partition.key, None)
            self.logger.error(  # noqa: TRY400  # the message is complete
                "%s is not tried again: what its run %s was to do cannot be read: %s",
                partition.subject,
                partition.last_run_id,
                error,
                extra={"kind": "partition.unreadable", "partition": str(partition.key)},
            )
            return False
        return True

    def _start_next_run(
        self,
        unit: WorkUnit,
        change: Change[Partition],
        ended: Mapping[RunId, Run],
        priority: RunPriority,
        template: RunId | None = None,
    ) -> None:
        """Start a partition's new run, with the work of ``template``, else of the previous run."""
        assert change.before is not None  # noqa: S101  # the partition existed
        before = change.before.last_run_id
        last = ended.get(before if template is None else template, ended[before])
        work = parse_work(RunKind.ACQUIRE_PARTITION, last.payload)
        run_id = change.after.last_run_id
        self._start_run(unit, run_id, work, actor=change.actor, priority=priority)
        unit.save_partition(change)

    def _requeue_or_reprocess(
        self, partition: Partition, run_id: RunId, *, now: datetime, reason: str
    ) -> Change[Partition]:
        """Assign an operator's new run: requeue a failed partition, reprocess a successful one."""
        if partition.status is PartitionStatus.SUCCESS:
            return reprocess(partition, run_id, actor=Actor.OPERATOR, now=now, reason=reason)
        return requeue(
            partition,
            run_id,
            actor=Actor.OPERATOR,
            now=now,
            terminality=self.policies.terminality,
            policy=self.policies.partition,
            reason=reason,
        )

    @staticmethod
    def _start_run(
        unit: RunUnit,
        run_id: RunId,
        work: Work,
        *,
        actor: Actor,
        priority: RunPriority,
    ) -> None:
        unit.save_run(
            submit(
                run_id=run_id,
                kind=work.kind,
                source=work.source,
                actor=actor,
                now=unit.now,
                priority=priority,
                dedupe_key=work.dedupe_key,
                payload=work.to_payload(),
            )
        )

    @staticmethod
    def _get_all(unit: PartitionUnit, keys: Sequence[PartitionKey]) -> list[Partition]:
        known = unit.get_partitions(keys)
        for key in keys:
            if key not in known:
                raise NotFoundError(
                    what="partition",
                    name=str(key),
                    remedy=Remedy.LIST_PARTITIONS,
                )
        return [known[key] for key in dict.fromkeys(keys)]

    def _log_override(
        self, what: str, override: OperatorOverride, keys: Sequence[PartitionKey]
    ) -> None:
        self.logger.warning(
            "%s by %s of %d partitions: %s",
            what,
            override.by,
            len(keys),
            override.reason,
            extra={"kind": "partition.override", "by": override.by, "partitions": len(keys)},
        )
