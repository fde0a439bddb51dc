"""The life of a run: submit, claim, end, retry, rescue, and the operators' actions.

Workers, sweepers and operators use this module. The domain decides each step; the changes to the
run, its partition and the source's gate are committed together with the audit events.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from logging import INFO, Logger
from typing import Any

from attrs import define, field

from tileferry.application.control.control_calls import ControlCalls, call_once
from tileferry.application.control.policies import WorkPolicies
from tileferry.application.ports.work import (
    ALL_KINDS,
    GateUnit,
    RunQueue,
    RunUnit,
    WorkStore,
    WorkUnit,
)
from tileferry.domain.errors import (
    LeaseLostError,
    MisuseError,
    NotFoundError,
    Remedy,
    WorkInProgressError,
)
from tileferry.domain.partitions import Partition, apply_run_end, apply_verdict
from tileferry.domain.partitions.manifest import SealedPartition
from tileferry.domain.retry import (
    ErrorClass,
    Final,
    RetryCategory,
    RetryPolicy,
)
from tileferry.domain.runs import (
    Run,
    RunId,
    RunKind,
    RunPriority,
    RunStatus,
    SourceGate,
    Verdict,
    VerdictOutcome,
    WorkerId,
    cancel,
    classify_error,
    complete,
    explain_error,
    is_lease_expired,
    is_permanent,
    is_source_wide,
    record_error,
    release,
    rescue,
    retry_now,
    submit,
)
from tileferry.domain.state_machine import Actor, Change
from tileferry.domain.text import format_utc
from tileferry.domain.work import Work

SWEEP_MAX = 500
"""Maximum number of runs that one sweep rescues; the next sweep continues."""


@define(kw_only=True)
class RunControl:
    """The use cases of runs."""

    queue: RunQueue
    store: WorkStore
    logger: Logger
    new_run_id: Callable[[], str]
    policies: WorkPolicies = field(factory=WorkPolicies)
    calls: ControlCalls = call_once

    # Submitting

    def submit(
        self,
        work: Work,
        *,
        actor: Actor,
        priority: RunPriority = RunPriority.FRESH,
        by: str | None = None,
        reason: str | None = None,
    ) -> tuple[Run, bool]:
        """Queue a piece of work and return whether it is new; the same work is not queued twice."""
        if work.kind is RunKind.ACQUIRE_PARTITION:
            raise MisuseError(
                what=f"work {work.dedupe_key}",
                problem="partition work can be queued only through its partition",
                remedy=Remedy.PLAN_BACKFILL,
            )
        with self.store.open_unit(by=by) as unit:
            known = unit.find_unfinished(work.dedupe_key)
            if known is not None:
                return known, False
            change = submit(
                run_id=RunId(self.new_run_id()),
                kind=work.kind,
                source=work.source,
                actor=actor,
                now=unit.now,
                priority=priority,
                dedupe_key=work.dedupe_key,
                payload=work.to_payload(),
                reason=reason,
            )
            unit.save_run(change)
        return change.after, True

    # Workers

    def get_next_run_to_process(
        self,
        worker: WorkerId,
        *,
        lease: timedelta,
        kinds: Sequence[RunKind] = ALL_KINDS,
    ) -> Run | None:
        """Claim the next run: new runs and due retries compete by age."""
        return next(iter(self.queue.claim(worker, limit=1, lease=lease, kinds=kinds)), None)

    def process_result(
        self, held: Run, verdict: Verdict, *, sealed: SealedPartition | None = None
    ) -> None:
        """End a run with its verdict; its raw partition becomes the partition's current one."""
        with self.store.open_unit() as unit:
            run = self._get_held_run(unit, held)
            self.clear_retry_fields(unit, run, verdict)
            partition = unit.find_partition_by_run(run.run_id)
            if partition is None:
                return
            _check_raw(partition, verdict, sealed)
            if sealed is not None:
                unit.save_raw(sealed)
            change = apply_verdict(
                partition,
                verdict,
                unit.now,
                policy=self.policies.partition,
                terminality=self.policies.terminality,
            )
            unit.save_partition(change, retry=self.policies.plan_retry(change.after, unit.now))

    def process_error(self, held: Run, error: BaseException, *, improved: bool = False) -> Run:
        """End a failed attempt: schedule the run's next attempt, or give the run up.

        ``improved`` says that the attempt got a part of the work done. Return the run after it.
        """
        said = classify_error(error)
        with self.store.open_unit() as unit:
            run = self._get_held_run(unit, held)
            change = record_error(
                run,
                said,
                explain_error(error),
                actor=Actor.WORKER,
                owner=held.lease_owner or WorkerId(""),
                epoch=held.lease_epoch,
                now=unit.now,
                policy=self.policies.run,
                improved=improved,
            )
            if is_permanent(change.after):
                self.mark_run_permanently_failed(unit, change)
            else:
                self.schedule_retry(unit, change)
            if is_source_wide(error):
                self._close_gate(unit, run.source, said)
        return change.after

    def release_run(self, held: Run) -> None:
        """Return a run to the queue because its worker has to stop."""
        with self.store.open_unit() as unit:
            run = self._get_held_run(unit, held)
            change = release(
                run,
                actor=Actor.WORKER,
                owner=held.lease_owner or WorkerId(""),
                epoch=held.lease_epoch,
                now=unit.now,
            )
            unit.save_run(change)
            self._log(change.after, "run.given_back", f"run {run.run_id} is queued again")

    def schedule_retry(self, unit: RunUnit, change: Change[Run]) -> None:
        """Record that a run waits for its next attempt."""
        unit.save_run(change)
        run = change.after
        assert run.next_retry_at is not None  # noqa: S101  # the run is waiting for a retry
        delay_s = (run.next_retry_at - unit.now).total_seconds()
        self._log(
            run,
            "run.retry_scheduled",
            f"attempt {run.lease_epoch} of run {run.run_id} failed, the next starts in"
            f" {delay_s:.0f} s: {run.error_message}",
            delay_s=delay_s,
            error_class=run.error_class,
            **_count_attempts(run, self.policies.run),
        )

    def mark_run_permanently_failed(self, unit: WorkUnit, change: Change[Run]) -> None:
        """Give a run up; its partition fails too."""
        unit.save_run(change)
        run = change.after
        partition = unit.find_partition_by_run(run.run_id)
        follows = None if partition is None else apply_run_end(partition, run, unit.now)
        if follows is not None:
            unit.save_partition(follows)
        spent = change.record is not None and run.error_class != Final.code
        self._log(
            run,
            "run.max_attempts_reached" if spent else "run.permanently_failed",
            f"run {run.run_id} is given up after {run.retry_count} retries: {run.error_message}",
            level="info" if change.actor is Actor.OPERATOR else "error",  # the operator knows
            **_count_attempts(run, self.policies.run),
        )

    def clear_retry_fields(self, unit: RunUnit, run: Run, verdict: Verdict) -> None:
        """End a run with a verdict and clear its retry fields."""
        change = complete(
            run,
            verdict,
            actor=Actor.WORKER,
            owner=run.lease_owner or WorkerId(""),
            epoch=run.lease_epoch,
            now=unit.now,
        )
        unit.save_run(change)
        self.log_end(run, verdict)

    def log_end(self, run: Run, verdict: Verdict) -> None:
        """Log how a run ended, and whether it took a retry."""
        if not self.logger.isEnabledFor(INFO):
            return
        retried = run.retry_count > 0 and verdict.outcome is not VerdictOutcome.FAILED
        said = f" after {run.retry_count} retries" if run.retry_count else ""
        self._log(
            run,
            "run.retry_succeeded" if retried else "run.ended",
            f"run {run.run_id} {verdict.outcome}{said}"
            + ("" if verdict.explanation is None else f": {verdict.explanation}"),
            outcome=str(verdict.outcome),
        )

    # Sweeper

    def sweep(self, *, limit: int = SWEEP_MAX) -> int:
        """Rescue runs whose leases have expired; return how many."""
        rescued, lost = self.calls(
            RetryCategory.EXECUTION_EXPIRATION, "Sweep", lambda: self._rescue_overdue(limit)
        )
        # One unit each, because each also locks its partition. Locking several in arbitrary order
        # could deadlock with an operator who locks the same partitions.
        return rescued + sum(self._contain(run_id) for run_id in lost)

    def _rescue_overdue(self, limit: int) -> tuple[int, list[RunId]]:
        """Requeue overdue runs; return how many, and the runs that lost too many workers."""
        given_up = []
        with self.store.open_unit() as unit:
            overdue = unit.find_overdue(limit=limit)
            for run in overdue:
                change = self._rescue(run, unit.now)
                if is_permanent(change.after):
                    given_up.append(run.run_id)
                    continue
                unit.save_run(change)
                self._log(
                    change.after,
                    "run.rescued",
                    f"run {run.run_id} is taken from {run.lease_owner}, whose lease ran out",
                    level="warning",
                )
        return len(overdue) - len(given_up), given_up

    def _contain(self, run_id: RunId) -> bool:
        return self.calls(
            RetryCategory.EXECUTION_CONTAINMENT,
            f"Put run {run_id} aside",
            lambda: self._give_up_overdue(run_id),
        )

    def _give_up_overdue(self, run_id: RunId) -> bool:
        """Give up a run that has lost too many workers, unless its worker has returned."""
        with self.store.open_unit() as unit:
            run = unit.run(run_id)
            if run is None or not is_lease_expired(run, unit.now):
                return False
            self.mark_run_permanently_failed(unit, self._rescue(run, unit.now))
        return True

    def _rescue(self, run: Run, now: datetime) -> Change[Run]:
        return rescue(run, actor=Actor.SWEEPER, now=now, policy=self.policies.quarantine)

    # Operators

    def cancel(self, run_id: RunId, *, reason: str, by: str) -> Run:
        """Give up a run. Its worker, if there is one, notices at its next heartbeat."""
        with self.store.open_unit(by=by) as unit:
            change = cancel(
                self._get_run(unit, run_id), actor=Actor.OPERATOR, now=unit.now, reason=reason
            )
            self.mark_run_permanently_failed(unit, change)
        return change.after

    def retry_now(self, run_id: RunId, *, reason: str, by: str) -> Run:
        """Make a run in error due immediately."""
        with self.store.open_unit(by=by) as unit:
            run = self._get_run(unit, run_id)
            change = retry_now(run, actor=Actor.OPERATOR, now=unit.now, reason=reason)
            if is_permanent(run) and run.dedupe_key is not None:
                self._check_only_one(unit, run, run.dedupe_key)
            unit.save_run(change)
        return change.after

    # Steps

    @staticmethod
    def _check_only_one(unit: RunUnit, run: Run, dedupe_key: str) -> None:
        """Refuse to resume a run while another run does the same work."""
        other = unit.find_unfinished(dedupe_key)
        if other is not None:
            raise WorkInProgressError(run_id=run.run_id, other_run_id=other.run_id)

    def _close_gate(self, unit: GateUnit, source: str, said: ErrorClass) -> None:
        new = SourceGate(source=source)
        if new.close_after(said, now=unit.now, policy=self.policies.run) == new:
            return  # no rate limit: do not lock the source's gate for this unit
        gate = unit.get_gate(source)
        closed = gate.close_after(said, now=unit.now, policy=self.policies.run)
        if closed != gate:
            unit.save_gate(closed)
            self.logger.warning(
                "source %s asked for patience: none of its runs starts before %s",
                source,
                format_utc(closed.closed_until),
                extra={"kind": "queue.gate_closed", "source": source},
            )

    @staticmethod
    def _get_held_run(unit: RunUnit, held: Run) -> Run:
        """Return the run's current state; raise if the worker has lost it."""
        run = unit.run(held.run_id)
        if run is None or (run.status, run.lease_owner, run.lease_epoch) != (
            RunStatus.PROCESSING,
            held.lease_owner,
            held.lease_epoch,
        ):
            raise LeaseLostError(
                run_id=held.run_id, worker=held.lease_owner or "", epoch=held.lease_epoch
            )
        return run

    @staticmethod
    def _get_run(unit: RunUnit, run_id: RunId) -> Run:
        run = unit.run(run_id)
        if run is None:
            raise NotFoundError(what="run", name=run_id, remedy=Remedy.LIST_RUNS)
        return run

    def _log(
        self, run: Run, kind: str, message: str, *, level: str = "info", **facts: object
    ) -> None:
        details = {"kind": kind, "run_id": run.run_id, "run_kind": str(run.kind), **facts}
        getattr(self.logger, level)("%s", message, extra=details)


def _count_attempts(run: Run, policy: RetryPolicy) -> dict[str, Any]:
    """Return the counts of a run for its log records.

    ``attempt`` counts every claim, rate-limited ones included; ``retry_count`` only those that the
    policy charges.
    """
    return {
        "attempt": run.lease_epoch,
        "retry_count": run.retry_count,
        "rate_limited_count": run.rate_limited_count,
        "max_attempts": policy.max_attempts,
    }


def _check_raw(partition: Partition, verdict: Verdict, sealed: SealedPartition | None) -> None:
    """Refuse a raw partition of another run, and a success without a raw partition."""
    if sealed is not None and (sealed.key, sealed.run_id) != (partition.key, verdict.run_id):
        problem = f"{sealed.subject} was not sealed by run {verdict.run_id}"
    elif sealed is None and verdict.outcome is not VerdictOutcome.FAILED:
        problem = f"run {verdict.run_id} succeeded without a raw partition"
    else:
        return
    raise MisuseError(what=f"verdict on {partition.subject}", problem=problem)
