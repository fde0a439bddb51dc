"""What happens to partitions, over books in memory: what is refused, and what automation leaves.

The rest is the contract of the books, in tests/contracts/test_partition_*.py.
"""

import pytest
from attrs import evolve
from support.control_plane import (
    FAILED,
    OVERRIDE,
    PASSED,
    ControlPlane,
    acquire_work,
    create_backfill_request,
    create_judged_partition,
    create_memory_control_plane,
    enqueue_partitions,
    get_partition,
    partition_key,
)

from tileferry.application.control import partition_control
from tileferry.application.ports.work import PartitionFilter
from tileferry.domain.errors import (
    IllegalTransitionError,
    InvalidValueError,
    NotFoundError,
    PlanDriftedError,
    UndatedImageryError,
)
from tileferry.domain.partitions import PartitionStatus, TerminalityPolicy
from tileferry.domain.partitions.imagery_dates import ImageryDates
from tileferry.domain.state_machine import Actor

KEY = partition_key()


@pytest.fixture
def control_plane() -> ControlPlane:
    return create_memory_control_plane()


def test_partition_cannot_be_enqueued_twice(control_plane: ControlPlane) -> None:
    enqueue_partitions(control_plane)
    with pytest.raises(IllegalTransitionError):
        control_plane.partitions.enqueue([acquire_work(KEY)], actor=Actor.OPERATOR)


def test_pending_partition_cannot_be_retried(control_plane: ControlPlane) -> None:
    enqueue_partitions(control_plane)
    with pytest.raises(IllegalTransitionError):
        control_plane.partitions.retry([KEY], OVERRIDE)


def test_retry_of_unknown_partition_is_rejected(control_plane: ControlPlane) -> None:
    with pytest.raises(NotFoundError, match=r"partition .* not found"):
        control_plane.partitions.retry([KEY], OVERRIDE)


@pytest.mark.parametrize("outcome", [FAILED, PASSED])
def test_backfill_reprocesses_existing_partitions(
    control_plane: ControlPlane, outcome: object
) -> None:
    (before,) = create_judged_partition(control_plane, outcome)  # type: ignore[arg-type]  # one of the outcomes
    plan = control_plane.partitions.plan(create_backfill_request(1, 2, reprocess=True))
    first, second = control_plane.partitions.apply(plan, OVERRIDE)
    assert (first.key, second.key) == (KEY, partition_key(2))
    assert first.active_run_id not in {None, before.run_id}
    assert list(control_plane.partitions.apply(plan, OVERRIDE)) == []  # it was done


def test_drifted_plan_is_rejected(control_plane: ControlPlane) -> None:
    plan = control_plane.partitions.plan(create_backfill_request(1, 1))
    create_judged_partition(control_plane, FAILED)
    with pytest.raises(PlanDriftedError):
        control_plane.partitions.apply(plan, OVERRIDE)
    assert get_partition(control_plane, KEY).status is PartitionStatus.FAILED


def test_automatic_retry_respects_stricter_policy(control_plane: ControlPlane) -> None:
    create_judged_partition(control_plane, FAILED)
    planned = control_plane.reader.find_planned_retry(KEY)
    assert planned is not None
    control_plane.pass_time(24 * 3_600)
    stricter = evolve(control_plane.policies, terminality=TerminalityPolicy(max_attempts=1))
    control_plane.policies = stricter
    assert control_plane.partitions.retry_due() == 0
    assert control_plane.reader.find_planned_retry(KEY) is None


def test_range_selects_failed_partitions_to_retry_or_mark(control_plane: ControlPlane) -> None:
    for day, outcome in ((1, FAILED), (2, PASSED), (3, FAILED), (4, FAILED)):
        create_judged_partition(control_plane, outcome, wanted=partition_key(day))
    control_plane.partitions.mark_terminal([partition_key(3)], OVERRIDE)
    march = PartitionFilter(last=partition_key(3).logical_date)
    assert list(control_plane.partitions.list_retryable(control_plane.reader, march)) == [
        KEY,
        partition_key(3),
    ]
    assert list(control_plane.partitions.list_markable(control_plane.reader, march)) == [KEY]


def test_range_over_partition_limit_is_rejected(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_control, "BACKFILL_PARTITIONS_MAX", 1)
    for day in (1, 2):
        create_judged_partition(control_plane, FAILED, wanted=partition_key(day))
    with pytest.raises(InvalidValueError, match="range: covers more than 1 partitions"):
        control_plane.partitions.list_retryable(
            control_plane.reader, PartitionFilter(last=partition_key(2).logical_date)
        )


def test_backfill_from_a_server_without_dates_is_refused_when_it_is_planned(
    control_plane: ControlPlane,
) -> None:
    partitions = control_plane.partitions
    partitions.imagery = ImageryDates(source=KEY.source, is_dated=False)
    control_plane.pass_time(365 * 86_400)
    with pytest.raises(UndatedImageryError):
        partitions.plan(create_backfill_request(1, 2))
