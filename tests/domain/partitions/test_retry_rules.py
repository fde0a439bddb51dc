"""Terminality and automatic retries: policy beside the state, never in it."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions import (
    Partition,
    PartitionGiveUpReason,
    PartitionKey,
    PartitionStatus,
    TerminalityPolicy,
    TerminalReason,
    find_give_up_reason,
    find_next_automatic_retry,
    find_terminal_reason,
)
from tileferry.domain.retry import PARTITION_POLICY, compute_jittered_delay
from tileferry.domain.runs import RunId

NOW = datetime(2024, 1, 5, 12, tzinfo=UTC)
DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)
KEY = PartitionKey(
    source="osm", customer_id="acme", query_name="roads", logical_date=date(2024, 1, 1)
)
EVEN = evolve(PARTITION_POLICY, jitter_enabled=False)
PATIENT = TerminalityPolicy(max_attempts=99)


def make_failed_partition(**fields: Any) -> Partition:
    base = {"attempt_count": 1, "error_message": "bad", "last_run_id": "r1"}
    times = {"created_at": NOW - DAY, "updated_at": NOW}
    return Partition(key=KEY, status=PartitionStatus.FAILED, **{**base, **times, **fields})


SUCCESS = Partition(
    key=KEY,
    status=PartitionStatus.SUCCESS,
    attempt_count=99,
    current_run_id=RunId("r1"),
    last_run_id=RunId("r1"),
    created_at=NOW - DAY,
    updated_at=NOW,
)
PENDING = Partition(
    key=KEY,
    status=PartitionStatus.PENDING,
    attempt_count=99,
    active_run_id=RunId("r1"),
    last_run_id=RunId("r1"),
    created_at=NOW - DAY,
    updated_at=NOW,
)


def test_terminal_reasons_and_default_policy() -> None:
    assert [reason.value for reason in TerminalReason] == ["marked", "attempts_used_up", "too_old"]
    assert TerminalityPolicy() == TerminalityPolicy(max_attempts=4, max_age=None)


def test_retries_stop_after_max_attempts() -> None:
    policy = TerminalityPolicy(max_attempts=3)
    reasons = [
        find_terminal_reason(make_failed_partition(attempt_count=n), policy, NOW)
        for n in (1, 2, 3, 4)
    ]
    assert reasons == [None, None, *[TerminalReason.ATTEMPTS_USED_UP] * 2]


def test_retries_stop_at_max_age() -> None:
    policy = TerminalityPolicy(max_age=DAY)
    reasons = [
        find_terminal_reason(make_failed_partition(), policy, at)
        for at in (NOW - TICK, NOW, NOW + TICK)
    ]
    assert reasons == [None, *[TerminalReason.TOO_OLD] * 2]
    assert (
        find_terminal_reason(make_failed_partition(), TerminalityPolicy(), NOW + 9999 * DAY) is None
    )


def test_retries_stop_at_terminal_marker() -> None:
    marked = make_failed_partition(terminal_marker="hopeless", attempt_count=99)
    assert find_terminal_reason(marked, PATIENT, NOW) is TerminalReason.MARKED


def test_used_up_attempts_take_precedence_over_age() -> None:
    policy = TerminalityPolicy(max_attempts=1, max_age=DAY)
    assert (
        find_terminal_reason(make_failed_partition(), policy, NOW)
        is TerminalReason.ATTEMPTS_USED_UP
    )


def test_giveup_reason_of_partition_that_is_not_retried() -> None:
    policy = TerminalityPolicy(max_attempts=3)
    abandoned = make_failed_partition(abandoned=True)
    assert find_give_up_reason(abandoned, policy, NOW) is PartitionGiveUpReason.ABANDONED
    assert find_next_automatic_retry(abandoned, now=NOW, terminality=policy) is None
    assert (
        find_give_up_reason(evolve(abandoned, attempt_count=3), policy, NOW)
        is PartitionGiveUpReason.ATTEMPTS_USED_UP
    )
    assert find_give_up_reason(make_failed_partition(), policy, NOW) is None
    assert find_give_up_reason(SUCCESS, policy, NOW) is None
    assert {*TerminalReason} | {"abandoned"} == {*PartitionGiveUpReason}


@pytest.mark.parametrize("partition", [SUCCESS, PENDING])
def test_only_failed_partitions_are_terminal_or_retried(partition: Partition) -> None:
    policy = TerminalityPolicy(max_attempts=1, max_age=TICK)
    assert find_terminal_reason(partition, policy, NOW + 9 * DAY) is None
    once = evolve(partition, attempt_count=1)
    assert find_next_automatic_retry(once, now=NOW, terminality=PATIENT) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_attempts", 0),
        ("max_age", timedelta(0)),
        ("max_age", -TICK),
        ("max_age", 3600),
    ],
)
def test_invalid_terminality_policy_is_rejected(name: str, value: Any) -> None:
    with pytest.raises(InvalidValueError) as caught:
        TerminalityPolicy(**{name: value})
    assert caught.value.field == f"TerminalityPolicy.{name}"
    assert caught.value.value == value
    if name == "max_age":
        assert caught.value.problem == ("must be a positive duration of at most 3650 days")
    assert TerminalityPolicy(max_age=TICK).max_age == TICK


@pytest.mark.parametrize(("attempts", "minutes"), [(1, 5), (2, 30), (3, 120)])
def test_backoff_is_5_min_30_min_2_h(attempts: int, minutes: int) -> None:
    when = find_next_automatic_retry(
        make_failed_partition(attempt_count=attempts), now=NOW, terminality=PATIENT, policy=EVEN
    )
    assert when == NOW + timedelta(minutes=minutes)


def test_automatic_retries_end_after_last_delay() -> None:
    fourth = make_failed_partition(attempt_count=4)
    assert find_next_automatic_retry(fourth, now=NOW, terminality=PATIENT, policy=EVEN) is None


@pytest.mark.parametrize(("attempts", "minutes"), [(1, 5), (2, 30), (3, 120)])
def test_backoff_jitter_is_derived_from_partition_key(attempts: int, minutes: int) -> None:
    partition = make_failed_partition(attempt_count=attempts)
    when = find_next_automatic_retry(partition, now=NOW, terminality=PATIENT)
    assert when is not None
    delay = compute_jittered_delay(PARTITION_POLICY, attempts, "osm/acme/roads/2024-01-01")
    assert when == NOW + timedelta(seconds=delay)
    assert when != NOW + timedelta(minutes=minutes)
    assert abs(delay - minutes * 60) <= minutes * 6


def test_delay_counts_from_updated_at() -> None:
    later = NOW + 3 * DAY
    when = find_next_automatic_retry(
        make_failed_partition(), now=later, terminality=PATIENT, policy=EVEN
    )
    assert when == NOW + timedelta(minutes=5)


def test_policy_deadline_counts_from_creation() -> None:
    beyond = evolve(EVEN, deadline_s=DAY.total_seconds() + 300.5)
    assert (
        find_next_automatic_retry(
            make_failed_partition(), now=NOW, terminality=PATIENT, policy=beyond
        )
        is not None
    )
    at = evolve(EVEN, deadline_s=DAY.total_seconds() + 300.0)
    assert (
        find_next_automatic_retry(make_failed_partition(), now=NOW, terminality=PATIENT, policy=at)
        is None
    )


def test_abandoned_partition_is_not_retried_automatically() -> None:
    for attempts in (0, 1):
        partition = make_failed_partition(abandoned=True, attempt_count=attempts)
        assert find_next_automatic_retry(partition, now=NOW, terminality=PATIENT) is None


def test_partition_terminal_before_due_time_is_not_retried() -> None:
    def when(now: datetime, **limits: Any) -> datetime | None:
        terminality = TerminalityPolicy(**limits)
        return find_next_automatic_retry(
            make_failed_partition(), now=now, terminality=terminality, policy=EVEN
        )

    due = NOW + timedelta(minutes=5)
    assert when(NOW, max_attempts=1) is None
    assert when(NOW, max_attempts=2) == due
    # It would be too old by the time the retry is due.
    age_at_due = DAY + timedelta(minutes=5)
    assert when(NOW, max_age=age_at_due) is None
    assert when(NOW, max_age=age_at_due + TICK) == due
    # It became too old while nobody looked.
    assert when(due + TICK, max_age=age_at_due + TICK) is None
    marked = make_failed_partition(terminal_marker="hopeless")
    assert find_next_automatic_retry(marked, now=NOW, terminality=PATIENT) is None


@given(
    attempts=st.integers(1, 12),
    limit=st.integers(1, 12),
    hours=st.integers(0, 48),
    max_hours=st.integers(1, 72),
)
def test_terminal_partition_stays_terminal(
    attempts: int, limit: int, hours: int, max_hours: int
) -> None:
    policy = TerminalityPolicy(max_attempts=limit, max_age=timedelta(hours=max_hours))
    partition = make_failed_partition(attempt_count=attempts)
    now = NOW + timedelta(hours=hours)
    if find_terminal_reason(partition, policy, now) is not None:
        assert find_terminal_reason(partition, policy, now + TICK) is not None
        assert find_next_automatic_retry(partition, now=now, terminality=policy) is None
