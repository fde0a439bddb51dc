"""The transitions of a partition. The documentation and the database schema follow this table."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, assert_never

from attrs import evolve

from tileferry.domain.errors import InvalidStateError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.partitions.partition import Partition, PartitionKey, PartitionStatus
from tileferry.domain.partitions.retry_rules import (
    NO_AGE_LIMIT,
    TerminalityPolicy,
    decide_automatic_retry,
    find_next_automatic_retry,
    find_terminal_reason,
    sum_automatic_waits,
)
from tileferry.domain.retry import PARTITION_POLICY, RetryPolicy
from tileferry.domain.runs import Run, RunId, RunStatus, Verdict, VerdictOutcome, is_permanent
from tileferry.domain.state_machine import Actor, Change, Transition

with import_on_call(globals()):
    from tileferry.domain.errors import IllegalTransitionError
    from tileferry.domain.retry import DecisionRecord

_PENDING, _SUCCESS, _FAILED = (
    PartitionStatus.PENDING,
    PartitionStatus.SUCCESS,
    PartitionStatus.FAILED,
)

ENQUEUE = Transition(
    name="enqueue",
    moves=((None, _PENDING),),
    actors=(Actor.OPERATOR, Actor.SCHEDULER),
)
ACCEPT = Transition(
    name="accept",
    moves=((_PENDING, _SUCCESS), (_SUCCESS, _SUCCESS)),
    actors=(Actor.VALIDATOR,),
)
REJECT = Transition(
    name="reject",
    moves=((_PENDING, _FAILED), (_FAILED, _FAILED), (_SUCCESS, _SUCCESS)),
    actors=(Actor.VALIDATOR,),
)
REQUEUE = Transition(
    name="requeue",
    moves=((_FAILED, _PENDING),),
    actors=(Actor.OPERATOR, Actor.SCHEDULER),
    reason_from=(Actor.OPERATOR,),
)
REPROCESS = Transition(
    name="reprocess",
    moves=((_SUCCESS, _SUCCESS),),
    actors=(Actor.OPERATOR,),
    reason_from=(Actor.OPERATOR,),
)
ABANDON = Transition(
    name="abandon",
    moves=((_PENDING, _FAILED), (_SUCCESS, _SUCCESS)),
    actors=(Actor.SCHEDULER, Actor.WORKER),
)
MARK_TERMINAL = Transition(
    name="mark_terminal",
    moves=((_FAILED, _FAILED),),
    actors=(Actor.OPERATOR,),
    reason_from=(Actor.OPERATOR,),
)

PARTITION_TRANSITIONS: tuple[Transition[PartitionStatus], ...] = (
    ENQUEUE,
    ACCEPT,
    REJECT,
    REQUEUE,
    REPROCESS,
    ABANDON,
    MARK_TERMINAL,
)


def enqueue(key: PartitionKey, run_id: RunId, *, actor: Actor, now: datetime) -> Change[Partition]:
    """Create a partition with its first run."""
    partition = Partition(
        key=key,
        status=PartitionStatus.PENDING,
        active_run_id=run_id,
        last_run_id=run_id,
        created_at=now,
        updated_at=now,
    )
    ENQUEUE.permit(partition.subject, None, actor, now)
    return ENQUEUE.change(None, partition, actor=actor, at=now)


def accept(
    partition: Partition,
    run_id: RunId,
    *,
    actor: Actor,
    now: datetime,
    review_reason: str | None = None,
    policy: RetryPolicy = PARTITION_POLICY,
) -> Change[Partition]:
    """Accept the active run's data. With a ``review_reason``, a human should review it."""
    _permit(ACCEPT, partition, actor, now)
    if run_id != partition.active_run_id:
        raise _build_stale_run_error(ACCEPT, partition, actor, run_id)
    return _build_change(
        ACCEPT,
        partition,
        actor,
        now,
        review_reason,
        status=PartitionStatus.SUCCESS,
        attempt_count=partition.attempt_count + 1,
        current_run_id=run_id,
        active_run_id=None,
        needs_review=review_reason is not None,
        error_message=None,
        waited_s=sum_automatic_waits(partition, policy),
    )


def reject(
    partition: Partition,
    run_id: RunId,
    *,
    actor: Actor,
    now: datetime,
    error: str,
    policy: RetryPolicy = PARTITION_POLICY,
    terminality: TerminalityPolicy = NO_AGE_LIMIT,
) -> Change[Partition]:
    """Count a failed attempt, and decide on its automatic retry. Data that was readable before
    stays readable.

    An abandoned run can still be rejected once: the validator gave a verdict, so it counts.
    """
    _permit(REJECT, partition, actor, now)
    unjudged = partition.last_run_id if partition.abandoned else partition.active_run_id
    if run_id != unjudged:
        raise _build_stale_run_error(REJECT, partition, actor, run_id)
    return _build_change(
        REJECT,
        partition,
        actor,
        now,
        error,
        status=_status_without_success(partition),
        attempt_count=partition.attempt_count + 1,
        active_run_id=None,
        abandoned=False,
        error_message=error,
        decide=lambda after: decide_automatic_retry(after, policy, terminality),
    )


def requeue(
    partition: Partition,
    run_id: RunId,
    *,
    actor: Actor,
    now: datetime,
    terminality: TerminalityPolicy,
    policy: RetryPolicy = PARTITION_POLICY,
    reason: str | None = None,
) -> Change[Partition]:
    """Start a new run of a failed partition. The scheduler is bound by the policy, the operator is
    not.
    """
    _permit(REQUEUE, partition, actor, now, reason)
    record = None
    if actor is Actor.SCHEDULER:
        _check_automatic(partition, now, terminality, policy)
        record = decide_automatic_retry(partition, policy, terminality)
    _check_new(REQUEUE, partition, actor, run_id)
    # A retry removes the terminal marker. If the retry fails, the marker must be set again.
    return _build_change(
        REQUEUE,
        partition,
        actor,
        now,
        reason,
        status=PartitionStatus.PENDING,
        active_run_id=run_id,
        last_run_id=run_id,
        abandoned=False,
        terminal_marker=None,
        record=record,
    )


def reprocess(
    partition: Partition, run_id: RunId, *, actor: Actor, now: datetime, reason: str
) -> Change[Partition]:
    """Start a new run of a success. The old data stays readable until the new run succeeds."""
    _permit(REPROCESS, partition, actor, now, reason)
    if partition.active_run_id is not None:
        problem = f"run {partition.active_run_id} is already in progress"
        raise _build_error(REPROCESS, partition, actor, problem)
    _check_new(REPROCESS, partition, actor, run_id)
    return _build_change(
        REPROCESS,
        partition,
        actor,
        now,
        reason,
        active_run_id=run_id,
        last_run_id=run_id,
        abandoned=False,
    )


def abandon(
    partition: Partition, run_id: RunId, *, actor: Actor, now: datetime, error: str
) -> Change[Partition]:
    """Record that the active run was given up. Without a verdict, no attempt is counted."""
    _permit(ABANDON, partition, actor, now)
    if run_id != partition.active_run_id:
        raise _build_stale_run_error(ABANDON, partition, actor, run_id)
    return _build_change(
        ABANDON,
        partition,
        actor,
        now,
        error,
        status=_status_without_success(partition),
        active_run_id=None,
        abandoned=True,
        error_message=error,
    )


def mark_terminal(
    partition: Partition, *, actor: Actor, now: datetime, reason: str
) -> Change[Partition]:
    """Rule out further automatic retries of a failed partition."""
    _permit(MARK_TERMINAL, partition, actor, now, reason)
    return _build_change(MARK_TERMINAL, partition, actor, now, reason, terminal_marker=reason)


def _status_without_success(partition: Partition) -> PartitionStatus:
    """Return the status after an unsuccessful run: an earlier success is kept."""
    kept = partition.status is PartitionStatus.SUCCESS
    return PartitionStatus.SUCCESS if kept else PartitionStatus.FAILED


def _check_automatic(
    partition: Partition, now: datetime, terminality: TerminalityPolicy, policy: RetryPolicy
) -> None:
    terminal = find_terminal_reason(partition, terminality, now)
    when = find_next_automatic_retry(partition, now=now, terminality=terminality, policy=policy)
    if terminal is not None:
        problem = f"it is terminal ({terminal}); an operator can requeue it"
    elif when is None:
        problem = "the policy does not allow an automatic retry; an operator can requeue it"
    elif when > now:
        problem = f"the automatic retry is not due until {when}"
    else:
        return
    raise _build_error(REQUEUE, partition, Actor.SCHEDULER, problem)


def _check_new(
    rule: Transition[PartitionStatus], partition: Partition, actor: Actor, run_id: RunId
) -> None:
    if run_id in {partition.current_run_id, partition.last_run_id}:
        raise _build_error(
            rule, partition, actor, f"run {run_id} was already used; a new run is required"
        )


def _build_stale_run_error(
    rule: Transition[PartitionStatus], partition: Partition, actor: Actor, run_id: RunId
) -> IllegalTransitionError:
    active = partition.active_run_id
    state = "no run is active" if active is None else f"run {active} is active"
    return _build_error(rule, partition, actor, f"{state}, not run {run_id}")


def _permit(
    rule: Transition[PartitionStatus],
    partition: Partition,
    actor: Actor,
    now: datetime,
    reason: str | None = None,
) -> None:
    rule.permit(partition.subject, partition.status, actor, now, reason)


def _build_error(
    rule: Transition[PartitionStatus], partition: Partition, actor: Actor, problem: str
) -> IllegalTransitionError:
    return rule.build_error(partition.subject, partition.status, actor, problem)


def _build_change(
    rule: Transition[PartitionStatus],
    partition: Partition,
    actor: Actor,
    now: datetime,
    reason: str | None,
    *,
    record: DecisionRecord | None = None,
    decide: Callable[[Partition], DecisionRecord] | None = None,
    waited_s: float | None = None,
    **fields: Any,
) -> Change[Partition]:
    # ``updated_at`` never decreases, even if the clock is set back.
    after = evolve(partition, updated_at=max(now, partition.updated_at), **fields)
    if decide is not None and after.status is PartitionStatus.FAILED:
        record = decide(after)
    return rule.change(
        partition, after, actor=actor, at=now, reason=reason, record=record, waited_s=waited_s
    )


def apply_verdict(
    partition: Partition,
    verdict: Verdict,
    now: datetime,
    *,
    actor: Actor = Actor.VALIDATOR,
    policy: RetryPolicy = PARTITION_POLICY,
    terminality: TerminalityPolicy = NO_AGE_LIMIT,
) -> Change[Partition]:
    """Apply the validator's verdict to the partition. It always counts as one attempt."""
    run_id, why = verdict.run_id, verdict.explanation
    match verdict.outcome:
        case VerdictOutcome.PASSED | VerdictOutcome.NEEDS_REVIEW:
            return accept(partition, run_id, actor=actor, now=now, review_reason=why, policy=policy)
        case VerdictOutcome.FAILED:
            return reject(
                partition,
                run_id,
                actor=actor,
                now=now,
                error=why or "",
                policy=policy,
                terminality=terminality,
            )
        case _:
            assert_never(verdict.outcome)


def apply_run_end(partition: Partition, run: Run, now: datetime) -> Change[Partition] | None:
    """Apply the end of ``run`` to its partition; return ``None`` if the run will be retried."""
    run_id, why = run.run_id, run.error_message
    match run.status:
        case RunStatus.PASSED | RunStatus.NEEDS_REVIEW:
            return accept(partition, run_id, actor=Actor.VALIDATOR, now=now, review_reason=why)
        case RunStatus.FAILED:
            return reject(partition, run_id, actor=Actor.VALIDATOR, now=now, error=why or "")
        case RunStatus.ERROR:
            if not is_permanent(run):
                return None
            return abandon(partition, run_id, actor=Actor.SCHEDULER, now=now, error=why or "")
        case RunStatus.DISCOVERED | RunStatus.PROCESSING:
            raise InvalidStateError(
                subject=run.subject, problem=f"has not ended (status {run.status})"
            )
        case _:
            assert_never(run.status)


def find_verdict(change: Change[Partition]) -> VerdictOutcome | None:
    """Return the verdict that caused a change; ``None`` if no verdict did."""
    match change.transition:
        case ACCEPT.name if change.after.needs_review:
            return VerdictOutcome.NEEDS_REVIEW
        case ACCEPT.name:
            return VerdictOutcome.PASSED
        case REJECT.name:
            return VerdictOutcome.FAILED
        case _:
            return None
