"""Which runs compete: new ones at once, retries when due, as far as their source can bear it."""

from collections.abc import Iterable
from datetime import datetime

from tileferry.domain.retry import RetryBudget
from tileferry.domain.runs.run import Run, is_due

QUEUE_BUDGET = RetryBudget(capacity=100.0, earned_per_attempt=0.1, refill_per_s=1.0)
"""What the retries of one source are paid from, by all workers together.

A retry here is a whole run. The refill is what keeps a queue going that has nothing but retries.
A run that is due when it is changed competes at once, and costs nothing: it is new, or was rescued
from a worker that has gone, or asked for by an operator. None of these adds to what the source was
asked to bear.
"""
WAKE_MAX = 1_000
"""How many retries are woken at a time."""


def waking(waiting: Iterable[Run], budget: RetryBudget, now: datetime) -> list[Run]:
    """Return those of a source's waiting retries that compete from now on, one token each."""
    due = [run for run in waiting if is_due(run, now)]
    due.sort(key=lambda run: (run.next_retry_at, run.run_id))
    return due[: min(budget.retries_allowed, WAKE_MAX)]
