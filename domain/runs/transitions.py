"""A run's way through the queue when nothing breaks: submit, claim, renew, complete."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import assert_never

from attrs import evolve

from tileferry.domain.actors import Actor
from tileferry.domain.canonical import JsonValue
from tileferry.domain.change import Change
from tileferry.domain.runs.lease import end_of, fence, lease_ended, refused
from tileferry.domain.runs.run import (
    Run,
    RunId,
    RunKind,
    RunPriority,
    RunStatus,
    WorkerId,
    is_due,
    is_permanent,
)
from tileferry.domain.runs.table import CLAIM, COMPLETE, RENEW, SUBMIT
from tileferry.domain.runs.verdict import Verdict, VerdictOutcome
from tileferry.domain.text import in_utc


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
) -> Change[Run]:
    """Put a new run into the queue."""
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
    return SUBMIT.change(None, run, actor=actor, at=now)


def claim(
    run: Run, *, actor: Actor, owner: WorkerId, now: datetime, lease: timedelta
) -> Change[Run]:
    """Give a due run to a worker, under a lease and a new epoch."""
    CLAIM.permit(run.subject, run.status, actor, now)
    if is_permanent(run):
        raise refused(CLAIM, run, actor, "it has been given up")
    if not is_due(run, now):
        raise refused(CLAIM, run, actor, f"it is not due before {in_utc(run.next_retry_at)}")
    after = evolve(
        run,
        status=RunStatus.PROCESSING,
        next_retry_at=None,
        lease_owner=owner,
        lease_expires_at=end_of(lease, now),
        lease_epoch=run.lease_epoch + 1,
    )
    return CLAIM.change(run, after, actor=actor, at=now)


def renew(
    run: Run, *, actor: Actor, owner: WorkerId, epoch: int, now: datetime, lease: timedelta
) -> Change[Run]:
    """Extend a lease that its worker still holds; one that ran out stays lost."""
    RENEW.permit(run.subject, run.status, actor, now)
    fence(RENEW, run, actor, owner, epoch)
    if lease_ended(run, now):
        raise refused(RENEW, run, actor, f"its lease ran out at {in_utc(run.lease_expires_at)}")
    after = evolve(run, lease_expires_at=end_of(lease, now))
    return RENEW.change(run, after, actor=actor, at=now)


def complete(
    run: Run, verdict: Verdict, *, actor: Actor, owner: WorkerId, epoch: int, now: datetime
) -> Change[Run]:
    """End a run with a verdict, and clear what its retries left behind.

    A lease that ran out does not matter while nobody has taken the run: finished work counts.
    """
    COMPLETE.permit(run.subject, run.status, actor, now)
    fence(COMPLETE, run, actor, owner, epoch)
    if verdict.run_id != run.run_id:
        raise refused(COMPLETE, run, actor, f"the verdict is on run {verdict.run_id}")
    after = evolve(
        run,
        status=_ending(verdict.outcome),
        retry_count=0,
        rate_limited_count=0,
        error_class=None,
        error_message=verdict.explanation,
        lease_owner=None,
        lease_expires_at=None,
    )
    return COMPLETE.change(run, after, actor=actor, at=now, reason=verdict.explanation)


def _ending(outcome: VerdictOutcome) -> RunStatus:
    match outcome:
        case VerdictOutcome.PASSED:
            return RunStatus.PASSED
        case VerdictOutcome.NEEDS_REVIEW:
            return RunStatus.NEEDS_REVIEW
        case VerdictOutcome.FAILED:
            return RunStatus.FAILED
        case _:
            assert_never(outcome)
