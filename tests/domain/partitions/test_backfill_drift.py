"""What changed since a plan was made is named, partition by partition, field by field."""

from datetime import date
from itertools import permutations

import pytest
from support.partition_states import NOW, STATES, TERMINALITY

from tileferry.domain.partitions import (
    BackfillAction,
    BackfillPlan,
    BackfillRequest,
    Partition,
    PartitionFingerprint,
    find_drift,
    plan_backfill,
)
from tileferry.domain.tiles import Area, BBox, SectorClass

FIRST = date(2024, 2, 28)
REQUEST = BackfillRequest(
    source="osm",
    customer_id="acme",
    query_name="roads",
    first_date=FIRST,
    last_date=FIRST,
    area=Area(
        bbox=BBox.parse("36.1,49.9,36.4,50.1"),
        zoom_levels=(15,),
        sector_class=SectorClass.STABLE_REAR,
    ),
)
KEY = REQUEST.get_key(FIRST)


def partitions_in(state: str | None) -> list[Partition]:
    return [] if state is None else [STATES[state](KEY)]


def plan_for(state: str | None) -> BackfillPlan:
    return plan_backfill(REQUEST, partitions_in(state), now=NOW, terminality=TERMINALITY)


@pytest.mark.parametrize(("before", "after"), list(permutations([None, *STATES], 2)))
def test_every_state_change_is_drift(before: str | None, after: str | None) -> None:
    plan = plan_for(before)
    (found,) = find_drift(plan, partitions_in(after))
    assert (found.key, found.action) == (KEY, plan.lines[0].action)
    assert found.planned == plan.lines[0].seen
    assert found.changes
    assert all(was != now for _, was, now in found.changes)
    assert found.blocks == (found.action is not BackfillAction.SKIP)
    assert find_drift(plan, partitions_in(before)) == []


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (None, "pending", "(enqueue): status was absent, is pending"),
        ("failed", None, "(requeue): status was failed, is absent"),
        ("failed", "marked", "(requeue): marked was no, is yes"),
        (
            "failed",
            "requeued",
            (
                "(requeue): status was failed, is pending; active_run_id was none, is r2; "
                "last_run_id was r1, is r2"
            ),
        ),
        (
            "pending",
            "success",
            (
                "(skip): status was pending, is success; attempt_count was 0, is 1; "
                "current_run_id was none, is r1; active_run_id was r1, is none"
            ),
        ),
    ],
)
def test_drift_message_names_changed_fields(
    before: str | None, after: str | None, message: str
) -> None:
    (found,) = find_drift(plan_for(before), partitions_in(after))
    assert str(found) == f"partition osm/acme/roads/2024-02-28 {message}"


def test_foreign_run_is_drift_even_with_planned_status() -> None:
    (found,) = find_drift(plan_for(None), partitions_in("pending"))
    assert found.blocks
    assert found.found == PartitionFingerprint.from_partition(STATES["pending"](KEY))
