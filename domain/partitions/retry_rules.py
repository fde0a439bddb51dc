"""Retry rules of failed partitions: when one is terminal, and when it is retried automatically."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen, validators

from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.partitions.partition import Partition, PartitionStatus
from tileferry.domain.retry import DEADLINE_S_MAX, PARTITION_POLICY, Retryable, RetryPolicy
from tileferry.domain.validation import check_aware, check_duration, format_field_name, integer

with import_on_call(globals()):  # not needed to list partitions
    from tileferry.domain.errors import ConfirmationNeededError, NoRawPartitionError
    from tileferry.domain.retry import (
        DecisionRecord,
        Failure,
        RetryAt,
        compute_jittered_delay,
        decide,
    )

if TYPE_CHECKING:
    from attrs import Attribute


class TerminalReason(StrEnum):
    """Why a failed partition is permanently unavailable."""

    MARKED = "marked"
    ATTEMPTS_USED_UP = "attempts_used_up"
    TOO_OLD = "too_old"


class PartitionGiveUpReason(StrEnum):
    """Why only an operator can retry a failed partition."""

    MARKED = "marked"
    ATTEMPTS_USED_UP = "attempts_used_up"
    TOO_OLD = "too_old"
    ABANDONED = "abandoned"
    """Its newest run was given up without a verdict. It is not terminal, but never retried
    automatically.
    """


def _check_max_age(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    check_duration(value, field=format_field_name(instance, attribute))


@frozen(kw_only=True)
class TerminalityPolicy:
    """The limits after which a failed partition is terminal."""

    max_attempts: int = field(default=PARTITION_POLICY.max_attempts, validator=integer(1))
    max_age: timedelta | None = field(default=None, validator=validators.optional(_check_max_age))
    """Maximum age since the partition was created; ``None`` for no limit."""


NO_AGE_LIMIT = TerminalityPolicy()


def find_terminal_reason(
    partition: Partition, policy: TerminalityPolicy, now: datetime
) -> TerminalReason | None:
    """Return why the partition is terminal, or ``None``. Only a failed one can be terminal."""
    check_aware(now)
    if partition.status is not PartitionStatus.FAILED:
        return None
    if partition.terminal_marker is not None:
        return TerminalReason.MARKED
    if partition.attempt_count >= policy.max_attempts:
        return TerminalReason.ATTEMPTS_USED_UP
    if policy.max_age is not None and now - partition.created_at >= policy.max_age:
        return TerminalReason.TOO_OLD
    return None


def find_give_up_reason(
    partition: Partition, policy: TerminalityPolicy, now: datetime
) -> PartitionGiveUpReason | None:
    """Return why a failed partition needs an operator: it is terminal, or its run was abandoned."""
    terminal = find_terminal_reason(partition, policy, now)
    if terminal is not None:
        return PartitionGiveUpReason(terminal.value)
    if partition.status is PartitionStatus.FAILED and partition.abandoned:
        return PartitionGiveUpReason.ABANDONED
    return None


def find_next_automatic_retry(
    partition: Partition,
    *,
    now: datetime,
    terminality: TerminalityPolicy,
    policy: RetryPolicy = PARTITION_POLICY,
) -> datetime | None:
    """Return when the scheduler may requeue the partition; ``None`` if it may not.

    Only partitions that the validator rejected are requeued automatically. A run that was given up
    without a verdict has used up its own retries or was cancelled, so an operator decides.
    """
    check_aware(now)
    if partition.status is not PartitionStatus.FAILED or partition.abandoned:
        return None
    decision = decide_automatic_retry(partition, policy, terminality).decision
    if not isinstance(decision, RetryAt):
        return None
    when = partition.updated_at + timedelta(seconds=decision.delay_s)
    # A partition never stops being terminal by time, so checking the later moment is sufficient.
    return when if find_terminal_reason(partition, terminality, max(now, when)) is None else None


def decide_automatic_retry(
    partition: Partition, policy: RetryPolicy, terminality: TerminalityPolicy = NO_AGE_LIMIT
) -> DecisionRecord:
    """Decide whether a rejected partition gets another automatic retry.

    Both limits of terminality are limits of the decision, so that its record tells what happens.
    """
    age_s = None if terminality.max_age is None else terminality.max_age.total_seconds()
    limited = evolve(
        policy,
        max_attempts=min(policy.max_attempts, terminality.max_attempts),
        # A policy cannot express a longer deadline; then only ``find_terminal_reason`` applies it.
        deadline_s=age_s if age_s is not None and age_s <= DEADLINE_S_MAX else policy.deadline_s,
    )
    failure = Failure(
        key=str(partition.key),
        attempt=partition.attempt_count,
        error=Retryable(),
        elapsed_s=(partition.updated_at - partition.created_at).total_seconds(),
    )
    return DecisionRecord(policy=limited, failure=failure, decision=decide(limited, failure))


def sum_automatic_waits(partition: Partition, policy: RetryPolicy) -> float | None:
    """Return the total wait that the policy sets after a partition's rejections; ``None`` without
    any since its last success.
    """
    if partition.status is PartitionStatus.SUCCESS or not partition.attempt_count:
        return None
    key = str(partition.key)
    return sum(
        compute_jittered_delay(policy, attempt, key)
        for attempt in range(1, min(partition.attempt_count, policy.max_attempts - 1) + 1)
    )


LARGE_RANGE = 10
"""From this many partitions on, the operator must confirm the number."""


def check_confirmation(count: int, confirmed: int | None, *, what: str = "partition") -> None:
    """Raise unless an action on ``count`` partitions, or tiles, is confirmed with that number.

    Fewer than ``LARGE_RANGE`` need no confirmation. A wrong number is always rejected,
    because the range is then not the one the operator meant.
    """
    needed = count >= LARGE_RANGE or confirmed is not None
    if needed and confirmed != count:
        raise ConfirmationNeededError(count=count, confirmed=confirmed, what=what)


def check_raw_partition(partition: Partition, *, has_raw: bool) -> None:
    """Reject an operator's retry if the raw sink has no sealed run of the partition.

    A retry repeats an extraction that took place. A partition whose runs were all abandoned before
    they sealed anything (rejected key, wrong area) would fail in the same way again and leave no
    raw data to explain it, so a reason does not override this check. The alternative is a backfill
    of that date: it shows the partition's state, and the operator decides on a new extraction with
    its area. Backfills are therefore exempt from this check. So is the scheduler, which only
    retries runs with a verdict.
    """
    if not has_raw:
        raise NoRawPartitionError(partition=partition.subject, run_id=partition.last_run_id)
