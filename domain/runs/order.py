"""Which run is next: only due runs compete, by when they were submitted, retries like new ones."""

from collections.abc import Container, Iterable
from datetime import datetime
from itertools import islice

from tileferry.domain.runs.gate import SourceGate
from tileferry.domain.runs.run import Run, RunId, RunKind, RunPriority, is_due

_ALL_KINDS = frozenset(RunKind)


def fair_order(run: Run) -> tuple[RunPriority, datetime, RunId]:
    """Return the sort key of the queue; the id only makes the order total."""
    return (run.priority, run.submitted_date, run.run_id)


def eligible(
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
        key=fair_order,
    )


def batch_of(ordered: Iterable[Run], limit: int) -> list[Run]:
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
