"""Transitions after a failure: errors, lost workers, and an operator's cancel or retry."""

from datetime import datetime, timedelta

from attrs import evolve

from tileferry.domain.errors import Remedy
from tileferry.domain.retry import (
    QUARANTINE_POLICY,
    RUN_POLICY,
    DecisionRecord,
    ErrorClass,
    Failure,
    Final,
    Retryable,
    RetryAt,
    RetryPolicy,
    RetryReason,
    decide,
)
from tileferry.domain.runs.run import Run, RunKind, RunStatus, WorkerId, is_permanent
from tileferry.domain.runs.transitions import (
    CANCEL,
    RECORD_ERROR,
    RELEASE,
    RESCUE,
    RETRY_NOW,
    build_transition_error,
    check_lease_holder,
    is_lease_expired,
)
from tileferry.domain.state_machine import Actor, Change
from tileferry.domain.text import format_utc, printable

MAX_RESCUES = QUARANTINE_POLICY.max_attempts - 1
_PARTITION_FIRST = "its partition failed with it and needs a new run"


def record_error(
    run: Run,
    error: ErrorClass,
    message: str,
    *,
    actor: Actor,
    owner: WorkerId,
    epoch: int,
    now: datetime,
    policy: RetryPolicy = RUN_POLICY,
    improved: bool = False,
) -> Change[Run]:
    """End an attempt with an error. The run waits for its retry, or is given up.

    An attempt that ``improved`` the result resets the count of failures: the policy limits
    how often a run fails without progress. Work is finite, so this ends; the deadline still
    counts from the submission.
    """
    RECORD_ERROR.permit(run.subject, run.status, actor, now)
    check_lease_holder(RECORD_ERROR, run, actor, owner, epoch)
    failure = Failure(
        key=run.run_id,
        attempt=1 if improved else run.retry_count + 1,
        error=error,
        rate_limited=0 if improved else run.rate_limited_count,
        elapsed_s=max(0.0, (now - run.submitted_date).total_seconds()),
    )
    decision = decide(policy, failure)
    # Many exceptions have no text, and some contain arbitrary bytes. Recording them must not fail.
    after = _end_attempt(run, error.code, printable(message) or error.code)
    if isinstance(decision, RetryAt):
        after = evolve(
            after,
            next_retry_at=now + timedelta(seconds=decision.delay_s),
            retry_count=decision.attempt - 1,
            rate_limited_count=decision.rate_limited,
            # A wait that the source asked for costs no token.
            needs_token=decision.reason is RetryReason.BACKOFF,
        )
    return RECORD_ERROR.change(
        run,
        after,
        actor=actor,
        at=now,
        reason=after.error_message,
        record=DecisionRecord(policy=policy, failure=failure, decision=decision),
    )


def rescue(
    run: Run, *, actor: Actor, now: datetime, policy: RetryPolicy = QUARANTINE_POLICY
) -> Change[Run]:
    """Take a run from a worker whose lease expired. It is due at once, and no retry is charged.

    A run that has lost too many workers is given up, because it may be what kills them: the policy
    counts lost workers as attempts.
    """
    RESCUE.permit(run.subject, run.status, actor, now)
    if not is_lease_expired(run, now):
        raise build_transition_error(
            RESCUE, run, actor, f"its lease is valid until {format_utc(run.lease_expires_at)}"
        )
    lost = f"the lease of worker {run.lease_owner} expired at {format_utc(run.lease_expires_at)}"
    workers = run.rescues + 1
    failure = Failure(key=run.run_id, attempt=workers, error=Retryable())
    decision = decide(policy, failure)
    if isinstance(decision, RetryAt):
        broken = _end_attempt(run, Retryable.code, lost)
        at = now + timedelta(seconds=decision.delay_s)
        after = evolve(broken, next_retry_at=at, rescues=workers)
    else:
        count = "1 worker" if workers == 1 else f"{workers} workers"
        message = f"given up after losing {count}: {lost}"
        after = evolve(_end_attempt(run, Final.code, message), rescues=workers)
    return RESCUE.change(
        run,
        after,
        actor=actor,
        at=now,
        reason=after.error_message,
        record=DecisionRecord(policy=policy, failure=failure, decision=decision),
    )


def release(run: Run, *, actor: Actor, owner: WorkerId, epoch: int, now: datetime) -> Change[Run]:
    """Return a run to the queue when its worker is stopped: no error, due at once, not charged.

    Its counts and its last error stay, so that stopping a worker does not grant further retries.
    """
    RELEASE.permit(run.subject, run.status, actor, now)
    check_lease_holder(RELEASE, run, actor, owner, epoch)
    after = evolve(run, status=RunStatus.DISCOVERED, lease_owner=None, lease_expires_at=None)
    reason = f"released by worker {owner}, which was stopped"
    return RELEASE.change(run, after, actor=actor, at=now, reason=reason)


def cancel(run: Run, *, actor: Actor, now: datetime, reason: str) -> Change[Run]:
    """Give up a run. The worker of a run in progress loses its lease with this change."""
    CANCEL.permit(run.subject, run.status, actor, now, reason)
    if is_permanent(run):
        raise build_transition_error(CANCEL, run, actor, "it is already given up")
    ended = _end_attempt(run, Final.code, f"cancelled: {reason}")
    after = evolve(ended, next_retry_at=None, needs_token=False)
    return CANCEL.change(run, after, actor=actor, at=now, reason=reason)


def retry_now(run: Run, *, actor: Actor, now: datetime, reason: str) -> Change[Run]:
    """Make a run in error due now. Its counts are kept: an exhausted run gets one attempt."""
    RETRY_NOW.permit(run.subject, run.status, actor, now, reason)
    # The partition failed together with its run and needs a new run.
    if is_permanent(run) and run.kind is RunKind.ACQUIRE_PARTITION:
        raise build_transition_error(
            RETRY_NOW, run, actor, _PARTITION_FIRST, remedy=Remedy.RETRY_PARTITION
        )
    after = evolve(run, next_retry_at=now, needs_token=False)
    return RETRY_NOW.change(run, after, actor=actor, at=now, reason=reason)


def _end_attempt(run: Run, code: str, message: str) -> Run:
    return evolve(
        run,
        status=RunStatus.ERROR,
        error_class=code,
        error_message=message,
        lease_owner=None,
        lease_expires_at=None,
    )
