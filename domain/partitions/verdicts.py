"""What the end of a run means for its partition."""

from datetime import datetime
from typing import assert_never

from tileferry.domain.actors import Actor
from tileferry.domain.change import Change
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions.partition import Partition
from tileferry.domain.partitions.table import ACCEPT, REJECT
from tileferry.domain.partitions.transitions import abandon, accept, reject
from tileferry.domain.runs import Run, RunStatus, Verdict, VerdictOutcome, is_permanent


def apply_verdict(
    partition: Partition, verdict: Verdict, now: datetime, *, actor: Actor = Actor.VALIDATOR
) -> Change[Partition]:
    """Return what the validator's verdict makes of the partition: one attempt, whatever it says."""
    run_id, why = verdict.run_id, verdict.explanation
    match verdict.outcome:
        case VerdictOutcome.PASSED | VerdictOutcome.NEEDS_REVIEW:
            return accept(partition, run_id, actor=actor, now=now, review_reason=why)
        case VerdictOutcome.FAILED:
            return reject(partition, run_id, actor=actor, now=now, error=why or "")
        case _:
            assert_never(verdict.outcome)


def after_run(partition: Partition, run: Run, now: datetime) -> Change[Partition] | None:
    """Return what the end of ``run`` makes of its partition; ``None`` while a retry is to come."""
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
            raise InvalidValueError(
                field="run.status", value=run.status, problem=f"{run.subject} has not ended"
            )
        case _:
            assert_never(run.status)


def verdict_behind(change: Change[Partition]) -> VerdictOutcome | None:
    """Return the verdict that a change of a partition came from; ``None`` if it came from none."""
    match change.transition:
        case ACCEPT.name if change.after.needs_review:
            return VerdictOutcome.NEEDS_REVIEW
        case ACCEPT.name:
            return VerdictOutcome.PASSED
        case REJECT.name:
            return VerdictOutcome.FAILED
        case _:
            return None
