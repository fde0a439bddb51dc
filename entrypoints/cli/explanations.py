"""Explains the state of runs and partitions in sentences, and what happens next."""

from typing import assert_never

from tileferry.application.control.policies import WorkPolicies
from tileferry.application.control.queries import PartitionDetails, RunDetails, SourceDetails
from tileferry.domain.partitions import PartitionGiveUpReason, PartitionStatus
from tileferry.domain.retry import RetryPolicy
from tileferry.domain.retry.budget import can_pay_retry
from tileferry.domain.runs import (
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
from tileferry.entrypoints.cli.work_lines import describe_progress


def explain_run(  # noqa: PLR0911  # one return per status
    found: RunDetails, source: SourceDetails, policies: WorkPolicies
) -> list[str]:
    """Return sentences that explain the state of a run."""
    run = found.run
    match run.status:
        case RunStatus.DISCOVERED:
            return [_explain_queued(found), *_explain_waiting(found, source)]
        case RunStatus.PROCESSING:
            return _explain_processing(found)
        case RunStatus.ERROR if is_permanent(run):
            return _explain_giveup(run, policies.run)
        case RunStatus.ERROR:
            return [*_explain_retry(found, policies.run), *_explain_waiting(found, source)]
        case RunStatus.PASSED:
            return [f"It passed{_format_end(found)}."]
        case RunStatus.NEEDS_REVIEW:
            error = _format_run_error(run)
            return [f"It finished{_format_end(found)} and needs review: {error}."]
        case RunStatus.FAILED:
            return [
                f"The validator rejected it{_format_end(found)}: {_format_run_error(run)}.",
                "A rejected run is not retried; a retry is a new run.",
            ]
        case _:
            assert_never(run.status)


def _explain_queued(found: RunDetails) -> str:
    if found.attempts:
        last = found.attempts[-1]
        return (
            f"Worker {printable(last.worker)} was stopped and returned it to the queue at"
            f" {format_relative_time(last.ended_at or found.now, found.now)}; no retry was charged."
        )
    submitted = format_relative_time(found.run.submitted_date, found.now)
    return f"It was submitted at {submitted}; no worker has claimed it yet."


def _explain_processing(found: RunDetails) -> list[str]:
    run = found.run
    assert run.lease_expires_at is not None  # noqa: S101  # set while a worker has the run
    doing = "is processing it"
    if found.attempts:
        began = format_relative_time(found.attempts[-1].began_at, found.now)
        doing = f"has been processing it since {began}"
    story = [f"Worker {printable(run.lease_owner or '')} {doing}."]
    if is_lease_expired(run, found.now):
        story.append(
            f"That worker stopped responding: its lease expired at"
            f" {format_relative_time(run.lease_expires_at, found.now)}."
            " The next sweep of any worker rescues the run; no attempt is charged."
        )
    else:
        story.append(
            f"Its lease lasts until {format_relative_time(run.lease_expires_at, found.now)},"
            " and is renewed."
        )
    if found.progress is not None:
        story += [f"Progress: {line}." for line in describe_progress(found.progress)]
    if run.error_message is not None:
        story.append(f"This is a retry. The previous error: {_format_run_error(run)}.")
    return story


def _explain_retry(found: RunDetails, policy: RetryPolicy) -> list[str]:
    run = found.run
    assert run.next_retry_at is not None  # noqa: S101  # set while the run waits for a retry
    due = "It has been due since" if is_due(run, found.now) else "The next retry is at"
    broken = "Its last attempt ended with an" if found.attempts else "It is in"
    story = [
        f"{broken} error ({_format_error_class(run)}): {_format_run_error(run)}.",
        (
            f"{due} {format_relative_time(run.next_retry_at, found.now)}."
            f" Retries used: {run.retry_count} of {policy.max_attempts - 1}."
        ),
    ]
    if run.rate_limited_count:
        story.append(
            f"It was rate limited {_format_times(run.rate_limited_count)} (limit:"
            f" {policy.max_rate_limited}); such waits use no retry."
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
                f"The source {run.source} is rate limited: none of its runs starts before"
                f" {format_relative_time(gate.closed_until, now)}."
            )
        ]
    if not is_due(run, now):
        return []
    story = []
    if load.ready and not can_pay_retry(source.tokens):
        story.append(
            f"Each retry of {run.source} takes a token; {source.tokens:.1f} are left, and one is"
            f" added every {format_duration(1 / source.budget.refill_per_s)}. Runs start in the"
            " order of their submission, so later ones wait as well."
        )
    if run.priority is RunPriority.BACKFILL:
        story.append("It belongs to a backfill, which has the lowest priority.")
    story.append(
        f"Of its source, {_format_run_count(load.ready)} ready and {load.under_way} in progress."
        + ("" if load.under_way else " Is a worker running? Start one: tileferry worker")
    )
    return story


def _explain_giveup(run: Run, policy: RetryPolicy) -> list[str]:
    spent = run.error_class != "final"
    tried = f" after {run.retry_count} of {policy.max_attempts - 1} retries" if spent else ""
    if run.kind is RunKind.ACQUIRE_PARTITION:
        next_step = (
            "Its partition has failed with it. An operator can start a new run:"
            " tileferry state inspect shows how."
        )
    else:
        next_step = f'To retry it once more: tileferry runs retry {run.run_id} --reason "…"'
    return [
        f"It was given up{tried} ({_format_error_class(run)}): {_format_run_error(run)}.",
        "It is not retried automatically.",
        next_step,
    ]


def _format_run_count(count: int) -> str:
    return "1 run is" if count == 1 else f"{count} runs are"


def _format_error_class(run: Run) -> str:
    return (run.error_class or "").replace("_", " ")


def _format_run_error(run: Run) -> str:
    return printable(run.error_message or "no error message").rstrip(".")


def _format_end(found: RunDetails) -> str:
    ended = found.attempts[-1].ended_at if found.attempts else None
    return "" if ended is None else f" at {format_relative_time(ended, found.now)}"


def explain_partition(found: PartitionDetails, policies: WorkPolicies) -> list[str]:
    """Return sentences that explain the state of a partition, without its newest run."""
    partition = found.partition
    judged = "It has not been validated yet"
    if partition.attempt_count:
        judged = f"It has been validated {_format_times(partition.attempt_count)}"
    match partition.status:
        case PartitionStatus.PENDING:
            return [
                (
                    f"{judged}. Run {partition.active_run_id} fetches its data; there is nothing to"
                    " read until that is accepted."
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
    story = [f"{judged}; run {partition.current_run_id} was accepted, and consumers read its data."]
    if partition.needs_review:
        story.append("It needs review; the verdicts say why.")
    if partition.active_run_id is not None:
        story.append(
            f"Run {partition.active_run_id} is reprocessing it. The current data stays readable"
            " until that run is accepted, and also if it is rejected."
        )
    elif partition.last_run_id != partition.current_run_id:
        story.append(
            f"A later run, {partition.last_run_id}, was meant to replace it but failed: "
            f"{_format_partition_error(found)}."
        )
    return story


def _explain_failure(found: PartitionDetails, judged: str) -> list[str]:
    partition = found.partition
    if partition.abandoned:
        return [
            (
                f"Its newest run, {partition.last_run_id}, ended before it could be validated:"
                f" {_format_partition_error(found)}."
            ),
            f"{judged}; a run that ends this way does not count as an attempt.",
        ]
    error = _format_partition_error(found)
    return [f"{judged}; run {partition.last_run_id}, the last one, was rejected: {error}."]


def _explain_next_step(found: PartitionDetails, policies: WorkPolicies) -> list[str]:
    partition, terminality = found.partition, policies.terminality
    story = []
    match found.terminal:
        case PartitionGiveUpReason.MARKED:
            marker = printable(partition.terminal_marker or "").rstrip(".")
            story.append(f"It is terminal: an operator marked it: {marker}.")
        case PartitionGiveUpReason.ATTEMPTS_USED_UP:
            limit = terminality.max_attempts
            story.append(f"It is terminal: all {limit} attempts are used up.")
        case PartitionGiveUpReason.TOO_OLD:
            age_s = 0.0 if terminality.max_age is None else terminality.max_age.total_seconds()
            story.append(
                f"It is terminal: it was created at "
                f"{format_relative_time(partition.created_at, found.now)}, and"
                f" the policy stops retrying after {format_duration(age_s)}."
            )
        case None if found.planned is not None:
            return [
                (
                    "A worker retries it at "
                    f"{format_relative_time(found.planned.next_run_at, found.now)}"
                    f"; backoff: {found.planned.backoff_strategy}."
                )
            ]
        case PartitionGiveUpReason.ABANDONED | None:
            story.append("The policy plans no retry; an operator has to decide.")
        case _:
            assert_never(found.terminal)
    return [*story, _suggest_command(found)]


def _suggest_command(found: PartitionDetails) -> str:
    key = found.partition.key
    if found.has_raw:
        return f'To retry it anyway: tileferry state retry {key} --reason "…"'
    return (
        "The raw sink has no raw partition for it, so nothing can be retried. To extract it again:"
        f" tileferry backfill plan --source {key.source} --customer-id {key.customer_id}"
        f" --query {key.query_name} --from {key.logical_date} --to {key.logical_date} …"
    )


def _format_partition_error(found: PartitionDetails) -> str:
    return printable(found.partition.error_message or "no error message").rstrip(".")


def _format_times(count: int) -> str:
    names = {1: "once", 2: "twice"}
    return names.get(count, f"{count} times")
