"""A partition in words: what it is, why, and what will happen to it."""

from typing import assert_never

from tileferry.application.control.inspection import InspectedPartition
from tileferry.application.control.work_policies import WorkPolicies
from tileferry.domain.partitions import GivenUp, PartitionStatus
from tileferry.domain.text import printable
from tileferry.entrypoints.cli.views.times import in_seconds, when


def why_partition(found: InspectedPartition, policies: WorkPolicies) -> list[str]:
    """Tell a partition's story, a sentence each; that of its newest run is told elsewhere."""
    partition = found.partition
    judged = "The validator has not judged it yet"
    if partition.attempt_count:
        judged = f"The validator has judged it {_times(partition.attempt_count)}"
    match partition.status:
        case PartitionStatus.PENDING:
            return [
                (
                    f"{judged}. Run {partition.active_run_id} is to bring its data; until that is"
                    " accepted nothing can be read."
                )
            ]
        case PartitionStatus.SUCCESS:
            return _success(found, judged)
        case PartitionStatus.FAILED:
            return [*_failure(found, judged), *_what_next(found, policies)]
        case _:
            assert_never(partition.status)


def _success(found: InspectedPartition, judged: str) -> list[str]:
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
            f"A later run, {partition.last_run_id}, was to replace it and did not: {_error(found)}."
        )
    return story


def _failure(found: InspectedPartition, judged: str) -> list[str]:
    partition = found.partition
    if partition.abandoned:
        return [
            (
                f"Its newest run, {partition.last_run_id}, ended before it could be judged:"
                f" {_error(found)}."
            ),
            f"{judged}; a run that ends so counts for no attempt.",
        ]
    return [f"{judged}, the last time run {partition.last_run_id}, and rejected: {_error(found)}."]


def _what_next(found: InspectedPartition, policies: WorkPolicies) -> list[str]:
    partition, terminality = found.partition, policies.terminality
    story = []
    match found.terminal:
        case GivenUp.MARKED:
            marker = printable(partition.terminal_marker or "").rstrip(".")
            story.append(f"It is terminal: an operator has ruled out further tries: {marker}.")
        case GivenUp.ATTEMPTS_USED_UP:
            allowed = _times(terminality.max_attempts)
            story.append(f"It is terminal: the policy allows it to be judged {allowed}.")
        case GivenUp.TOO_OLD:
            age_s = 0.0 if terminality.max_age is None else terminality.max_age.total_seconds()
            story.append(
                f"It is terminal: it was created at {when(partition.created_at, found.now)}, and"
                f" the policy ends after {in_seconds(age_s)}."
            )
        case None if found.planned is not None:
            return [
                (
                    f"The policy has it tried again at {when(found.planned.next_run_at, found.now)}"
                    f", by its rule of {found.planned.backoff_strategy}. A worker sees to it."
                )
            ]
        case GivenUp.ABANDONED | None:
            story.append("The policy plans no further try: that is for a human to decide.")
        case _:
            assert_never(found.terminal)
    return [*story, _operators_way(found)]


def _operators_way(found: InspectedPartition) -> str:
    key = found.partition.key
    if found.has_raw:
        return f'To try it again all the same: tileferry state retry {key} --reason "…"'
    return (
        "Its newest run left no raw partition, so there is nothing to retry. To extract it anew:"
        f" tileferry backfill plan --source {key.source} --customer-id {key.customer_id}"
        f" --query {key.query_name} --from {key.logical_date} --to {key.logical_date} …"
    )


def _error(found: InspectedPartition) -> str:
    return printable(found.partition.error_message or "no word of it").rstrip(".")


def _times(count: int) -> str:
    names = {1: "once", 2: "twice"}
    return names.get(count, f"{count} times")
