"""The transitions of a run. The documentation and the database schema follow this table."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import assert_never

from attrs import evolve

from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import Remedy
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.runs.run import (
    Run,
    RunId,
    RunKind,
    RunPriority,
    RunStatus,
    Verdict,
    VerdictOutcome,
    WorkerId,
    is_due,
    is_permanent,
)
from tileferry.domain.state_machine import Actor, Change, Transition
from tileferry.domain.text import format_utc
from tileferry.domain.validation import check_aware, check_duration

with import_on_call(globals()):
    from tileferry.domain.errors import IllegalTransitionError

SUBMIT = Transition(
    name="submit",
    moves=((None, RunStatus.DISCOVERED),),
    actors=(Actor.OPERATOR, Actor.SCHEDULER),
)
CLAIM = Transition(
    name="claim",
    moves=(
        (RunStatus.DISCOVERED, RunStatus.PROCESSING),
        (RunStatus.ERROR, RunStatus.PROCESSING),
    ),
    actors=(Actor.WORKER,),
)
RENEW = Transition(
    name="renew",
    moves=((RunStatus.PROCESSING, RunStatus.PROCESSING),),
    actors=(Actor.WORKER,),
)
COMPLETE = Transition(
    name="complete",
    moves=(
        (RunStatus.PROCESSING, RunStatus.PASSED),
        (RunStatus.PROCESSING, RunStatus.NEEDS_REVIEW),
        (RunStatus.PROCESSING, RunStatus.FAILED),
    ),
    actors=(Actor.WORKER,),
)
RECORD_ERROR = Transition(
    name="record_error",
    moves=((RunStatus.PROCESSING, RunStatus.ERROR),),
    actors=(Actor.WORKER,),
)
RESCUE = Transition(
    name="rescue",
    moves=((RunStatus.PROCESSING, RunStatus.ERROR),),
    actors=(Actor.SWEEPER,),
)
RELEASE = Transition(
    name="release",
    moves=((RunStatus.PROCESSING, RunStatus.DISCOVERED),),
    actors=(Actor.WORKER,),
)
CANCEL = Transition(
    name="cancel",
    moves=(
        (RunStatus.DISCOVERED, RunStatus.ERROR),
        (RunStatus.PROCESSING, RunStatus.ERROR),
        (RunStatus.ERROR, RunStatus.ERROR),
    ),
    actors=(Actor.OPERATOR,),
    reason_from=(Actor.OPERATOR,),
)
RETRY_NOW = Transition(
    name="retry_now",
    moves=((RunStatus.ERROR, RunStatus.ERROR),),
    actors=(Actor.OPERATOR,),
    reason_from=(Actor.OPERATOR,),
)

RUN_TRANSITIONS: tuple[Transition[RunStatus], ...] = (
    SUBMIT,
    CLAIM,
    RENEW,
    COMPLETE,
    RECORD_ERROR,
    RESCUE,
    RELEASE,
    CANCEL,
    RETRY_NOW,
)


def is_lease_expired(run: Run, now: datetime) -> bool:
    """Return whether the run's lease has expired; it expires at ``lease_expires_at`` exactly."""
    check_aware(now)
    return run.lease_expires_at is not None and run.lease_expires_at <= now


def compute_lease_end(lease: timedelta, now: datetime) -> datetime:
    """Return when a lease that starts now expires."""
    check_duration(lease, field="lease")
    return now + lease


def check_lease_holder(
    rule: Transition[RunStatus], run: Run, actor: Actor, owner: str, epoch: int
) -> None:
    """Raise unless the worker holds the run's lease under this epoch."""
    if (owner, epoch) != (run.lease_owner, run.lease_epoch):
        raise build_transition_error(
            rule,
            run,
            actor,
            f"{owner} with epoch {epoch} does not hold its lease, "
            f"{run.lease_owner} with epoch {run.lease_epoch} does",
        )


def build_transition_error(
    rule: Transition[RunStatus],
    run: Run,
    actor: Actor,
    problem: str,
    *,
    remedy: Remedy | str = "",
) -> IllegalTransitionError:
    """Return the error that says why ``run`` cannot make the transition ``rule``."""
    return rule.build_error(run.subject, run.status, actor, problem, remedy=remedy)


def submit(
    *,
    run_id: RunId,
    kind: RunKind,
    source: str,
    actor: Actor,
    now: datetime,
    priority: RunPriority = RunPriority.FRESH,
    dedupe_key: str | None = None,
    payload: Mapping[str, JsonValue] | None = None,
    reason: str | None = None,
) -> Change[Run]:
    """Create a run in the queue."""
    run = Run(
        run_id=run_id,
        kind=kind,
        source=source,
        submitted_date=now,
        priority=priority,
        dedupe_key=dedupe_key,
        payload=payload or {},
    )
    SUBMIT.permit(run.subject, None, actor, now)
    return SUBMIT.change(None, run, actor=actor, at=now, reason=reason)


def claim(
    run: Run, *, actor: Actor, owner: WorkerId, now: datetime, lease: timedelta
) -> Change[Run]:
    """Assign a due run to a worker, with a lease and a new epoch."""
    CLAIM.permit(run.subject, run.status, actor, now)
    if is_permanent(run):
        raise build_transition_error(CLAIM, run, actor, "it is given up")
    if not is_due(run, now):
        raise build_transition_error(
            CLAIM, run, actor, f"it is not due until {format_utc(run.next_retry_at)}"
        )
    after = evolve(
        run,
        status=RunStatus.PROCESSING,
        next_retry_at=None,
        needs_token=False,
        lease_owner=owner,
        lease_expires_at=compute_lease_end(lease, now),
        lease_epoch=run.lease_epoch + 1,
    )
    return CLAIM.change(run, after, actor=actor, at=now)


def renew(
    run: Run, *, actor: Actor, owner: WorkerId, epoch: int, now: datetime, lease: timedelta
) -> Change[Run]:
    """Extend the lease of its holder.

    An expired lease is renewed unless the run was rescued: the database may have been away.
    """
    RENEW.permit(run.subject, run.status, actor, now)
    check_lease_holder(RENEW, run, actor, owner, epoch)
    after = evolve(run, lease_expires_at=compute_lease_end(lease, now))
    return RENEW.change(run, after, actor=actor, at=now)


def complete(
    run: Run, verdict: Verdict, *, actor: Actor, owner: WorkerId, epoch: int, now: datetime
) -> Change[Run]:
    """End a run with a verdict, and clear its retry state.

    An expired lease is accepted unless another worker has claimed the run: finished work counts.
    """
    COMPLETE.permit(run.subject, run.status, actor, now)
    check_lease_holder(COMPLETE, run, actor, owner, epoch)
    if verdict.run_id != run.run_id:
        raise build_transition_error(
            COMPLETE, run, actor, f"the verdict is for run {verdict.run_id}"
        )
    after = evolve(
        run,
        status=_to_run_status(verdict.outcome),
        retry_count=0,
        rate_limited_count=0,
        error_class=None,
        error_message=verdict.explanation,
        lease_owner=None,
        lease_expires_at=None,
    )
    return COMPLETE.change(run, after, actor=actor, at=now, reason=verdict.explanation)


def _to_run_status(outcome: VerdictOutcome) -> RunStatus:
    match outcome:
        case VerdictOutcome.PASSED:
            return RunStatus.PASSED
        case VerdictOutcome.NEEDS_REVIEW:
            return RunStatus.NEEDS_REVIEW
        case VerdictOutcome.FAILED:
            return RunStatus.FAILED
        case _:
            assert_never(outcome)
