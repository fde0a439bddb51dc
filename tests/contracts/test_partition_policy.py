"""When automation tries a partition again, and when not: the same in every form of the books."""

from datetime import timedelta

import pytest
from attrs import evolve, fields
from support.partition_desk import (
    ANN,
    FAILED,
    PASSED,
    changes_of,
    enqueued,
    given_up,
    judged,
    known,
    made,
)
from support.work_desk import Desk, key, memory_desk, postgres_desk

from tileferry.application.control.work_policies import WorkPolicies
from tileferry.domain.partitions import (
    Partition,
    PartitionStatus,
    TerminalityPolicy,
    TerminalReason,
    terminal_reason,
)
from tileferry.domain.retry import PARTITION_POLICY, replay

KEY = key()
HOUR_S, DAY_S = 3_600.0, 86_400.0


def wait_s(desk: Desk) -> float:
    """How long automation will wait."""
    planned = desk.reader.planned_retry(KEY)
    assert planned is not None
    return (planned.next_run_at - known(desk, KEY).updated_at).total_seconds()


# 4. Backoff semantics


def test_spec3_s4_automation_waits_5_min_30_min_and_2_h_with_jitter(desk: Desk) -> None:
    enqueued(desk)
    waits = []
    for _ in range(3):
        judged(desk, FAILED)
        waits.append(wait_s(desk))
        desk.pass_time(waits[-1] - 1)
        assert desk.partitions.retry_due() == 0
        desk.pass_time(2)
        assert desk.partitions.retry_due() == 1
    for waited, nominal in zip(waits, (300, 1_800, 7_200), strict=True):
        assert waited == pytest.approx(nominal, rel=0.1)
        assert waited != nominal
    assert waits[-1] <= 7_200


def test_spec3_s4_partitions_that_fail_together_do_not_come_back_together(desk: Desk) -> None:
    days = [key(day) for day in range(1, 6)]
    enqueued(desk, *days)
    for day in days:
        judged(desk, FAILED, day)
    planned = [desk.reader.planned_retry(day) for day in days]
    waits = {
        (retry.next_run_at - known(desk, day).updated_at).total_seconds()
        for day, retry in zip(days, planned, strict=True)
        if retry is not None
    }
    assert len(waits) == 5
    assert max(waits) - min(waits) > 5


def test_spec3_s4_what_is_planned_stands_beside_the_partition(desk: Desk) -> None:
    made(desk, FAILED)
    planned = desk.reader.planned_retry(KEY)
    assert planned is not None
    assert planned.backoff_strategy == "300 s, times 6, at most 7200 s"
    assert not {"next_run_at", "backoff_strategy"} & {item.name for item in fields(Partition)}
    desk.partitions.retry([KEY], ANN)
    assert desk.reader.planned_retry(KEY) is None


def test_spec3_s4_the_decision_can_be_recomputed_from_its_event(desk: Desk) -> None:
    """It rests on the attempts, the time of the last change and the error alone."""
    made(desk, FAILED)
    desk.pass_time(HOUR_S)
    assert desk.partitions.retry_due() == 1
    event = changes_of(desk)[-1]
    assert (event.transition, event.actor, event.to_status) == ("requeue", "scheduler", "pending")
    assert event.decision_record is not None
    assert event.decision_record.failure.attempt == 1
    assert replay(event.decision_record) is None


def test_spec3_s4_s7_what_was_given_up_unjudged_is_left_to_a_human(desk: Desk) -> None:
    enqueued(desk)
    given_up(desk)
    assert desk.reader.planned_retry(KEY) is None
    desk.pass_time(30 * DAY_S)
    assert desk.partitions.retry_due() == 0


# 5. Termination semantics


@pytest.fixture(params=["memory", "postgres"])
def strict(request: pytest.FixtureRequest) -> Desk:
    """A desk that allows three attempts within two hours."""
    terminality = TerminalityPolicy(max_attempts=3, max_age=timedelta(hours=2))
    policies = WorkPolicies(terminality=terminality)
    if request.param == "memory":
        return memory_desk(policies=policies)
    return postgres_desk(request.getfixturevalue("database"), policies=policies)


def test_spec3_s5_automation_stops_when_the_attempts_are_used_up(strict: Desk) -> None:
    enqueued(strict)
    for attempt in (1, 2):
        judged(strict, FAILED)
        assert known(strict, KEY).attempt_count == attempt
        strict.pass_time(2_000)
        assert strict.partitions.retry_due() == 1
    judged(strict, FAILED)
    assert strict.reader.planned_retry(KEY) is None
    strict.pass_time(60)
    assert strict.partitions.retry_due() == 0
    reason = terminal_reason(known(strict, KEY), strict.policies.terminality, strict.reader.now())
    assert reason is TerminalReason.ATTEMPTS_USED_UP


def test_spec3_s5_automation_stops_when_the_partition_is_too_old(strict: Desk) -> None:
    enqueued(strict)
    strict.pass_time(2 * HOUR_S - 200)
    judged(strict, FAILED)  # the next try would come when it is too old already
    assert strict.reader.planned_retry(KEY) is None
    strict.pass_time(400)
    assert strict.partitions.retry_due() == 0
    reason = terminal_reason(known(strict, KEY), strict.policies.terminality, strict.reader.now())
    assert reason is TerminalReason.TOO_OLD


def test_spec3_s5_what_grew_too_old_while_nobody_was_there_holds_up_nobody(strict: Desk) -> None:
    made(strict, FAILED)
    assert strict.reader.planned_retry(KEY) is not None
    strict.pass_time(3 * HOUR_S)
    fresh = key(2)
    enqueued(strict, fresh)
    judged(strict, FAILED, fresh)
    strict.pass_time(400)
    assert strict.partitions.retry_due() == 1
    assert known(strict, KEY).status is PartitionStatus.FAILED
    assert known(strict, fresh).status is PartitionStatus.PENDING
    assert strict.reader.planned_retry(KEY) is None


def test_spec3_s5_a_policy_that_was_made_stricter_counts_for_what_was_planned(desk: Desk) -> None:
    made(desk, FAILED)
    desk.pass_time(HOUR_S)
    desk.policies = WorkPolicies(terminality=TerminalityPolicy(max_attempts=1))
    assert desk.partitions.retry_due() == 0
    assert desk.reader.planned_retry(KEY) is None
    assert len(changes_of(desk)) == 2


def test_spec3_s5_a_policy_that_was_made_slower_counts_for_what_was_planned(desk: Desk) -> None:
    made(desk, FAILED)
    desk.pass_time(600)
    desk.policies = WorkPolicies(partition=evolve(PARTITION_POLICY, base_delay=3_600.0))
    assert desk.partitions.retry_due() == 0
    assert wait_s(desk) == pytest.approx(3_600, rel=0.1)
    desk.pass_time(HOUR_S)
    assert desk.partitions.retry_due() == 1


def test_spec3_s5_automation_stops_at_an_operators_marker(desk: Desk) -> None:
    made(desk, FAILED)
    desk.partitions.mark_terminal([KEY], ANN)
    assert desk.reader.planned_retry(KEY) is None
    desk.pass_time(DAY_S)
    assert desk.partitions.retry_due() == 0


def test_spec3_s5_an_operator_may_try_what_is_terminal(strict: Desk) -> None:
    made(strict, FAILED, FAILED, FAILED)
    strict.partitions.mark_terminal([KEY], ANN)
    strict.partitions.retry([KEY], ANN)
    partition = known(strict, KEY)
    assert (partition.status, partition.terminal_marker) == (PartitionStatus.PENDING, None)
    judged(strict, PASSED)
    assert known(strict, KEY).attempt_count == 4
