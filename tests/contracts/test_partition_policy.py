"""When automation tries a partition again, and when not: the same in every form of the books."""

from datetime import timedelta

import pytest
from attrs import evolve, fields
from support.control_plane import (
    FAILED,
    OVERRIDE,
    PASSED,
    ControlPlane,
    create_judged_partition,
    create_memory_control_plane,
    create_postgres_control_plane,
    enqueue_partitions,
    get_partition,
    give_up_partition,
    judge_partition,
    list_state_changes,
    partition_key,
)

from tileferry.application.control.policies import WorkPolicies
from tileferry.application.ports.work import PlannedRetry
from tileferry.domain.partitions import (
    Partition,
    PartitionStatus,
    TerminalityPolicy,
    TerminalReason,
    find_terminal_reason,
)
from tileferry.domain.retry import PARTITION_POLICY, replay_decision

KEY = partition_key()
HOUR_S, DAY_S = 3_600.0, 86_400.0


def planned_wait_s(desk: ControlPlane) -> float:
    """How long automation will wait."""
    planned = desk.reader.find_planned_retry(KEY)
    assert planned is not None
    return (planned.next_run_at - get_partition(desk, KEY).updated_at).total_seconds()


# 4. Backoff semantics


def test_spec3_s4_automatic_retries_wait_5_min_30_min_2_h_with_jitter(
    control_plane: ControlPlane,
) -> None:
    enqueue_partitions(control_plane)
    waits = []
    for _ in range(3):
        judge_partition(control_plane, FAILED)
        waits.append(planned_wait_s(control_plane))
        control_plane.pass_time(waits[-1] - 1)
        assert control_plane.partitions.retry_due() == 0
        control_plane.pass_time(2)
        assert control_plane.partitions.retry_due() == 1
    for waited, nominal in zip(waits, (300, 1_800, 7_200), strict=True):
        assert waited == pytest.approx(nominal, rel=0.1)
        assert waited != nominal
    assert waits[-1] <= 7_200


def test_spec3_s4_jitter_spreads_partitions_that_fail_together(control_plane: ControlPlane) -> None:
    days = [partition_key(day) for day in range(1, 6)]
    enqueue_partitions(control_plane, *days)
    for day in days:
        judge_partition(control_plane, FAILED, day)
    planned = [control_plane.reader.find_planned_retry(day) for day in days]
    waits = {
        (retry.next_run_at - get_partition(control_plane, day).updated_at).total_seconds()
        for day, retry in zip(days, planned, strict=True)
        if retry is not None
    }
    assert len(waits) == 5
    assert max(waits) - min(waits) > 5


def test_partitions_are_due_by_time_and_then_in_the_order_they_were_made(
    control_plane: ControlPlane,
) -> None:
    days = [partition_key(day) for day in (3, 1, 2)]
    for day in days:
        create_judged_partition(control_plane, FAILED, wanted=day)
    with control_plane.store.open_unit() as unit:
        for day, wait_s in zip(days[::-1], (1, 2, 2), strict=True):
            at = unit.now + timedelta(seconds=wait_s)
            unit.plan_retry(day, PlannedRetry(next_run_at=at, backoff_strategy="test"))
    control_plane.pass_time(3)
    with control_plane.store.open_unit() as unit:
        due = [partition.key for partition in unit.find_due_partitions(limit=9)]
        assert due == [days[2], days[0], days[1]]
        assert [one.key for one in unit.find_due_partitions(limit=1)] == [days[2]]


def test_spec3_s4_planned_retry_is_stored_apart_from_partition(control_plane: ControlPlane) -> None:
    create_judged_partition(control_plane, FAILED)
    planned = control_plane.reader.find_planned_retry(KEY)
    assert planned is not None
    assert planned.backoff_strategy == "300 s, times 6, at most 7200 s"
    assert not {"next_run_at", "backoff_strategy"} & {item.name for item in fields(Partition)}
    control_plane.partitions.retry([KEY], OVERRIDE)
    assert control_plane.reader.find_planned_retry(KEY) is None


def test_spec3_s4_retry_decision_replays_from_its_event(control_plane: ControlPlane) -> None:
    """It rests on the attempts, the time of the last change and the error alone."""
    create_judged_partition(control_plane, FAILED)
    control_plane.pass_time(HOUR_S)
    assert control_plane.partitions.retry_due() == 1
    event = list_state_changes(control_plane)[-1]
    assert (event.transition, event.actor, event.to_status) == ("requeue", "scheduler", "pending")
    assert event.decision_record is not None
    assert event.decision_record.failure.attempt == 1
    assert replay_decision(event.decision_record) is None


def test_spec3_s4_s7_giveup_without_verdict_is_not_retried_automatically(
    control_plane: ControlPlane,
) -> None:
    enqueue_partitions(control_plane)
    give_up_partition(control_plane)
    assert control_plane.reader.find_planned_retry(KEY) is None
    control_plane.pass_time(30 * DAY_S)
    assert control_plane.partitions.retry_due() == 0


# 5. Termination semantics


@pytest.fixture(params=["memory", "postgres"])
def strict_control_plane(request: pytest.FixtureRequest) -> ControlPlane:
    """A desk that allows three attempts within two hours."""
    terminality = TerminalityPolicy(max_attempts=3, max_age=timedelta(hours=2))
    policies = WorkPolicies(terminality=terminality)
    if request.param == "memory":
        return create_memory_control_plane(policies=policies)
    return create_postgres_control_plane(request.getfixturevalue("database"), policies=policies)


def test_spec3_s5_automatic_retries_stop_after_max_attempts(
    strict_control_plane: ControlPlane,
) -> None:
    enqueue_partitions(strict_control_plane)
    for attempt in (1, 2):
        judge_partition(strict_control_plane, FAILED)
        assert get_partition(strict_control_plane, KEY).attempt_count == attempt
        strict_control_plane.pass_time(2_000)
        assert strict_control_plane.partitions.retry_due() == 1
    judge_partition(strict_control_plane, FAILED)
    assert strict_control_plane.reader.find_planned_retry(KEY) is None
    strict_control_plane.pass_time(60)
    assert strict_control_plane.partitions.retry_due() == 0
    reason = find_terminal_reason(
        get_partition(strict_control_plane, KEY),
        strict_control_plane.policies.terminality,
        strict_control_plane.reader.now(),
    )
    assert reason is TerminalReason.ATTEMPTS_USED_UP


def test_spec3_s5_automatic_retries_stop_at_max_age(strict_control_plane: ControlPlane) -> None:
    enqueue_partitions(strict_control_plane)
    strict_control_plane.pass_time(2 * HOUR_S - 200)
    judge_partition(
        strict_control_plane, FAILED
    )  # the next try would come when it is too old already
    assert strict_control_plane.reader.find_planned_retry(KEY) is None
    strict_control_plane.pass_time(400)
    assert strict_control_plane.partitions.retry_due() == 0
    reason = find_terminal_reason(
        get_partition(strict_control_plane, KEY),
        strict_control_plane.policies.terminality,
        strict_control_plane.reader.now(),
    )
    assert reason is TerminalReason.TOO_OLD


def test_spec3_s5_expired_planned_retry_does_not_block_others(
    strict_control_plane: ControlPlane,
) -> None:
    create_judged_partition(strict_control_plane, FAILED)
    assert strict_control_plane.reader.find_planned_retry(KEY) is not None
    strict_control_plane.pass_time(3 * HOUR_S)
    fresh = partition_key(2)
    enqueue_partitions(strict_control_plane, fresh)
    judge_partition(strict_control_plane, FAILED, fresh)
    strict_control_plane.pass_time(400)
    assert strict_control_plane.partitions.retry_due() == 1
    assert get_partition(strict_control_plane, KEY).status is PartitionStatus.FAILED
    assert get_partition(strict_control_plane, fresh).status is PartitionStatus.PENDING
    assert strict_control_plane.reader.find_planned_retry(KEY) is None


def test_spec3_s5_stricter_policy_applies_to_planned_retries(control_plane: ControlPlane) -> None:
    create_judged_partition(control_plane, FAILED)
    control_plane.pass_time(HOUR_S)
    control_plane.policies = WorkPolicies(terminality=TerminalityPolicy(max_attempts=1))
    assert control_plane.partitions.retry_due() == 0
    assert control_plane.reader.find_planned_retry(KEY) is None
    assert len(list_state_changes(control_plane)) == 2


def test_spec3_s5_slower_policy_applies_to_planned_retries(control_plane: ControlPlane) -> None:
    create_judged_partition(control_plane, FAILED)
    control_plane.pass_time(600)
    control_plane.policies = WorkPolicies(partition=evolve(PARTITION_POLICY, base_delay=3_600.0))
    assert control_plane.partitions.retry_due() == 0
    assert planned_wait_s(control_plane) == pytest.approx(3_600, rel=0.1)
    control_plane.pass_time(HOUR_S)
    assert control_plane.partitions.retry_due() == 1


def test_spec3_s5_terminal_marker_stops_automatic_retries(control_plane: ControlPlane) -> None:
    create_judged_partition(control_plane, FAILED)
    control_plane.partitions.mark_terminal([KEY], OVERRIDE)
    assert control_plane.reader.find_planned_retry(KEY) is None
    control_plane.pass_time(DAY_S)
    assert control_plane.partitions.retry_due() == 0


def test_spec3_s5_operator_can_retry_terminal_partition(strict_control_plane: ControlPlane) -> None:
    create_judged_partition(strict_control_plane, FAILED, FAILED, FAILED)
    strict_control_plane.partitions.mark_terminal([KEY], OVERRIDE)
    strict_control_plane.partitions.retry([KEY], OVERRIDE)
    partition = get_partition(strict_control_plane, KEY)
    assert (partition.status, partition.terminal_marker) == (PartitionStatus.PENDING, None)
    judge_partition(strict_control_plane, PASSED)
    assert get_partition(strict_control_plane, KEY).attempt_count == 4
