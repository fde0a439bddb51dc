"""A run in words: why it is where it is, and what will happen to it."""

from typing import assert_never

from tileferry.application.control.inspection import InspectedRun, InspectedSource
from tileferry.application.control.work_policies import WorkPolicies
from tileferry.domain.retry import RetryPolicy
from tileferry.domain.retry.budget import pays_retry
from tileferry.domain.runs import (
    QUEUE_BUDGET,
    Run,
    RunKind,
    RunPriority,
    RunStatus,
    is_due,
    is_permanent,
    lease_ended,
)
from tileferry.domain.text import printable
from tileferry.entrypoints.cli.views.times import in_seconds, when


def why_run(  # noqa: PLR0911  # one for each status
    found: InspectedRun, source: InspectedSource, policies: WorkPolicies
) -> list[str]:
    """Tell a run's story, a sentence each."""
    run = found.run
    match run.status:
        case RunStatus.DISCOVERED:
            submitted = when(run.submitted_date, found.now)
            return [
                f"It was submitted at {submitted}, and no worker has taken it yet.",
                *_held_up(found, source),
            ]
        case RunStatus.PROCESSING:
            return _under_way(found)
        case RunStatus.ERROR if is_permanent(run):
            return _given_up(run, policies.run)
        case RunStatus.ERROR:
            return [*_to_come(found, policies.run), *_held_up(found, source)]
        case RunStatus.PASSED:
            return [f"It was done{_ended(found)}, and all is well."]
        case RunStatus.NEEDS_REVIEW:
            return [f"It was done{_ended(found)}, and a human should look: {_error(run)}."]
        case RunStatus.FAILED:
            return [
                f"It was judged{_ended(found)}, and rejected: {_error(run)}.",
                "What was judged is not tried again; another try is another run.",
            ]
        case _:
            assert_never(run.status)


def _under_way(found: InspectedRun) -> list[str]:
    run = found.run
    assert run.lease_expires_at is not None  # noqa: S101  # it is held
    began = "" if not found.attempts else f" since {when(found.attempts[-1].began_at, found.now)}"
    story = [f"Worker {printable(run.lease_owner or '')} has had it{began}."]
    if lease_ended(run, found.now):
        story.append(
            f"It was last heard of too long ago: its lease ended at"
            f" {when(run.lease_expires_at, found.now)}. The next sweep of any worker takes the run"
            " from it, and no attempt is charged."
        )
    else:
        story.append(f"It holds it until {when(run.lease_expires_at, found.now)}, or longer.")
    if run.error_message is not None:
        story.append(f"This is another try. Before it: {_error(run)}.")
    return story


def _to_come(found: InspectedRun, policy: RetryPolicy) -> list[str]:
    run = found.run
    assert run.next_retry_at is not None  # noqa: S101  # it waits
    due = "It has been due since" if is_due(run, found.now) else "It is tried again at"
    broken = "Its last attempt ended with an" if found.attempts else "It is in"
    story = [
        f"{broken} error ({_class_of(run)}): {_error(run)}.",
        (
            f"{due} {when(run.next_retry_at, found.now)}."
            f" Of {policy.max_attempts - 1} retries it has been charged {run.retry_count}."
        ),
    ]
    if run.rate_limited_count:
        story.append(
            f"It was told to wait, which costs no retry: {run.rate_limited_count} of"
            f" {policy.max_rate_limited} times that are allowed."
        )
    if run.rescues:
        story.append(f"It has lost {run.rescues} worker{'' if run.rescues == 1 else 's'}.")
    return story


def _held_up(found: InspectedRun, source: InspectedSource) -> list[str]:
    """Say what a run that could start is waiting for."""
    run, now, load = found.run, found.now, source.load
    gate = source.gate
    if not gate.is_open(now) and gate.closed_until is not None:
        return [
            (
                f"The source {run.source} asked for patience: none of its runs starts before"
                f" {when(gate.closed_until, now)}."
            )
        ]
    if not is_due(run, now):
        return []
    story = []
    if run.status is RunStatus.ERROR and not pays_retry(source.tokens):
        story.append(
            f"Retries of {run.source} are paid from tokens, and {source.tokens:.1f} are left; one"
            f" comes back every {in_seconds(1 / QUEUE_BUDGET.refill_per_s)}."
        )
    if run.priority is RunPriority.BACKFILL:
        story.append("It belongs to a backfill, which lets all fresh work go first.")
    story.append(
        f"Of its source {_runs(load.ready)} ready and {load.under_way} under way."
        + ("" if load.under_way else " Is a worker running? Start one: tileferry worker")
    )
    return story


def _given_up(run: Run, policy: RetryPolicy) -> list[str]:
    spent = run.error_class != "final"
    tried = f" after {run.retry_count} of {policy.max_attempts - 1} retries" if spent else ""
    if run.kind is RunKind.ACQUIRE_PARTITION:
        next_step = (
            "Its partition has failed with it. A new run is for a human to ask for:"
            " tileferry state inspect shows how."
        )
    else:
        next_step = f'To give it one more try: tileferry runs retry {run.run_id} --reason "…"'
    return [
        f"It was given up{tried} ({_class_of(run)}): {_error(run)}.",
        "Nothing tries it again by itself.",
        next_step,
    ]


def _runs(count: int) -> str:
    return "1 run is" if count == 1 else f"{count} runs are"


def _class_of(run: Run) -> str:
    return (run.error_class or "").replace("_", " ")


def _error(run: Run) -> str:
    return printable(run.error_message or "no word of it").rstrip(".")


def _ended(found: InspectedRun) -> str:
    ended = found.attempts[-1].ended_at if found.attempts else None
    return "" if ended is None else f" at {when(ended, found.now)}"
