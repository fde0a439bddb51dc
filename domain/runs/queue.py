"""A source that asked for patience gets it from every run, not only from the one it told."""

from collections.abc import Container, Iterable
from datetime import datetime, timedelta
from itertools import islice

from attrs import evolve, field, frozen, validators

from tileferry.domain.retry import (
    RUN_POLICY,
    ErrorClass,
    RateLimited,
    RetryBudget,
    RetryPolicy,
    cap_retry_after,
)
from tileferry.domain.runs.run import Run, RunId, RunKind, RunPriority, is_due
from tileferry.domain.validation import aware, check_aware, name


@frozen(kw_only=True)
class SourceGate:
    """Until when no run of one source is started. Waiting at it costs a run nothing."""

    source: str = field(validator=name)
    closed_until: datetime | None = field(default=None, validator=validators.optional(aware))
    """``None`` when it was never closed; at that very instant it is open."""

    def is_open(self, now: datetime) -> bool:
        """Tell whether runs of the source may start."""
        check_aware(now)
        return self.closed_until is None or self.closed_until <= now

    def close_after(
        self, error: ErrorClass, *, now: datetime, policy: RetryPolicy = RUN_POLICY
    ) -> "SourceGate":
        """Return the gate after a run's error: closed for the wait that the source asked for.

        The wait is cut as the run's own is. A gate never opens earlier than was promised before.
        """
        if not isinstance(error, RateLimited) or error.retry_after_s is None:
            return self
        until = now + timedelta(seconds=cap_retry_after(error.retry_after_s, policy))
        if self.closed_until is not None and self.closed_until >= until:
            return self
        return evolve(self, closed_until=until)


_ALL_KINDS = frozenset(RunKind)


def get_queue_key(run: Run) -> tuple[RunPriority, datetime, RunId]:
    """Return the sort key of the queue; the id only makes the order total."""
    return (run.priority, run.submitted_date, run.run_id)


def select_eligible(
    runs: Iterable[Run],
    now: datetime,
    gates: Iterable[SourceGate] = (),
    *,
    kinds: Container[RunKind] = _ALL_KINDS,
) -> list[Run]:
    """Return the runs that may start now, in the order in which they should."""
    closed = {gate.source for gate in gates if not gate.is_open(now)}
    return sorted(
        (
            run
            for run in runs
            if run.kind in kinds and run.source not in closed and is_due(run, now)
        ),
        key=get_queue_key,
    )


def take_batch(ordered: Iterable[Run], limit: int) -> list[Run]:
    """Return the first of those that may start, as one worker takes them at a time.

    A run that has lost a worker goes alone: if it is what kills them, it takes no other with it.
    """
    batch: list[Run] = []
    for run in islice(ordered, limit):
        if run.rescues and batch:
            break
        batch.append(run)
        if run.rescues:
            break
    return batch


QUEUE_BUDGET = RetryBudget(capacity=100.0, earned_per_attempt=0.1, refill_per_s=1.0)
"""What the retries of one source are paid from, by all workers together.

A retry here is a whole run. The refill is what keeps a queue going that has nothing but retries.
A run that is due when it is changed competes at once, and costs nothing: it is new, or was rescued
from a worker that has gone, or asked for by an operator. None of these adds to what the source was
asked to bear.
"""
ADMIT_MAX = 1_000
"""How many retries are woken at a time."""


def admit_due_retries(waiting: Iterable[Run], budget: RetryBudget, now: datetime) -> list[Run]:
    """Return those of a source's waiting retries that compete from now on, one token each."""
    due = [run for run in waiting if is_due(run, now)]
    due.sort(key=lambda run: (run.next_retry_at, run.run_id))
    return due[: min(budget.retries_allowed, ADMIT_MAX)]
