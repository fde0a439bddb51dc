"""What operators may do to partitions, and the rails that every form of the books has for them."""

import logging

import pytest
from attrs import evolve
from support.partition_desk import (
    ANN,
    FAILED,
    PASSED,
    WHY,
    changes_of,
    claimed_of,
    dates,
    enqueued,
    given_up,
    judged,
    known,
    made,
)
from support.work_desk import LEASE, W1, Desk, key

from tileferry.application.control.partition_control import Override
from tileferry.application.ports.work import PartitionFilter
from tileferry.domain.actors import Actor
from tileferry.domain.errors import (
    ConfirmationNeededError,
    IllegalTransitionError,
    InvalidValueError,
    NoRawPartitionError,
    PlanDriftedError,
)
from tileferry.domain.partitions import (
    LARGE_RANGE,
    BackfillAction,
    PartitionStatus,
    plan_from_json,
    readable_run,
    terminal_reason,
)
from tileferry.domain.runs import RunPriority
from tileferry.domain.work import AcquirePartition

KEY = key()
MARCH = [key(day) for day in range(1, 16)]


def confirmed(count: int) -> Override:
    return evolve(ANN, confirmed=count)


# 6. Backfill interaction


def test_spec3_s6_a_backfill_enqueues_each_date_as_pending_with_a_run_of_its_own(
    desk: Desk,
) -> None:
    plan = desk.partitions.plan(dates(1, 15))
    assert plan.counts == {BackfillAction.ENQUEUE: 15}
    assert list(desk.reader.find_partitions(PartitionFilter())) == []
    done = desk.partitions.apply(plan, confirmed(15))
    assert [partition.key for partition in done] == MARCH
    listed = list(desk.reader.find_partitions(PartitionFilter()))
    assert listed == list(done)
    assert {partition.status for partition in listed} == {PartitionStatus.PENDING}
    assert len({partition.active_run_id for partition in listed}) == 15


def test_spec3_s6_a_backfill_follows_the_same_retry_policy(desk: Desk) -> None:
    desk.partitions.apply(desk.partitions.plan(dates(1, 1)), ANN)
    first = judged(desk, FAILED)
    assert known(desk, KEY).attempt_count == 1
    planned = desk.reader.planned_retry(KEY)
    assert planned is not None
    waits_s = (planned.next_run_at - known(desk, KEY).updated_at).total_seconds()
    assert waits_s == pytest.approx(300, rel=0.1)
    desk.pass_time(400)
    assert desk.partitions.retry_due() == 1
    second = judged(desk, PASSED)
    assert second.run_id != first.run_id
    assert second.priority is RunPriority.BACKFILL  # automation goes on as it began
    assert (known(desk, KEY).attempt_count, known(desk, KEY).status) == (2, "success")


def test_spec3_s6_a_backfill_takes_failures_further_and_leaves_successes(desk: Desk) -> None:
    made(desk, FAILED)
    made(desk, PASSED, wanted=key(2))
    enqueued(desk, key(3))
    plan = desk.partitions.plan(dates(1, 4))
    assert [line.action for line in plan.lines] == ["requeue", "skip", "skip", "enqueue"]
    before = [known(desk, key(day)) for day in (2, 3)]
    done = desk.partitions.apply(plan, ANN)
    assert [partition.key for partition in done] == [key(1), key(4)]
    assert [known(desk, key(day)) for day in (2, 3)] == before
    assert known(desk, key(1)).attempt_count == 1


def test_spec3_s6_a_backfill_may_reprocess_successes_which_stay_readable(desk: Desk) -> None:
    (run,) = made(desk, PASSED)
    plan = desk.partitions.plan(dates(1, 1, reprocess=True))
    desk.partitions.apply(plan, ANN)
    assert readable_run(known(desk, KEY)) == run.run_id
    judged(desk, PASSED)
    assert readable_run(known(desk, KEY)) == plan.run_id(plan.lines[0])


def test_spec3_s6_gaps_are_shown_as_what_they_are(desk: Desk) -> None:
    desk.partitions.apply(desk.partitions.plan(dates(1, 4)), ANN)
    for day, outcome in ((1, PASSED), (2, FAILED)):
        judged(desk, outcome, key(day))
    given_up(desk, key(3))
    listed = list(desk.reader.find_partitions(PartitionFilter()))
    assert [partition.status for partition in listed] == ["success", "failed", "failed", "pending"]
    assert [readable_run(partition) is not None for partition in listed] == [True, *[False] * 3]


def test_spec3_s6_fresh_data_goes_before_any_backfill(desk: Desk) -> None:
    desk.partitions.apply(desk.partitions.plan(dates(1, 15)), confirmed(15))
    desk.pass_time(1_000)
    enqueued(desk, key(1, month=4), key(2, month=4))
    first = [run.priority for run in desk.queue.claim(W1, limit=3, lease=LEASE)]
    assert first == [RunPriority.FRESH, RunPriority.FRESH, RunPriority.BACKFILL]


def test_spec3_s6_a_plan_applied_again_does_nothing_more(desk: Desk) -> None:
    plan = plan_from_json(desk.partitions.plan(dates(1, 3)).to_json())
    desk.partitions.apply(plan, ANN)
    for outcome, day in ((PASSED, 1), (FAILED, 2)):
        judged(desk, outcome, key(day))
    before = list(desk.reader.find_partitions(PartitionFilter()))
    events = len(desk.events())
    assert desk.partitions.apply(plan, ANN) == []
    assert list(desk.reader.find_partitions(PartitionFilter())) == before
    assert len(desk.events()) == events


def test_spec3_s6_a_plan_that_has_drifted_is_refused_whole_and_says_where(desk: Desk) -> None:
    made(desk, FAILED)
    plan = desk.partitions.plan(dates(1, 3))
    enqueued(desk, key(2))
    desk.partitions.retry([KEY], ANN)
    with pytest.raises(PlanDriftedError) as caught:
        desk.partitions.apply(plan, ANN)
    assert caught.value.count == 2
    said = str(caught.value)
    assert f"partition {KEY} (requeue): status was failed, is pending" in said
    assert f"partition {key(2)} (enqueue): status was absent, is pending" in said
    assert desk.reader.find_partition(key(3)) is None


def test_spec3_s6_a_date_that_is_skipped_may_go_on(desk: Desk) -> None:
    enqueued(desk)
    plan = desk.partitions.plan(dates(1, 2))
    judged(desk, FAILED)
    desk.partitions.apply(plan, ANN)
    assert known(desk, KEY).status is PartitionStatus.FAILED
    assert known(desk, key(2)).status is PartitionStatus.PENDING


def test_spec3_s6_terminal_failures_are_left_unless_they_are_asked_for(desk: Desk) -> None:
    made(desk, FAILED)
    desk.partitions.mark_terminal([KEY], ANN)
    assert desk.partitions.plan(dates(1, 1)).touched == 0
    plan = desk.partitions.plan(dates(1, 1, include_terminal=True))
    desk.partitions.apply(plan, ANN)
    assert known(desk, KEY).status is PartitionStatus.PENDING


# 8. Operator interface


def test_spec3_s8_a_retry_starts_a_new_run_at_once(desk: Desk) -> None:
    (first,) = made(desk, FAILED)
    (tried,) = desk.partitions.retry([KEY], ANN)
    assert tried == known(desk, KEY)
    run = claimed_of(desk, KEY)
    assert run.run_id != first.run_id
    assert run.priority is RunPriority.FRESH


def test_spec3_s8_terminal_failures_can_be_listed(desk: Desk) -> None:
    made(desk, FAILED)
    made(desk, FAILED, FAILED, FAILED, FAILED, wanted=key(2))
    desk.partitions.mark_terminal([KEY], ANN)
    made(desk, FAILED, wanted=key(3))
    failed = desk.reader.find_partitions(PartitionFilter(statuses=[PartitionStatus.FAILED]))
    policy, now = desk.policies.terminality, desk.reader.now()
    assert [(one.key, terminal_reason(one, policy, now)) for one in failed] == [
        (KEY, "marked"),
        (key(2), "attempts_used_up"),
        (key(3), None),
    ]


def test_spec3_s8_history_errors_times_and_the_next_retry_are_to_be_seen(desk: Desk) -> None:
    enqueued(desk)
    judged(desk, FAILED, why="no tiles")
    desk.partitions.retry([KEY], ANN)
    judged(desk, FAILED, why="too coarse")
    first, second = desk.reader.partition_attempts(KEY)
    assert (first.explanation, second.explanation) == ("no tiles", "too coarse")
    assert first.judged_at <= second.judged_at
    partition = known(desk, KEY)
    assert (partition.error_message, partition.updated_at) == ("too coarse", second.judged_at)
    planned = desk.reader.planned_retry(KEY)
    assert planned is not None
    assert planned.next_run_at > partition.updated_at


@pytest.mark.parametrize("action", ["retry", "mark_terminal"])
def test_spec3_s8_a_large_range_needs_its_count(desk: Desk, action: str) -> None:
    many = MARCH[:LARGE_RANGE]
    enqueued(desk, *many)
    for one in many:
        judged(desk, FAILED, one)
    act = getattr(desk.partitions, action)
    before = len(desk.events())
    for wrong in (None, LARGE_RANGE - 1, LARGE_RANGE + 1):
        with pytest.raises(ConfirmationNeededError, match=f"--confirm-count {LARGE_RANGE}"):
            act(many, evolve(ANN, confirmed=wrong))
    with pytest.raises(ConfirmationNeededError, match="5 were confirmed"):
        act(many[:3], confirmed(5))  # too few to need it, and yet not what was thought of
    assert len(desk.events()) == before
    assert len(act(many[: LARGE_RANGE - 1] * 2, ANN)) == LARGE_RANGE - 1  # each counts once
    assert len(act(many[LARGE_RANGE - 1 :], confirmed(1))) == 1


def test_spec3_s8_a_large_backfill_needs_its_count(desk: Desk) -> None:
    plan = desk.partitions.plan(dates(1, LARGE_RANGE))
    with pytest.raises(ConfirmationNeededError):
        desk.partitions.apply(plan, ANN)
    assert list(desk.reader.find_partitions(PartitionFilter())) == []
    assert len(desk.partitions.apply(plan, confirmed(LARGE_RANGE))) == LARGE_RANGE


def test_spec3_s8_a_retry_without_a_raw_partition_is_refused_and_with_it_all_others(
    desk: Desk,
) -> None:
    made(desk, FAILED)
    enqueued(desk, key(2))
    given_up(desk, key(2))
    with pytest.raises(NoRawPartitionError, match="left no raw partition"):
        desk.partitions.retry([KEY, key(2)], ANN)
    assert known(desk, KEY).status is PartitionStatus.FAILED
    # The way on is a backfill of that date, which says what is extracted.
    plan = desk.partitions.plan(dates(2, 2))
    assert len(desk.partitions.apply(plan, ANN)) == 1


def test_spec3_s8_what_is_under_way_cannot_be_retried(desk: Desk) -> None:
    enqueued(desk)
    with pytest.raises(IllegalTransitionError, match="it would have to be failed"):
        desk.partitions.retry([KEY], ANN)
    with pytest.raises(InvalidValueError, match="is not known"):
        desk.partitions.retry([key(2)], ANN)


@pytest.mark.parametrize("reason", ["", "  "])
def test_spec3_s8_an_override_says_why(desk: Desk, reason: str) -> None:
    made(desk, FAILED)
    made(desk, PASSED, wanted=key(2))
    silent = Override(by="ann", reason=reason)
    for keys, act in (
        ([KEY], desk.partitions.retry),
        ([key(2)], desk.partitions.retry),
        ([KEY], desk.partitions.mark_terminal),
    ):
        with pytest.raises(IllegalTransitionError, match="an override needs a reason"):
            act(keys, silent)
    plan = desk.partitions.plan(dates(1, 1))
    with pytest.raises(IllegalTransitionError, match="an override needs a reason"):
        desk.partitions.apply(plan, silent)
    assert len(changes_of(desk)) == 2


def test_spec3_s8_every_override_is_logged_with_who_and_why(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    made(desk, FAILED)
    made(desk, PASSED, wanted=key(2))
    caplog.set_level(logging.WARNING)
    desk.partitions.mark_terminal([KEY], ANN)
    desk.partitions.retry([KEY, key(2)], ANN)
    judged(desk, FAILED, KEY)
    desk.partitions.apply(desk.partitions.plan(dates(1, 3)), ANN)
    told = [
        (event.subject, event.transition)
        for wanted in MARCH[:3]
        for event in changes_of(desk, wanted)
        if event.actor == Actor.OPERATOR
        and event.additional_context == {"by": "ann@laptop"}
        and event.reason in {ANN.reason, None}
    ]
    assert told == [
        (f"partition {KEY}", "mark_terminal"),
        (f"partition {KEY}", "requeue"),
        (f"partition {KEY}", "requeue"),
        (f"partition {key(2)}", "reprocess"),
        (f"partition {key(3)}", "enqueue"),
    ]
    overrides = [event for event in changes_of(desk) if event.actor == Actor.OPERATOR]
    assert [event.reason for event in overrides] == [ANN.reason] * 3
    lines = [record.getMessage() for record in caplog.records if record.name == "test.partitions"]
    assert lines == [
        "mark terminal by ann@laptop of 1 partitions: the source was mended",
        "retry by ann@laptop of 2 partitions: the source was mended",
        "backfill by ann@laptop of 2 partitions: the source was mended",
    ]


def test_spec3_s8_a_backfill_has_the_area_of_its_plan(desk: Desk) -> None:
    made(desk, FAILED)
    asked = dates(1, 1)
    wider = evolve(asked, area=evolve(asked.area, zoom_levels=(15, 16)))
    desk.partitions.apply(desk.partitions.plan(wider), ANN)
    run = claimed_of(desk, KEY)
    assert run.payload == AcquirePartition.of(KEY, wider.area).payload()
    assert known(desk, KEY).error_message == WHY
