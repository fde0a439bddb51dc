"""Explains the state of runs and partitions in sentences, and what happens next."""

from typing import assert_never

from tileferry.application.control.policies import WorkPolicies
from tileferry.application.control.queries import PartitionDetails, RunDetails, SourceDetails
from tileferry.domain.partitions import PartitionGiveUpReason, PartitionStatus
from tileferry.domain.retry import RetryPolicy
from tileferry.domain.retry.budget import can_pay_retry
from tileferry.domain.runs import (
    QUEUE_BUDGET,
    Run,
    RunKind,
    RunPriority,
    RunStatus,
    is_due,
    is_lease_expired,
    is_permanent,
)
from tileferry.domain.text import printable
from tileferry.entrypoints.cli.formatting import format_duration, format_relative_time


def explain_run(  # noqa: PLR0911  # one return per status
    found: RunDetails, source: SourceDetails, policies: WorkPolicies
) -> list[str]:
    """Return sentences that explain the state of a run."""
    run = found.run
    match run.status:
        case RunStatus.DISCOVERED:
            submitted = format_relative_time(run.submitted_date, found.now)
            return [
                f"It was submitted at {submitted}, and no worker has taken it yet.",
                *_explain_waiting(found, source),
            ]
        case RunStatus.PROCESSING:
            return _explain_processing(found)
        case RunStatus.ERROR if is_permanent(run):
            return _explain_giveup(run, policies.run)
        case RunStatus.ERROR:
            return [*_explain_retry(found, policies.run), *_explain_waiting(found, source)]
        case RunStatus.PASSED:
            return [f"It was done{_format_end(found)}, and all is well."]
        case RunStatus.NEEDS_REVIEW:
            error = _format_run_error(run)
            return [f"It was done{_format_end(found)}, and a human should look: {error}."]
        case RunStatus.FAILED:
            return [
                f"It was judged{_format_end(found)}, and rejected: {_format_run_error(run)}.",
                "What was judged is not tried again; another try is another run.",
            ]
        case _:
            assert_never(run.status)


def _explain_processing(found: RunDetails) -> list[str]:
    run = found.run
    assert run.lease_expires_at is not None  # noqa: S101  # set while a worker has the run
    began = (
        ""
        if not found.attempts
        else f" since {format_relative_time(found.attempts[-1].began_at, found.now)}"
    )
    story = [f"Worker {printable(run.lease_owner or '')} has had it{began}."]
    if is_lease_expired(run, found.now):
        story.append(
            f"It was last heard of too long ago: its lease ended at"
            f" {format_relative_time(run.lease_expires_at, found.now)}. "
            "The next sweep of any worker takes the run"
            " from it, and no attempt is charged."
        )
    else:
        story.append(
            f"It holds it until {format_relative_time(run.lease_expires_at, found.now)}, or longer."
        )
    if run.error_message is not None:
        story.append(f"This is another try. Before it: {_format_run_error(run)}.")
    return story


def _explain_retry(found: RunDetails, policy: RetryPolicy) -> list[str]:
    run = found.run
    assert run.next_retry_at is not None  # noqa: S101  # set while the run waits for a retry
    due = "It has been due since" if is_due(run, found.now) else "It is tried again at"
    broken = "Its last attempt ended with an" if found.attempts else "It is in"
    story = [
        f"{broken} error ({_format_error_class(run)}): {_format_run_error(run)}.",
        (
            f"{due} {format_relative_time(run.next_retry_at, found.now)}."
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


def _explain_waiting(found: RunDetails, source: SourceDetails) -> list[str]:
    """Explain why a run that is due has not started."""
    run, now, load = found.run, found.now, source.load
    gate = source.gate
    if not gate.is_open(now) and gate.closed_until is not None:
        return [
            (
                f"The source {run.source} asked for patience: none of its runs starts before"
                f" {format_relative_time(gate.closed_until, now)}."
            )
        ]
    if not is_due(run, now):
        return []
    story = []
    if run.status is RunStatus.ERROR and not can_pay_retry(source.tokens):
        story.append(
            f"Retries of {run.source} are paid from tokens, and {source.tokens:.1f} are left; one"
            f" comes back every {format_duration(1 / QUEUE_BUDGET.refill_per_s)}."
        )
    if run.priority is RunPriority.BACKFILL:
        story.append("It belongs to a backfill, which lets all fresh work go first.")
    story.append(
        f"Of its source {_format_run_count(load.ready)} ready and {load.under_way} under way."
        + ("" if load.under_way else " Is a worker running? Start one: tileferry worker")
    )
    return story


def _explain_giveup(run: Run, policy: RetryPolicy) -> list[str]:
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
        f"It was given up{tried} ({_format_error_class(run)}): {_format_run_error(run)}.",
        "Nothing tries it again by itself.",
        next_step,
    ]


def _format_run_count(count: int) -> str:
    return "1 run is" if count == 1 else f"{count} runs are"


def _format_error_class(run: Run) -> str:
    return (run.error_class or "").replace("_", " ")


def _format_run_error(run: Run) -> str:
    return printable(run.error_message or "no word of it").rstrip(".")


def _format_end(found: RunDetails) -> str:
    ended = found.attempts[-1].ended_at if found.attempts else None
    return "" if ended is None else f" at {format_relative_time(ended, found.now)}"


def explain_partition(found: PartitionDetails, policies: WorkPolicies) -> list[str]:
    """Return sentences that explain the state of a partition, without its newest run."""
    partition = found.partition
    judged = "The validator has not judged it yet"
    if partition.attempt_count:
        judged = f"The validator has judged it {_format_times(partition.attempt_count)}"
    match partition.status:
        case PartitionStatus.PENDING:
            return [
                (
                    f"{judged}. Run {partition.active_run_id} is to bring its data; until that is"
                    " accepted nothing can be read."
                )
            ]
        case PartitionStatus.SUCCESS:
            return _explain_success(found, judged)
        case PartitionStatus.FAILED:
            return [*_explain_failure(found, judged), *_explain_next_step(found, policies)]
        case _:
            assert_never(partition.status)


def _explain_success(found: PartitionDetails, judged: str) -> list[str]:
    partition = found.partition
    story = [f"{judged}, and accepted run {partition.current_run_id}: consumers read its data."]
    if partition.needs_review:
        story.append("A human should look at it; the verdicts say why.")
    if partition.active_run_id is not None:
        story.append(
            f"An operator has it reprocessed by run {partition.active_run_id}. What there is stays"
            " readable until that is accepted, and also if it is not."
        )
    elif partition.last_run_id != partition.current_run_id:
        story.append(
            f"A later run, {partition.last_run_id}, was to replace it and did not: "
            f"{_format_partition_error(found)}."
        )
    return story


def _explain_failure(found: PartitionDetails, judged: str) -> list[str]:
    partition = found.partition
    if partition.abandoned:
        return [
            (
                f"Its newest run, {partition.last_run_id}, ended before it could be judged:"
                f" {_format_partition_error(found)}."
            ),
            f"{judged}; a run that ends so counts for no attempt.",
        ]
    error = _format_partition_error(found)
    return [f"{judged}, the last time run {partition.last_run_id}, and rejected: {error}."]


def _explain_next_step(found: PartitionDetails, policies: WorkPolicies) -> list[str]:
    partition, terminality = found.partition, policies.terminality
    story = []
    match found.terminal:
        case PartitionGiveUpReason.MARKED:
            marker = printable(partition.terminal_marker or "").rstrip(".")
            story.append(f"It is terminal: an operator has ruled out further tries: {marker}.")
        case PartitionGiveUpReason.ATTEMPTS_USED_UP:
            allowed = _format_times(terminality.max_attempts)
            story.append(f"It is terminal: the policy allows it to be judged {allowed}.")
        case PartitionGiveUpReason.TOO_OLD:
            age_s = 0.0 if terminality.max_age is None else terminality.max_age.total_seconds()
            story.append(
                f"It is terminal: it was created at "
                f"{format_relative_time(partition.created_at, found.now)}, and"
                f" the policy ends after {format_duration(age_s)}."
            )
        case None if found.planned is not None:
            return [
                (
                    "The policy has it tried again at "
                    f"{format_relative_time(found.planned.next_run_at, found.now)}"
                    f", by its rule of {found.planned.backoff_strategy}. A worker sees to it."
                )
            ]
        case PartitionGiveUpReason.ABANDONED | None:
            story.append("The policy plans no further try: that is for a human to decide.")
        case _:
            assert_never(found.terminal)
    return [*story, _suggest_command(found)]


def _suggest_command(found: PartitionDetails) -> str:
    key = found.partition.key
    if found.has_raw:
        return f'To try it again all the same: tileferry state retry {key} --reason "…"'
    return (
        "Its newest run left no raw partition, so there is nothing to retry. To extract it anew:"
        f" tileferry backfill plan --source {key.source} --customer-id {key.customer_id}"
        f" --query {key.query_name} --from {key.logical_date} --to {key.logical_date} …"
    )


def _format_partition_error(found: PartitionDetails) -> str:
    return printable(found.partition.error_message or "no word of it").rstrip(".")


def _format_times(count: int) -> str:
    names = {1: "once", 2: "twice"}
    return names.get(count, f"{count} times")
