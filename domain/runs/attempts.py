"""The attempts of a run. Each claim is one attempt, and its outcome is kept permanently."""

from datetime import datetime
from enum import StrEnum

from attrs import field, frozen, validators

from tileferry.domain.errors import InvalidStateError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.runs.run import Run, RunId, RunStatus, WorkerId
from tileferry.domain.runs.transitions import CANCEL, RECORD_ERROR, RELEASE, RESCUE
from tileferry.domain.state_machine import Change
from tileferry.domain.validation import aware, instance, integer, name, number, text

with import_on_call(globals()):  # not needed to list runs
    from tileferry.domain.retry import RetryAt


class AttemptOutcome(StrEnum):
    """How an attempt ended."""

    UNDER_WAY = "under_way"
    PASSED = "passed"
    NEEDS_REVIEW = "needs_review"
    FAILED = "failed"
    ERROR = "error"
    """The worker reported an error."""
    LOST = "lost"
    """The worker's lease expired."""
    RELEASED = "released"
    """The worker was stopped and returned the run to the queue."""
    CANCELLED = "cancelled"
    """An operator cancelled the run while the worker processed it."""


_FAILURE_OUTCOMES = {
    RECORD_ERROR.name: AttemptOutcome.ERROR,
    RESCUE.name: AttemptOutcome.LOST,
    RELEASE.name: AttemptOutcome.RELEASED,
    CANCEL.name: AttemptOutcome.CANCELLED,
}


@frozen(kw_only=True)
class RunAttempt:
    """One attempt: the worker, the start and end times, and the outcome."""

    run_id: RunId = field(validator=name)
    epoch: int = field(validator=integer(1))
    """The lease epoch of the claim that started it."""
    worker: WorkerId = field(validator=text)
    began_at: datetime = field(validator=aware)
    ended_at: datetime | None = field(default=None, validator=validators.optional(aware))
    outcome: AttemptOutcome = field(validator=instance(AttemptOutcome))
    error_class: str | None = field(default=None, validator=validators.optional(text))
    error_message: str | None = field(default=None, validator=validators.optional(text))
    delay_s: float | None = field(default=None, validator=validators.optional(number(0)))
    """The planned delay until the next attempt; ``None`` if no retry was planned."""


def build_ended_attempt(change: Change[Run], began_at: datetime) -> RunAttempt | None:
    """Return the attempt that a failure ended; ``None`` if the change ended no attempt."""
    before, after = change.before, change.after
    if before is None or before.lease_owner is None or change.transition not in _FAILURE_OUTCOMES:
        return None
    outcome = _FAILURE_OUTCOMES[change.transition]
    released = outcome is AttemptOutcome.RELEASED  # not an error: the run keeps an earlier one
    return RunAttempt(
        run_id=before.run_id,
        epoch=before.lease_epoch,
        worker=before.lease_owner,
        began_at=began_at,
        ended_at=change.at,
        outcome=outcome,
        error_class=None if released else after.error_class,
        error_message=None if released else after.error_message,
        delay_s=0.0 if released else _get_delay(change),
    )


def _get_delay(change: Change[Run]) -> float | None:
    decision = None if change.record is None else change.record.decision
    return decision.delay_s if isinstance(decision, RetryAt) else None


def build_newest_attempt(
    run: Run, worker: WorkerId, began_at: datetime, ended_at: datetime | None
) -> RunAttempt:
    """Return the current attempt of a run, or its last attempt if the run has ended."""
    if run.status is RunStatus.PROCESSING:
        outcome = AttemptOutcome.UNDER_WAY
    elif run.status in {RunStatus.PASSED, RunStatus.NEEDS_REVIEW, RunStatus.FAILED}:
        outcome = AttemptOutcome(run.status)
    else:
        raise InvalidStateError(
            subject=run.subject, problem=f"has no current attempt (status {run.status})"
        )
    judged = outcome is not AttemptOutcome.UNDER_WAY
    return RunAttempt(
        run_id=run.run_id,
        epoch=run.lease_epoch,
        worker=worker,
        began_at=began_at,
        ended_at=ended_at,
        outcome=outcome,
        error_message=run.error_message if judged else None,
    )
