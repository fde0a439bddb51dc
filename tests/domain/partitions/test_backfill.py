"""Backfill plans: what each date gets, and that applying a plan does just that."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from support.partition_states import NOW, STATES, TERMINALITY, failed, pending, success

from tileferry.domain.actors import Actor
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
    drift,
    enqueue,
    is_applied,
    plan_backfill,
    reprocess,
    requeue,
)
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


def plan_of(state: str | None, **options: Any) -> BackfillPlan:
    """Plan one date whose partition is in ``state``."""
    asked = request(**options)
    partitions = [] if state is None else [STATES[state](asked.key(FIRST))]
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
def test_spec3_s6_what_a_date_gets(
    state: str | None, options: dict[str, bool], action: str, why: str | None
) -> None:
    plan = plan_of(state, **options)
    (line,) = plan.lines
    assert (line.logical_date, line.action, line.why) == (FIRST, action, why)
    assert (line.seen is None) == (state is None)
    assert plan.touched == (action != "skip")
    assert plan.counts[BackfillAction(action)] == 1


def test_a_partition_that_is_too_old_is_skipped() -> None:
    asked = request()
    policy = TerminalityPolicy(max_attempts=9, max_age=DAY)
    partitions = [failed(asked.key(FIRST))]
    plan = plan_backfill(asked, partitions, now=NOW + DAY, terminality=policy)
    assert plan.lines[0].why is SkipReason.TOO_OLD
    assert {reason.value for reason in TerminalReason} < {reason.value for reason in SkipReason}


def test_a_range_has_both_its_ends_and_leap_days_and_no_partition_of_others() -> None:
    asked = request(3)
    other = evolve(asked, customer_id="other")
    partitions = [success(asked.key(date(2024, 2, 29))), failed(other.key(FIRST))]
    plan = plan_backfill(asked, partitions, now=NOW, terminality=TERMINALITY)
    assert [(line.logical_date.isoformat(), line.action.value) for line in plan.lines] == [
        ("2024-02-28", "enqueue"),
        ("2024-02-29", "skip"),
        ("2024-03-01", "enqueue"),
    ]
    assert [str(plan.key(line)) for line in plan.lines][-1] == "osm/acme/roads/2024-03-01"
    assert plan.touched == 2
    assert "3 lines" in repr(plan)


@pytest.mark.parametrize(
    ("changed", "field", "problem"),
    [
        ({"last_date": FIRST - DAY}, "first_date", "is after last_date, 2024-02-27"),
        (
            {"last_date": FIRST + BACKFILL_PARTITIONS_MAX * DAY},
            "last_date",
            "makes 100001 partitions; 100000 are the most",
        ),
        ({"first_date": NOW}, "first_date", "must be a date without a time"),
        ({"source": "a/b"}, "source", "is not a plain name"),
        ({"area": "everywhere"}, "area", "must be a Area"),
        ({"reprocess": 1}, "reprocess", "must be a bool"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    changed: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        request(**changed)
    assert (caught.value.field, caught.value.problem) == (f"BackfillRequest.{field}", problem)
    assert request(BACKFILL_PARTITIONS_MAX).count == BACKFILL_PARTITIONS_MAX


SEEN = {name: PartitionFingerprint.of(make(request().key(FIRST))) for name, make in STATES.items()}


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
def test_a_line_that_contradicts_itself_cannot_be_made(
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


def test_a_plan_has_a_line_for_each_date_and_reprocesses_only_when_asked() -> None:
    plan = plan_of(None)
    for lines in ([], [*plan.lines, *plan.lines]):
        with pytest.raises(InvalidValueError) as caught:
            evolve(plan, lines=lines)
        assert caught.value.field == "BackfillPlan.lines"
    reprocessed = plan_of("success", reprocess=True)
    with pytest.raises(InvalidValueError) as caught:
        evolve(reprocessed, request=request())
    assert caught.value.problem == "reprocess a success, which was not asked for"


def test_the_hash_is_of_the_plan_and_not_of_the_zone_it_was_made_in() -> None:
    plan = plan_of(None)
    # A plan that was written before must still be what it was.
    assert plan.hash == "0f618144ef48959d08b6e8e2ae5294da3e3bc26cc0e9c20bc7cb53288f8ca808"
    elsewhere = NOW.astimezone(timezone(timedelta(hours=5)))
    assert evolve(plan, made_at=elsewhere).hash == plan.hash
    others = [
        evolve(plan, made_at=NOW + timedelta(microseconds=1)),
        evolve(plan, request=request(include_terminal=True)),
        evolve(plan, request=request(area=evolve(AREA, zoom_levels=(15, 16)))),
        plan_of("failed"),
        plan_of("abandoned"),
    ]
    assert len({plan.hash, *(other.hash for other in others)}) == 6


def test_a_moment_without_its_zone_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="made_at"):
        plan_backfill(request(), [], now=datetime(2024, 1, 1), terminality=TERMINALITY)  # noqa: DTZ001  # what is refused
    assert NOW.tzinfo is UTC


def applied(plan: BackfillPlan, line: BackfillLine, partition: Partition | None) -> Partition:
    """Do what a line says, as the operator would have it done."""
    run_id = plan.run_id(line)
    who: dict[str, Any] = {"actor": Actor.OPERATOR, "now": NOW}
    if partition is None:
        assert line.action is BackfillAction.ENQUEUE
        return enqueue(plan.key(line), run_id, **who).after
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
def test_spec3_s6_a_plan_can_be_applied_and_again_where_it_stopped(
    states: list[str | None], data: st.DataObject, *, again: bool, terminal: bool
) -> None:
    asked = request(len(states), reprocess=again, include_terminal=terminal)
    keys = [asked.key(day) for day in asked.dates]
    world = {
        key: STATES[state](key)
        for key, state in zip(keys, states, strict=True)
        if state is not None
    }
    plan = plan_backfill(asked, world.values(), now=NOW, terminality=TERMINALITY)
    assert drift(plan, world.values()) == []
    to_do = [line for line in plan.lines if line.action is not BackfillAction.SKIP]
    assert len(to_do) == plan.touched
    stopped_at = data.draw(st.integers(0, len(to_do)))
    for line in to_do[:stopped_at]:
        key = plan.key(line)
        world[key] = applied(plan, line, world.get(key))
    assert drift(plan, world.values()) == []
    done = [is_applied(plan, line, world.get(plan.key(line))) for line in to_do]
    assert done == [True] * stopped_at + [False] * (len(to_do) - stopped_at)
    assert len({plan.run_id(line) for line in plan.lines}) == len(plan.lines)


def test_a_pending_partition_stays_as_it_is() -> None:
    partition = pending(request().key(FIRST))
    (line,) = plan_of("pending").lines
    assert line.seen == PartitionFingerprint.of(partition)
