"""The lease on a run: who holds it, and whether it still counts."""

from datetime import datetime, timedelta

from tileferry.domain.actors import Actor
from tileferry.domain.change import Transition
from tileferry.domain.checks import check_duration, check_moment
from tileferry.domain.errors import IllegalTransitionError
from tileferry.domain.runs.run import Run, RunStatus


def lease_ended(run: Run, now: datetime) -> bool:
    """Tell whether the run is held under a lease that has run out; at its last instant it has."""
    check_moment(now)
    return run.lease_expires_at is not None and run.lease_expires_at <= now


def end_of(lease: timedelta, now: datetime) -> datetime:
    """Return when a lease that begins now runs out."""
    check_duration(lease, field="lease")
    return now + lease


def fence(rule: Transition[RunStatus], run: Run, actor: Actor, owner: str, epoch: int) -> None:
    """Refuse a worker that does not hold the run's lease, or holds an older claim on it."""
    if (owner, epoch) != (run.lease_owner, run.lease_epoch):
        raise refused(
            rule,
            run,
            actor,
            f"{owner} with epoch {epoch} does not hold its lease, "
            f"{run.lease_owner} with epoch {run.lease_epoch} does",
        )


def refused(
    rule: Transition[RunStatus], run: Run, actor: Actor, problem: str
) -> IllegalTransitionError:
    """Return the error that says why ``run`` cannot take ``rule``."""
    return rule.refused(run.subject, run.status, actor, problem)
