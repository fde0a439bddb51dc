"""When a failed partition is not tried again, and when automation may try it: both are policy."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from attrs import field, frozen, validators

from tileferry.domain.errors import ConfirmationNeededError, NoRawPartitionError
from tileferry.domain.partitions.partition import Partition, PartitionStatus
from tileferry.domain.retry import (
    PARTITION_POLICY,
    DecisionRecord,
    Failure,
    Retryable,
    RetryAt,
    RetryPolicy,
    decide,
)
from tileferry.domain.validation import check_aware, check_duration, format_field_name, integer

if TYPE_CHECKING:
    from attrs import Attribute


class TerminalReason(StrEnum):
    """Why a failed partition counts as permanently unavailable."""

    MARKED = "marked"
    ATTEMPTS_USED_UP = "attempts_used_up"
    TOO_OLD = "too_old"


class PartitionGiveUpReason(StrEnum):
    """Why nobody but an operator takes a failed partition further."""

    MARKED = "marked"
    ATTEMPTS_USED_UP = "attempts_used_up"
    TOO_OLD = "too_old"
    ABANDONED = "abandoned"
    """Its newest run was given up unjudged. No policy rules it out, and none tries it again."""


def _check_max_age(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    check_duration(value, field=format_field_name(instance, attribute))


@frozen(kw_only=True)
class TerminalityPolicy:
    """What the operator allows a partition before it is given up."""

    max_attempts: int = field(default=PARTITION_POLICY.max_attempts, validator=integer(1))
    max_age: timedelta | None = field(default=None, validator=validators.optional(_check_max_age))
    """Since the partition was created; ``None`` for no limit."""


def find_terminal_reason(
    partition: Partition, policy: TerminalityPolicy, now: datetime
) -> TerminalReason | None:
    """Return why the partition is terminal, or ``None``; only a failed one can be."""
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
    """Return why a failed partition waits for an operator: it is terminal, or was abandoned."""
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
    """Return when the scheduler may requeue the partition, or ``None`` when it may not at all.

    That is for what the validator rejected. A run that was given up unjudged has spent its own
    retries or was stopped by somebody: the next try of it is a human's decision.
    """
    check_aware(now)
    if partition.status is not PartitionStatus.FAILED or partition.abandoned:
        return None
    decision = decide_automatic_retry(partition, policy).decision
    if not isinstance(decision, RetryAt):
        return None
    when = partition.updated_at + timedelta(seconds=decision.delay_s)
    # Terminality only ever sets in, so what is not terminal at the later time is not before it.
    return when if find_terminal_reason(partition, terminality, max(now, when)) is None else None


def decide_automatic_retry(partition: Partition, policy: RetryPolicy) -> DecisionRecord:
    """Decide whether what the validator rejected is worth another automatic try."""
    failure = Failure(
        key=str(partition.key),
        attempt=partition.attempt_count,
        error=Retryable(),
        elapsed_s=(partition.updated_at - partition.created_at).total_seconds(),
    )
    return DecisionRecord(policy=policy, failure=failure, decision=decide(policy, failure))


LARGE_RANGE = 10
"""From so many partitions on, the operator types how many are meant."""


def check_confirmation(count: int, confirmed: int | None) -> None:
    """Refuse an action on ``count`` partitions that nobody has confirmed by that number.

    A few need no confirmation. Whoever gives a number expects it, so a wrong one is refused however
    few there are: the range is not the one that was thought of.
    """
    needed = count >= LARGE_RANGE or confirmed is not None
    if needed and confirmed != count:
        raise ConfirmationNeededError(count=count, confirmed=confirmed)


def check_raw_partition(partition: Partition, *, has_raw: bool) -> None:
    """Refuse an operator's retry where the raw sink has no sealed partition of the newest run.

    A retry repeats an extraction that took place. A run that was abandoned before it sealed
    anything (a refused key, a wrong area) would break in the same way again, and nobody would see
    why from its raw data: it has none. So not even the operator's reason opens this rail. The way
    on is a backfill of that date: there the operator sees the partition's state, decides on a new
    extraction with its area, and gets a new run. A backfill is therefore not held to this rule, nor
    is the scheduler, who only retries what the validator has judged.
    """
    if not has_raw:
        raise NoRawPartitionError(partition=partition.subject, run_id=partition.last_run_id)
