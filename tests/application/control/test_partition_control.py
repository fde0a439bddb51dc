"""What happens to partitions, over books in memory: what is refused, and what automation leaves.

The rest is the contract of the books, in tests/contracts/test_partition_*.py.
"""

import pytest
from attrs import evolve
from support.partition_desk import ANN, FAILED, PASSED, dates, enqueued, known, made
from support.work_desk import Desk, acquire, key, memory_desk

from tileferry.application.control import partition_control
from tileferry.application.ports.work import PartitionFilter
from tileferry.domain.actors import Actor
from tileferry.domain.errors import IllegalTransitionError, InvalidValueError, PlanDriftedError
from tileferry.domain.partitions import PartitionStatus, TerminalityPolicy

KEY = key()


@pytest.fixture
def desk() -> Desk:
    return memory_desk()


def test_a_partition_comes_into_being_once(desk: Desk) -> None:
    enqueued(desk)
    with pytest.raises(IllegalTransitionError):
        desk.partitions.enqueue([acquire(KEY)], actor=Actor.OPERATOR)


def test_what_is_under_way_is_not_retried(desk: Desk) -> None:
    enqueued(desk)
    with pytest.raises(IllegalTransitionError):
        desk.partitions.retry([KEY], ANN)


def test_a_partition_that_nobody_knows_is_refused(desk: Desk) -> None:
    with pytest.raises(InvalidValueError, match="is not known"):
        desk.partitions.retry([KEY], ANN)


@pytest.mark.parametrize("outcome", [FAILED, PASSED])
def test_a_backfill_takes_what_is_there_further(desk: Desk, outcome: object) -> None:
    (before,) = made(desk, outcome)  # type: ignore[arg-type]  # one of the outcomes
    plan = desk.partitions.plan(dates(1, 2, reprocess=True))
    first, second = desk.partitions.apply(plan, ANN)
    assert (first.key, second.key) == (KEY, key(2))
    assert first.active_run_id not in {None, before.run_id}
    assert list(desk.partitions.apply(plan, ANN)) == []  # it was done


def test_a_plan_that_has_drifted_is_refused(desk: Desk) -> None:
    plan = desk.partitions.plan(dates(1, 1))
    made(desk, FAILED)
    with pytest.raises(PlanDriftedError):
        desk.partitions.apply(plan, ANN)
    assert known(desk, KEY).status is PartitionStatus.FAILED


def test_automation_leaves_what_the_policy_gives_up_by_now(desk: Desk) -> None:
    made(desk, FAILED)
    planned = desk.reader.planned_retry(KEY)
    assert planned is not None
    desk.pass_time(24 * 3_600)
    stricter = evolve(desk.policies, terminality=TerminalityPolicy(max_attempts=1))
    desk.policies = stricter
    assert desk.partitions.retry_due() == 0
    assert desk.reader.planned_retry(KEY) is None


def test_a_range_means_its_failures_and_a_mark_those_without_one(desk: Desk) -> None:
    for day, outcome in ((1, FAILED), (2, PASSED), (3, FAILED), (4, FAILED)):
        made(desk, outcome, wanted=key(day))
    desk.partitions.mark_terminal([key(3)], ANN)
    march = PartitionFilter(last=key(3).logical_date)
    assert list(desk.partitions.to_retry(desk.reader, march)) == [KEY, key(3)]
    assert list(desk.partitions.to_mark(desk.reader, march)) == [KEY]


def test_a_range_with_more_failures_than_one_action_takes_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_control, "BACKFILL_PARTITIONS_MAX", 1)
    for day in (1, 2):
        made(desk, FAILED, wanted=key(day))
    with pytest.raises(InvalidValueError, match="range: makes more than 1 partitions"):
        desk.partitions.to_retry(desk.reader, PartitionFilter(last=key(2).logical_date))
