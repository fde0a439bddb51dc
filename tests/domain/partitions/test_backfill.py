"""Backfill plans: what each date gets, and that applying a plan does just that."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from support.partition_states import NOW, STATES, TERMINALITY, failed, pending, success

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions import (
    BACKFILL_PARTITIONS_MAX,
    BackfillAction,
    BackfillLine,
    BackfillPlan,
    BackfillRequest,
    Partition,
    PartitionFingerprint,
    SkipReason,
    TerminalityPolicy,
    TerminalReason,
    enqueue,
    find_drift,
    is_applied,
    plan_backfill,
    reprocess,
    requeue,
)
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import Area, BBox, SectorClass

DAY = timedelta(days=1)
FIRST = date(2024, 2, 28)
AREA = Area(
    bbox=BBox.parse("36.1,49.9,36.4,50.1"),
    zoom_levels=(15,),
    sector_class=SectorClass.STABLE_REAR,
)


def request(days: int = 1, **changed: Any) -> BackfillRequest:
    fields: dict[str, Any] = {
        "source": "osm",
        "customer_id": "acme",
        "query_name": "roads",
        "first_date": FIRST,
        "last_date": FIRST + (days - 1) * DAY,
        "area": AREA,
    }
    return BackfillRequest(**{**fields, **changed})


def plan_one_date(state: str | None, **options: Any) -> BackfillPlan:
    """Plan one date whose partition is in ``state``."""
    asked = request(**options)
    partitions = [] if state is None else [STATES[state](asked.get_key(FIRST))]
    return plan_backfill(asked, partitions, now=NOW, terminality=TERMINALITY)


PLANNED: list[tuple[str | None, dict[str, bool], str, str | None]] = [
    (None, {}, "enqueue", None),
    ("pending", {}, "skip", "run_active"),
    ("requeued", {"include_terminal": True}, "skip", "run_active"),
    ("reprocessing", {"reprocess": True}, "skip", "run_active"),
    ("success", {}, "skip", "success"),
    ("success", {"include_terminal": True}, "skip", "success"),
    ("success", {"reprocess": True}, "reprocess", None),
    ("spoilt_reprocessing", {}, "skip", "success"),
    ("spoilt_reprocessing", {"reprocess": True}, "reprocess", None),
    ("failed", {}, "requeue", None),
    ("abandoned", {}, "requeue", None),
    ("used_up", {}, "skip", "attempts_used_up"),
    ("used_up", {"reprocess": True}, "skip", "attempts_used_up"),
    ("used_up", {"include_terminal": True}, "requeue", None),
    ("marked", {}, "skip", "marked"),
    ("marked", {"include_terminal": True}, "requeue", None),
]


@pytest.mark.parametrize(("state", "options", "action", "why"), PLANNED)
def test_action_per_partition_state(
    state: str | None, options: dict[str, bool], action: str, why: str | None
) -> None:
    plan = plan_one_date(state, **options)
    (line,) = plan.lines
    assert (line.logical_date, line.action, line.why) == (FIRST, action, why)
    assert (line.seen is None) == (state is None)
    assert plan.touched == (action != "skip")
    assert plan.counts[BackfillAction(action)] == 1


def test_too_old_partition_is_skipped() -> None:
    asked = request()
    policy = TerminalityPolicy(max_attempts=9, max_age=DAY)
    partitions = [failed(asked.get_key(FIRST))]
    plan = plan_backfill(asked, partitions, now=NOW + DAY, terminality=policy)
    assert plan.lines[0].why is SkipReason.TOO_OLD
    assert {reason.value for reason in TerminalReason} < {reason.value for reason in SkipReason}


def test_range_is_inclusive_and_ignores_other_partitions() -> None:
    asked = request(3)
    other = evolve(asked, customer_id="other")
    partitions = [success(asked.get_key(date(2024, 2, 29))), failed(other.get_key(FIRST))]
    plan = plan_backfill(asked, partitions, now=NOW, terminality=TERMINALITY)
    assert [(line.logical_date.isoformat(), line.action.value) for line in plan.lines] == [
        ("2024-02-28", "enqueue"),
        ("2024-02-29", "skip"),
        ("2024-03-01", "enqueue"),
    ]
    assert [str(plan.get_key(line)) for line in plan.lines][-1] == "osm/acme/roads/2024-03-01"
    assert plan.touched == 2
    assert "3 lines" in repr(plan)


@pytest.mark.parametrize(
    ("changed", "field", "problem"),
    [
        ({"last_date": FIRST - DAY}, "first_date", "is after last_date, 2024-02-27"),
        (
            {"last_date": FIRST + BACKFILL_PARTITIONS_MAX * DAY},
            "last_date",
            "makes 100001 partitions; the limit is 100000",
        ),
        ({"first_date": NOW}, "first_date", "must be a date without a time"),
        ({"source": "a/b"}, "source", "is not a plain name"),
        ({"area": "everywhere"}, "area", "must be a Area"),
        ({"reprocess": 1}, "reprocess", "must be a bool"),
    ],
)
def test_invalid_request_is_rejected(changed: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        request(**changed)
    assert (caught.value.field, caught.value.problem) == (f"BackfillRequest.{field}", problem)
    assert request(BACKFILL_PARTITIONS_MAX).count == BACKFILL_PARTITIONS_MAX


SEEN = {
    name: PartitionFingerprint.from_partition(make(request().get_key(FIRST)))
    for name, make in STATES.items()
}


@pytest.mark.parametrize(
    ("action", "why", "state", "field"),
    [
        ("skip", None, "success", "why"),
        ("requeue", "success", "failed", "why"),
        ("enqueue", None, "failed", "seen"),
        ("requeue", None, None, "seen"),
        ("skip", "success", None, "seen"),
        ("requeue", None, "success", "action"),
        ("reprocess", None, "failed", "action"),
        ("reprocess", None, "reprocessing", "action"),
        ("skip", "run_active", "failed", "action"),
        ("skip", "success", "pending", "action"),
        ("skip", "success", "reprocessing", "action"),
        ("skip", "marked", "success", "action"),
    ],
)
def test_contradictory_line_is_rejected(
    action: str, why: str | None, state: str | None, field: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        BackfillLine(
            logical_date=FIRST,
            action=BackfillAction(action),
            why=None if why is None else SkipReason(why),
            seen=None if state is None else SEEN[state],
        )
    assert caught.value.field == f"BackfillLine.{field}"


def test_plan_not_matching_its_request_is_rejected() -> None:
    plan = plan_one_date(None)
    for lines in ([], [*plan.lines, *plan.lines]):
        with pytest.raises(InvalidValueError) as caught:
            evolve(plan, lines=lines)
        assert caught.value.field == "BackfillPlan.lines"
    reprocessed = plan_one_date("success", reprocess=True)
    with pytest.raises(InvalidValueError) as caught:
        evolve(reprocessed, request=request())
    assert caught.value.problem == "reprocess a success, which was not requested"


def test_plan_hash_is_stable_and_ignores_time_zone() -> None:
    plan = plan_one_date(None)
    # A plan that was written before must still be what it was.
    assert plan.hash == "0f618144ef48959d08b6e8e2ae5294da3e3bc26cc0e9c20bc7cb53288f8ca808"
    elsewhere = NOW.astimezone(timezone(timedelta(hours=5)))
    assert evolve(plan, made_at=elsewhere).hash == plan.hash
    others = [
        evolve(plan, made_at=NOW + timedelta(microseconds=1)),
        evolve(plan, request=request(include_terminal=True)),
        evolve(plan, request=request(area=evolve(AREA, zoom_levels=(15, 16)))),
        plan_one_date("failed"),
        plan_one_date("abandoned"),
    ]
    assert len({plan.hash, *(other.hash for other in others)}) == 6


def test_naive_datetime_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match="made_at"):
        plan_backfill(request(), [], now=datetime(2024, 1, 1), terminality=TERMINALITY)  # noqa: DTZ001  # what is refused
    assert NOW.tzinfo is UTC


def apply_line(plan: BackfillPlan, line: BackfillLine, partition: Partition | None) -> Partition:
    """Do what a line says, as the operator would have it done."""
    run_id = plan.get_run_id(line)
    who: dict[str, Any] = {"actor": Actor.OPERATOR, "now": NOW}
    if partition is None:
        assert line.action is BackfillAction.ENQUEUE
        return enqueue(plan.get_key(line), run_id, **who).after
    who["reason"] = "backfill"
    if line.action is BackfillAction.REQUEUE:
        return requeue(partition, run_id, terminality=TERMINALITY, **who).after
    assert line.action is BackfillAction.REPROCESS
    return reprocess(partition, run_id, **who).after


@given(
    states=st.lists(st.none() | st.sampled_from(sorted(STATES)), min_size=1, max_size=8),
    data=st.data(),
    again=st.booleans(),
    terminal=st.booleans(),
)
def test_interrupted_plan_can_be_resumed(
    states: list[str | None], data: st.DataObject, *, again: bool, terminal: bool
) -> None:
    asked = request(len(states), reprocess=again, include_terminal=terminal)
    keys = [asked.get_key(day) for day in asked.dates]
    world = {
        key: STATES[state](key)
        for key, state in zip(keys, states, strict=True)
        if state is not None
    }
    plan = plan_backfill(asked, world.values(), now=NOW, terminality=TERMINALITY)
    assert find_drift(plan, world.values()) == []
    to_do = [line for line in plan.lines if line.action is not BackfillAction.SKIP]
    assert len(to_do) == plan.touched
    stopped_at = data.draw(st.integers(0, len(to_do)))
    for line in to_do[:stopped_at]:
        key = plan.get_key(line)
        world[key] = apply_line(plan, line, world.get(key))
    assert find_drift(plan, world.values()) == []
    done = [is_applied(plan, line, world.get(plan.get_key(line))) for line in to_do]
    assert done == [True] * stopped_at + [False] * (len(to_do) - stopped_at)
    assert len({plan.get_run_id(line) for line in plan.lines}) == len(plan.lines)


def test_pending_partition_is_recorded_in_plan_line() -> None:
    partition = pending(request().get_key(FIRST))
    (line,) = plan_one_date("pending").lines
    assert line.seen == PartitionFingerprint.from_partition(partition)
