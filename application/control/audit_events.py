"""The audit events of a unit of work: each change, and the retry decision behind it.

A run is retried as EXECUTION_INTENT, a run that lost its worker as EXECUTION_CONTAINMENT, and a
partition that the validator rejected as REPLAY_PROCESSING. Statistics, alerts and simulations read
these decisions like those of calls.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, assert_never

from attrs import frozen

from tileferry.domain.audit import (
    AuditEvent,
    NotRetryable,
    RetryAttempted,
    RetryExhausted,
    RetrySucceeded,
    StateChanged,
)
from tileferry.domain.canonical import JsonValue
from tileferry.domain.partitions import Partition
from tileferry.domain.partitions.transitions import ACCEPT, REJECT
from tileferry.domain.retry import (
    PARTITION_POLICY,
    QUARANTINE_POLICY,
    RUN_POLICY,
    GiveUp,
    RetryAt,
    RetryCategory,
)
from tileferry.domain.runs import Run, RunId
from tileferry.domain.runs.transitions import COMPLETE, RECORD_ERROR, RESCUE
from tileferry.domain.state_machine import Change

_CATEGORIES = {
    RECORD_ERROR.name: RetryCategory.EXECUTION_INTENT,
    RESCUE.name: RetryCategory.EXECUTION_CONTAINMENT,
    REJECT.name: RetryCategory.REPLAY_PROCESSING,
}
"""The category of the decision behind a transition; others repeat an earlier decision."""


@frozen(kw_only=True)
class PastFailures:
    """The failed attempts of a run."""

    count: int
    waited_s: float
    """The total wait after them."""


NO_FAILURES: Mapping[RunId, PastFailures] = MappingProxyType({})


def build_unit_events(
    runs: Sequence[Change[Run]],
    partitions: Sequence[Change[Partition]],
    by: str | None,
    failures: Mapping[RunId, PastFailures] = NO_FAILURES,
) -> list[AuditEvent]:
    """Return the events of one unit: changes of runs first, then those of partitions.

    ``failures`` has those of the runs that ``find_retried_runs`` returns.
    """
    context = None if by is None else {"by": by}
    events: list[AuditEvent] = []
    for change in runs:
        run_id = change.after.run_id
        events.append(_build_change_event(change, run_id, context))
        events.extend(_build_run_events(change, failures.get(run_id)))
    for moved in partitions:
        events.append(_build_change_event(moved, moved.after.last_run_id, context))
        events.extend(_build_partition_events(moved))
    return events


def find_retried_runs(runs: Sequence[Change[Run]]) -> list[RunId]:
    """Return the runs that end with a verdict after a failed attempt."""
    return [
        change.after.run_id
        for change in runs
        if change.transition == COMPLETE.name
        and change.before is not None
        and change.before.retry_count + change.before.rate_limited_count > 0
    ]


def _build_change_event(
    change: Change[Any], run_id: RunId, context: Mapping[str, JsonValue] | None
) -> StateChanged:
    return StateChanged.from_change(change, correlation_id=run_id, additional_context=context)


def _build_run_events(change: Change[Run], past: PastFailures | None) -> Iterator[AuditEvent]:
    run = change.after
    common: dict[str, Any] = {
        "timestamp": change.at,
        "correlation_id": run.run_id,
        "operation": f"Run {run.kind}",
    }
    if change.transition != COMPLETE.name:
        yield from _build_retry_events(change, run.error_class or "", common)
        return
    if past is not None:
        yield RetrySucceeded(
            **common,
            retry_category=RetryCategory.EXECUTION_INTENT,
            total_attempts=past.count + 1,
            total_delay_seconds=past.waited_s,
            policy_name=RUN_POLICY.name,
        )
    if run.rescues:
        yield RetrySucceeded(
            **common,
            retry_category=RetryCategory.EXECUTION_CONTAINMENT,
            total_attempts=run.rescues + 1,
            total_delay_seconds=0.0,
            policy_name=QUARANTINE_POLICY.name,
        )


def _build_partition_events(change: Change[Partition]) -> Iterator[AuditEvent]:
    partition = change.after
    common: dict[str, Any] = {
        "timestamp": change.at,
        # All runs of the partition are attempts of one operation.
        "correlation_id": str(partition.key),
        "operation": f"Process {partition.subject}",
    }
    if change.transition == ACCEPT.name and change.waited_s is not None:
        yield RetrySucceeded(
            **common,
            retry_category=RetryCategory.REPLAY_PROCESSING,
            total_attempts=partition.attempt_count,
            total_delay_seconds=change.waited_s,
            policy_name=PARTITION_POLICY.name,
        )
    yield from _build_retry_events(change, "rejected", common)


def _build_retry_events(
    change: Change[Any], error_type: str, common: Mapping[str, Any]
) -> Iterator[AuditEvent]:
    """Yield the event of the decision behind a change; a final error exhausts nothing."""
    record, category = change.record, _CATEGORIES.get(change.transition)
    if record is None or category is None:
        return
    message = change.reason or error_type
    match record.decision:
        case RetryAt():
            yield RetryAttempted(
                **common,
                retry_category=category,
                attempt_number=record.failure.attempt,
                max_attempts=record.policy.max_attempts,
                delay_seconds=record.decision.delay_s,
                exception_type=error_type,
                exception_message=message,
                decision_record=record,
            )
        case GiveUp():
            kind = NotRetryable if record.decision.is_final else RetryExhausted
            yield kind(
                **common,
                retry_category=category,
                total_attempts=record.decision.attempts,
                final_exception_type=error_type,
                final_exception_message=message,
                decision_record=record,
            )
        case _:
            assert_never(record.decision)
