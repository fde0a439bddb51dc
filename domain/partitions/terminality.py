"""When a failed partition is not tried again, and when automation may try it: both are policy."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from attrs import field, frozen, validators

from tileferry.domain.checks import check_duration, check_moment, field_name, integer
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

if TYPE_CHECKING:
    from attrs import Attribute


class TerminalReason(StrEnum):
    """Why a failed partition counts as permanently unavailable."""

    MARKED = "marked"
    ATTEMPTS_USED_UP = "attempts_used_up"
    TOO_OLD = "too_old"


class GivenUp(StrEnum):
    """Why nobody but an operator takes a failed partition further."""

    MARKED = "marked"
    ATTEMPTS_USED_UP = "attempts_used_up"
    TOO_OLD = "too_old"
    ABANDONED = "abandoned"
    """Its newest run was given up unjudged. No policy rules it out, and none tries it again."""


def _lasting(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    check_duration(value, field=field_name(instance, attribute))


@frozen(kw_only=True)
class TerminalityPolicy:
    """What the operator allows a partition before it is given up."""

    max_attempts: int = field(default=PARTITION_POLICY.max_attempts, validator=integer(1))
    max_age: timedelta | None = field(default=None, validator=validators.optional(_lasting))
    """Since the partition was created; ``None`` for no limit."""


def terminal_reason(
    partition: Partition, policy: TerminalityPolicy, now: datetime
) -> TerminalReason | None:
    """Return why the partition is terminal, or ``None``; only a failed one can be."""
    check_moment(now)
    if partition.status is not PartitionStatus.FAILED:
        return None
    if partition.terminal_marker is not None:
        return TerminalReason.MARKED
    if partition.attempt_count >= policy.max_attempts:
        return TerminalReason.ATTEMPTS_USED_UP
    if policy.max_age is not None and now - partition.created_at >= policy.max_age:
        return TerminalReason.TOO_OLD
    return None


def given_up(partition: Partition, policy: TerminalityPolicy, now: datetime) -> GivenUp | None:
    """Return why a failed partition waits for an operator: it is terminal, or was abandoned."""
    terminal = terminal_reason(partition, policy, now)
    if terminal is not None:
        return GivenUp(terminal.value)
    if partition.status is PartitionStatus.FAILED and partition.abandoned:
        return GivenUp.ABANDONED
    return None


def next_automatic_retry(
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
    check_moment(now)
    if partition.status is not PartitionStatus.FAILED or partition.abandoned:
        return None
    decision = automatic_decision(partition, policy).decision
    if not isinstance(decision, RetryAt):
        return None
    when = partition.updated_at + timedelta(seconds=decision.delay_s)
    # Terminality only ever sets in, so what is not terminal at the later time is not before it.
    return when if terminal_reason(partition, terminality, max(now, when)) is None else None


def automatic_decision(partition: Partition, policy: RetryPolicy) -> DecisionRecord:
    """Decide whether what the validator rejected is worth another automatic try."""
    failure = Failure(
        key=str(partition.key),
        attempt=partition.attempt_count,
        error=Retryable(),
        elapsed_s=(partition.updated_at - partition.created_at).total_seconds(),
    )
    return DecisionRecord(policy=policy, failure=failure, decision=decide(policy, failure))
