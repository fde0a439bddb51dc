"""Queue order, source gates and the retry budget of a source."""

from collections.abc import Collection, Container, Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from attrs import evolve, field, frozen, validators

from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.retry import (
    RUN_POLICY,
    ErrorClass,
    RateLimited,
    RetryPolicy,
)
from tileferry.domain.runs.run import Run, RunId, RunKind, RunPriority, RunStatus, is_due
from tileferry.domain.runs.transitions import is_lease_expired
from tileferry.domain.validation import aware, check_aware, name

with import_on_call(globals()):  # not needed to list runs
    from tileferry.domain.retry import cap_retry_after


@frozen(kw_only=True)
class SourceGate:
    """Blocks all runs of a source until a given time. The wait is not charged to the runs."""

    source: str = field(validator=name)
    closed_until: datetime | None = field(default=None, validator=validators.optional(aware))
    """``None`` if it was never closed. The gate is open from this instant on."""

    def is_open(self, now: datetime) -> bool:
        check_aware(now)
        return self.closed_until is None or self.closed_until <= now

    def close_after(
        self, error: ErrorClass, *, now: datetime, policy: RetryPolicy = RUN_POLICY
    ) -> "SourceGate":
        """Return the gate after a run's error: closed for the wait that the source requested.

        The wait is capped like the run's own wait. An error never makes the gate open earlier.
        """
        if not isinstance(error, RateLimited) or error.retry_after_s is None:
            return self
        until = now + timedelta(seconds=cap_retry_after(error.retry_after_s, policy))
        if self.closed_until is not None and self.closed_until >= until:
            return self
        return evolve(self, closed_until=until)


_ALL_KINDS = frozenset(RunKind)


def get_queue_key(run: Run) -> tuple[RunPriority, datetime, RunId]:
    """Return the sort key of the queue. The id only breaks ties."""
    return (run.priority, run.submitted_date, run.run_id)


def select_eligible(
    runs: Iterable[Run],
    now: datetime,
    gates: Iterable[SourceGate] = (),
    *,
    kinds: Container[RunKind] = _ALL_KINDS,
) -> list[Run]:
    """Return the runs that may start now, in queue order."""
    closed = {gate.source for gate in gates if not gate.is_open(now)}
    return sorted(
        (
            run
            for run in runs
            if run.kind in kinds and run.source not in closed and is_due(run, now)
        ),
        key=get_queue_key,
    )


def take_batch(
    ordered: Iterable[Run], limit: int, retries_allowed: Mapping[str, int] = MappingProxyType({})
) -> list[Run]:
    """Return the next batch of runs for one worker, from runs in queue order.

    ``retries_allowed`` is the number of retry tokens of each source. Tokens delay, they do not
    reorder: where a retry needs a token that its source does not have, the line of that source
    stops, and later runs wait behind it, new ones too. So no run starves: a run waits only for
    runs that are before it in the queue, whose number cannot grow, and tokens refill with time.

    A run that has lost a worker is claimed alone, so that if it kills its worker again, no other
    run is affected.
    """
    left = dict(retries_allowed)
    stopped: set[str] = set()
    batch: list[Run] = []
    for run in ordered:
        if run.source in stopped:
            continue
        if run.needs_token:
            if left.get(run.source, 0) < 1:
                stopped.add(run.source)
                continue
            left[run.source] -= 1
        if len(batch) == limit or (run.rescues and batch):
            break
        batch.append(run)
        if run.rescues:
            break
    return batch


ADMIT_MAX = 1_000
"""The maximum number of due retries that join the line of their source at a time.

It is not below the largest batch. The oldest join first, so a batch is always the head of the line.
"""


def admit_due_retries(waiting: Iterable[Run], now: datetime) -> list[Run]:
    """Return the waiting retries of a source that join its line now, in queue order."""
    due = sorted((run for run in waiting if is_due(run, now)), key=get_queue_key)
    return due[:ADMIT_MAX]


def compute_wait_s(
    runs: Collection[Run], now: datetime, gates: Iterable[SourceGate] = ()
) -> float | None:
    """Return the seconds until the first of these runs may start; ``None`` if none is queued.

    It is 0 for a run that is due, even if it still waits for a token, and for a run whose lease has
    expired: the next sweep queues it.
    """
    if any(is_lease_expired(run, now) for run in runs):
        return 0.0
    opens_at = {gate.source: gate.closed_until or now for gate in gates}
    waits = [
        (max(now, run.next_retry_at or now, opens_at.get(run.source, now)) - now).total_seconds()
        for run in runs
        if run.status is RunStatus.DISCOVERED or run.next_retry_at is not None
    ]
    return min(waits, default=None)
