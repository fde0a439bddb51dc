"""What operators may do to partitions, and the rails that every form of the books has for them."""

import logging

import pytest
from attrs import evolve, frozen
from support.control_plane import (
    FAILED,
    LEASE,
    OVERRIDE,
    PASSED,
    REJECTION_REASON,
    W1,
    ControlPlane,
    claim_partition_run,
    create_backfill_request,
    create_judged_partition,
    enqueue_partitions,
    get_partition,
    give_up_partition,
    judge_partition,
    list_state_changes,
    partition_key,
)

from tileferry.application.control.partition_control import OperatorOverride
from tileferry.application.ports.work import PartitionFilter
from tileferry.domain.errors import (
    ConfirmationNeededError,
    IllegalTransitionError,
    NoRawPartitionError,
    NotFoundError,
    PlanDriftedError,
    UndatedImageryError,
)
from tileferry.domain.partitions import (
    LARGE_RANGE,
    BackfillAction,
    PartitionKey,
    PartitionStatus,
    find_terminal_reason,
    get_readable_run,
    parse_plan,
)
from tileferry.domain.partitions.imagery_dates import ImageryDates
from tileferry.domain.partitions.manifest import SealedPartition
from tileferry.domain.runs import RunPriority
from tileferry.domain.state_machine import Actor
from tileferry.domain.work import AcquirePartition

KEY = partition_key()
MARCH = [partition_key(day) for day in range(1, 16)]


def confirm(count: int) -> OperatorOverride:
    return evolve(OVERRIDE, confirmed=count)


# 6. Backfill interaction


def test_spec3_s6_backfill_enqueues_each_date_with_its_own_run(
    control_plane: ControlPlane,
) -> None:
    plan = control_plane.partitions.plan(create_backfill_request(1, 15))
    assert plan.counts == {BackfillAction.ENQUEUE: 15}
    assert list(control_plane.reader.find_partitions(PartitionFilter())) == []
    done = control_plane.partitions.apply(plan, confirm(15))
    assert [partition.key for partition in done] == MARCH
    listed = list(control_plane.reader.find_partitions(PartitionFilter()))
    assert listed == list(done)
    assert {partition.status for partition in listed} == {PartitionStatus.PENDING}
    assert len({partition.active_run_id for partition in listed}) == 15


def test_spec3_s6_backfill_uses_same_retry_policy(control_plane: ControlPlane) -> None:
    control_plane.partitions.apply(
        control_plane.partitions.plan(create_backfill_request(1, 1)), OVERRIDE
    )
    first = judge_partition(control_plane, FAILED)
    assert get_partition(control_plane, KEY).attempt_count == 1
    planned = control_plane.reader.find_planned_retry(KEY)
    assert planned is not None
    waits_s = (planned.next_run_at - get_partition(control_plane, KEY).updated_at).total_seconds()
    assert waits_s == pytest.approx(300, rel=0.1)
    control_plane.pass_time(400)
    assert control_plane.partitions.retry_due() == 1
    second = judge_partition(control_plane, PASSED)
    assert second.run_id != first.run_id
    assert second.priority is RunPriority.BACKFILL  # automation goes on as it began
    assert (
        get_partition(control_plane, KEY).attempt_count,
        get_partition(control_plane, KEY).status,
    ) == (2, "success")


def test_spec3_s6_backfill_requeues_failures_and_skips_successes(
    control_plane: ControlPlane,
) -> None:
    create_judged_partition(control_plane, FAILED)
    create_judged_partition(control_plane, PASSED, wanted=partition_key(2))
    enqueue_partitions(control_plane, partition_key(3))
    plan = control_plane.partitions.plan(create_backfill_request(1, 4))
    assert [line.action for line in plan.lines] == ["requeue", "skip", "skip", "enqueue"]
    before = [get_partition(control_plane, partition_key(day)) for day in (2, 3)]
    done = control_plane.partitions.apply(plan, OVERRIDE)
    assert [partition.key for partition in done] == [partition_key(1), partition_key(4)]
    assert [get_partition(control_plane, partition_key(day)) for day in (2, 3)] == before
    assert get_partition(control_plane, partition_key(1)).attempt_count == 1


def test_spec3_s6_reprocessed_success_stays_readable(control_plane: ControlPlane) -> None:
    (run,) = create_judged_partition(control_plane, PASSED)
    plan = control_plane.partitions.plan(create_backfill_request(1, 1, reprocess=True))
    control_plane.partitions.apply(plan, OVERRIDE)
    assert get_readable_run(get_partition(control_plane, KEY)) == run.run_id
    judge_partition(control_plane, PASSED)
    assert get_readable_run(get_partition(control_plane, KEY)) == plan.get_run_id(plan.lines[0])


def test_spec3_s6_gaps_are_listed_with_their_status(control_plane: ControlPlane) -> None:
    control_plane.partitions.apply(
        control_plane.partitions.plan(create_backfill_request(1, 4)), OVERRIDE
    )
    for day, outcome in ((1, PASSED), (2, FAILED)):
        judge_partition(control_plane, outcome, partition_key(day))
    give_up_partition(control_plane, partition_key(3))
    listed = list(control_plane.reader.find_partitions(PartitionFilter()))
    assert [partition.status for partition in listed] == ["success", "failed", "failed", "pending"]
    assert [get_readable_run(partition) is not None for partition in listed] == [True, *[False] * 3]


def test_spec3_s6_fresh_runs_precede_backfill(control_plane: ControlPlane) -> None:
    control_plane.partitions.apply(
        control_plane.partitions.plan(create_backfill_request(1, 15)), confirm(15)
    )
    control_plane.pass_time(1_000)
    enqueue_partitions(control_plane, partition_key(1, month=4), partition_key(2, month=4))
    first = [run.priority for run in control_plane.queue.claim(W1, limit=3, lease=LEASE)]
    assert first == [RunPriority.FRESH, RunPriority.FRESH, RunPriority.BACKFILL]


def test_spec3_s6_applying_plan_twice_is_idempotent(control_plane: ControlPlane) -> None:
    plan = parse_plan(control_plane.partitions.plan(create_backfill_request(1, 3)).to_json())
    control_plane.partitions.apply(plan, OVERRIDE)
    for outcome, day in ((PASSED, 1), (FAILED, 2)):
        judge_partition(control_plane, outcome, partition_key(day))
    before = list(control_plane.reader.find_partitions(PartitionFilter()))
    events = len(control_plane.events())
    assert control_plane.partitions.apply(plan, OVERRIDE) == []
    assert list(control_plane.reader.find_partitions(PartitionFilter())) == before
    assert len(control_plane.events()) == events


def test_spec3_s6_drifted_plan_is_rejected_with_differences(control_plane: ControlPlane) -> None:
    create_judged_partition(control_plane, FAILED)
    plan = control_plane.partitions.plan(create_backfill_request(1, 3))
    enqueue_partitions(control_plane, partition_key(2))
    control_plane.partitions.retry([KEY], OVERRIDE)
    with pytest.raises(PlanDriftedError) as caught:
        control_plane.partitions.apply(plan, OVERRIDE)
    assert caught.value.count == 2
    said = str(caught.value)
    assert f"partition {KEY} (requeue): status was failed, is pending" in said
    assert f"partition {partition_key(2)} (enqueue): status was absent, is pending" in said
    assert control_plane.reader.find_partition(partition_key(3)) is None


def test_spec3_s6_change_of_skipped_date_is_not_drift(control_plane: ControlPlane) -> None:
    enqueue_partitions(control_plane)
    plan = control_plane.partitions.plan(create_backfill_request(1, 2))
    judge_partition(control_plane, FAILED)
    control_plane.partitions.apply(plan, OVERRIDE)
    assert get_partition(control_plane, KEY).status is PartitionStatus.FAILED
    assert get_partition(control_plane, partition_key(2)).status is PartitionStatus.PENDING


def test_spec3_s6_terminal_failures_are_skipped_unless_included(
    control_plane: ControlPlane,
) -> None:
    create_judged_partition(control_plane, FAILED)
    control_plane.partitions.mark_terminal([KEY], OVERRIDE)
    assert control_plane.partitions.plan(create_backfill_request(1, 1)).touched == 0
    plan = control_plane.partitions.plan(create_backfill_request(1, 1, include_terminal=True))
    control_plane.partitions.apply(plan, OVERRIDE)
    assert get_partition(control_plane, KEY).status is PartitionStatus.PENDING


# 8. Operator interface


def test_spec3_s8_retry_starts_new_run_at_once(control_plane: ControlPlane) -> None:
    (first,) = create_judged_partition(control_plane, FAILED)
    (tried,) = control_plane.partitions.retry([KEY], OVERRIDE)
    assert tried == get_partition(control_plane, KEY)
    run = claim_partition_run(control_plane, KEY)
    assert run.run_id != first.run_id
    assert run.priority is RunPriority.FRESH


def test_spec3_s8_terminal_failures_can_be_listed(control_plane: ControlPlane) -> None:
    create_judged_partition(control_plane, FAILED)
    create_judged_partition(control_plane, FAILED, FAILED, FAILED, FAILED, wanted=partition_key(2))
    control_plane.partitions.mark_terminal([KEY], OVERRIDE)
    create_judged_partition(control_plane, FAILED, wanted=partition_key(3))
    failed = control_plane.reader.find_partitions(
        PartitionFilter(statuses=[PartitionStatus.FAILED])
    )
    policy, now = control_plane.policies.terminality, control_plane.reader.now()
    assert [(one.key, find_terminal_reason(one, policy, now)) for one in failed] == [
        (KEY, "marked"),
        (partition_key(2), "attempts_used_up"),
        (partition_key(3), None),
    ]


def test_spec3_s8_history_errors_times_and_next_retry_are_visible(
    control_plane: ControlPlane,
) -> None:
    enqueue_partitions(control_plane)
    judge_partition(control_plane, FAILED, why="no tiles")
    control_plane.partitions.retry([KEY], OVERRIDE)
    judge_partition(control_plane, FAILED, why="too coarse")
    first, second = control_plane.reader.list_partition_attempts(KEY)
    assert (first.explanation, second.explanation) == ("no tiles", "too coarse")
    assert first.judged_at <= second.judged_at
    partition = get_partition(control_plane, KEY)
    assert (partition.error_message, partition.updated_at) == ("too coarse", second.judged_at)
    planned = control_plane.reader.find_planned_retry(KEY)
    assert planned is not None
    assert planned.next_run_at > partition.updated_at


@pytest.mark.parametrize("action", ["retry", "mark_terminal"])
def test_spec3_s8_large_range_requires_confirmed_count(
    control_plane: ControlPlane, action: str
) -> None:
    many = MARCH[:LARGE_RANGE]
    enqueue_partitions(control_plane, *many)
    for one in many:
        judge_partition(control_plane, FAILED, one)
    act = getattr(control_plane.partitions, action)
    before = len(control_plane.events())
    for wrong in (None, LARGE_RANGE - 1, LARGE_RANGE + 1):
        with pytest.raises(ConfirmationNeededError, match=f"confirm the count {LARGE_RANGE}"):
            act(many, evolve(OVERRIDE, confirmed=wrong))
    with pytest.raises(ConfirmationNeededError, match="this affects 3 partitions, not 5"):
        act(many[:3], confirm(5))  # too few to need it, and yet not what was thought of
    assert len(control_plane.events()) == before
    assert len(act(many[: LARGE_RANGE - 1] * 2, OVERRIDE)) == LARGE_RANGE - 1  # each counts once
    assert len(act(many[LARGE_RANGE - 1 :], confirm(1))) == 1


def test_spec3_s8_large_backfill_requires_confirmed_count(control_plane: ControlPlane) -> None:
    plan = control_plane.partitions.plan(create_backfill_request(1, LARGE_RANGE))
    with pytest.raises(ConfirmationNeededError):
        control_plane.partitions.apply(plan, OVERRIDE)
    assert list(control_plane.reader.find_partitions(PartitionFilter())) == []
    assert len(control_plane.partitions.apply(plan, confirm(LARGE_RANGE))) == LARGE_RANGE


def test_spec3_s8_retry_without_raw_partition_rejects_whole_request(
    control_plane: ControlPlane,
) -> None:
    create_judged_partition(control_plane, FAILED)
    enqueue_partitions(control_plane, partition_key(2))
    give_up_partition(control_plane, partition_key(2))
    with pytest.raises(NoRawPartitionError, match="has no raw partition to retry"):
        control_plane.partitions.retry([KEY, partition_key(2)], OVERRIDE)
    assert get_partition(control_plane, KEY).status is PartitionStatus.FAILED
    # The way on is a backfill of that date, which says what is extracted.
    plan = control_plane.partitions.plan(create_backfill_request(2, 2))
    assert len(control_plane.partitions.apply(plan, OVERRIDE)) == 1


@frozen
class FakeSink:
    """A sink that has what a test puts there, whatever the books say."""

    sealed: SealedPartition | None = None

    def find_newest(self, _key: PartitionKey) -> SealedPartition | None:
        return self.sealed


def test_spec3_s8_retry_asks_the_sink_and_not_the_books(control_plane: ControlPlane) -> None:
    create_judged_partition(control_plane, FAILED)  # the books have a raw partition
    partitions = evolve(control_plane.partitions, raw=FakeSink())
    with pytest.raises(NoRawPartitionError):
        partitions.retry([KEY], OVERRIDE)


def test_retry_repeats_the_newest_run_that_has_raw_data(control_plane: ControlPlane) -> None:
    (judged,) = create_judged_partition(control_plane, FAILED)
    sealed = control_plane.reader.find_raw(judged.run_id)
    request = create_backfill_request(1, 1)
    request = evolve(request, area=evolve(request.area, zoom_levels=(14,)))
    plan = control_plane.partitions.plan(request)
    control_plane.partitions.apply(plan, OVERRIDE)
    abandoned = give_up_partition(control_plane)  # with another area, and without raw data
    assert abandoned.payload != judged.payload
    partitions = evolve(control_plane.partitions, raw=FakeSink(sealed))
    (tried,) = partitions.retry([KEY], OVERRIDE)
    run = control_plane.reader.find_run(tried.last_run_id)
    assert run is not None
    assert run.payload == judged.payload


def test_backfill_of_past_dates_from_plain_server_is_refused(control_plane: ControlPlane) -> None:
    plain = ImageryDates(source=KEY.source, is_dated=False)
    partitions = evolve(control_plane.partitions, imagery=plain)
    control_plane.pass_time(365 * 86_400)
    with pytest.raises(UndatedImageryError, match="2026-03-01"):
        partitions.plan(create_backfill_request(1, 2))
    allowed = evolve(partitions, imagery=evolve(plain, allow_undated=True))
    assert allowed.plan(create_backfill_request(1, 2)).touched == 2


def test_spec3_s8_pending_or_unknown_partition_cannot_be_retried(
    control_plane: ControlPlane,
) -> None:
    enqueue_partitions(control_plane)
    with pytest.raises(IllegalTransitionError, match="it would have to be failed"):
        control_plane.partitions.retry([KEY], OVERRIDE)
    with pytest.raises(NotFoundError, match=r"partition .* not found"):
        control_plane.partitions.retry([partition_key(2)], OVERRIDE)


@pytest.mark.parametrize("reason", ["", "  "])
def test_spec3_s8_override_requires_reason(control_plane: ControlPlane, reason: str) -> None:
    create_judged_partition(control_plane, FAILED)
    create_judged_partition(control_plane, PASSED, wanted=partition_key(2))
    silent = OperatorOverride(by="ann", reason=reason)
    for keys, act in (
        ([KEY], control_plane.partitions.retry),
        ([partition_key(2)], control_plane.partitions.retry),
        ([KEY], control_plane.partitions.mark_terminal),
    ):
        with pytest.raises(IllegalTransitionError, match="an override needs a reason"):
            act(keys, silent)
    plan = control_plane.partitions.plan(create_backfill_request(1, 1))
    with pytest.raises(IllegalTransitionError, match="an override needs a reason"):
        control_plane.partitions.apply(plan, silent)
    assert len(list_state_changes(control_plane)) == 2


def test_spec3_s8_overrides_are_logged_with_operator_and_reason(
    control_plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    create_judged_partition(control_plane, FAILED)
    create_judged_partition(control_plane, PASSED, wanted=partition_key(2))
    caplog.set_level(logging.WARNING)
    control_plane.partitions.mark_terminal([KEY], OVERRIDE)
    control_plane.partitions.retry([KEY, partition_key(2)], OVERRIDE)
    judge_partition(control_plane, FAILED, KEY)
    control_plane.partitions.apply(
        control_plane.partitions.plan(create_backfill_request(1, 3)), OVERRIDE
    )
    told = [
        (event.subject, event.transition)
        for wanted in MARCH[:3]
        for event in list_state_changes(control_plane, wanted)
        if event.actor == Actor.OPERATOR
        and event.additional_context == {"by": "ann@laptop"}
        and event.reason in {OVERRIDE.reason, None}
    ]
    assert told == [
        (f"partition {KEY}", "mark_terminal"),
        (f"partition {KEY}", "requeue"),
        (f"partition {KEY}", "requeue"),
        (f"partition {partition_key(2)}", "reprocess"),
        (f"partition {partition_key(3)}", "enqueue"),
    ]
    overrides = [
        event for event in list_state_changes(control_plane) if event.actor == Actor.OPERATOR
    ]
    assert [event.reason for event in overrides] == [OVERRIDE.reason] * 3
    lines = [record.getMessage() for record in caplog.records if record.name == "test.partitions"]
    assert lines == [
        "mark terminal by ann@laptop of 1 partitions: the source was mended",
        "retry by ann@laptop of 2 partitions: the source was mended",
        "backfill by ann@laptop of 2 partitions: the source was mended",
    ]


def test_spec3_s8_backfill_uses_area_of_plan(control_plane: ControlPlane) -> None:
    create_judged_partition(control_plane, FAILED)
    asked = create_backfill_request(1, 1)
    wider = evolve(asked, area=evolve(asked.area, zoom_levels=(15, 16)))
    control_plane.partitions.apply(control_plane.partitions.plan(wider), OVERRIDE)
    run = claim_partition_run(control_plane, KEY)
    assert run.payload == AcquirePartition(key=KEY, area=wider.area).to_payload()
    assert get_partition(control_plane, KEY).error_message == REJECTION_REASON
