"""Plans from files: read as they were made, or refused by what is wrong with them."""

import json
from collections.abc import Callable
from datetime import date, timedelta
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.partition_states import NOW, STATES, TERMINALITY
from support.strategies import areas, moments, names

from tileferry.domain.canonical import canonical_json
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions import (
    PLAN_BYTES_MAX,
    BackfillPlan,
    BackfillRequest,
    parse_plan,
    plan_backfill,
)
from tileferry.domain.tiles import Area, BBox, SectorClass
from tileferry.domain.tiles.limits import SHAPE_CHARS_MAX


@st.composite
def plans(draw: st.DrawFn) -> BackfillPlan:
    states = draw(st.lists(st.none() | st.sampled_from(sorted(STATES)), min_size=1, max_size=4))
    first = draw(st.dates(date(1900, 1, 1), date(2200, 1, 1)))
    request = BackfillRequest(
        source=draw(names),
        customer_id=draw(names),
        query_name=draw(names),
        first_date=first,
        last_date=first + timedelta(days=len(states) - 1),
        area=draw(areas),
        reprocess=draw(st.booleans()),
        include_terminal=draw(st.booleans()),
    )
    partitions = [
        STATES[state](request.get_key(day))
        for day, state in zip(request.dates, states, strict=True)
        if state is not None
    ]
    return plan_backfill(request, partitions, now=draw(moments), terminality=TERMINALITY)


PLAN = plan_backfill(
    request := BackfillRequest(
        source="osm",
        customer_id="acme",
        query_name="roads",
        first_date=date(2024, 2, 28),
        last_date=date(2024, 3, 1),
        area=Area(
            bbox=BBox.parse("36.1,49.9,36.4,50.1"),
            zoom_levels=(15, 16),
            sector_class=SectorClass.STABLE_REAR,
        ),
    ),
    [
        STATES["success"](request.get_key(date(2024, 2, 29))),
        STATES["failed"](request.get_key(date(2024, 3, 1))),
    ],
    now=NOW,
    terminality=TERMINALITY,
)


@given(plans())
def test_plan_round_trips_through_json(plan: BackfillPlan) -> None:
    again = parse_plan(plan.to_json())
    assert again == plan
    assert again.hash == plan.hash
    assert again.to_json() == plan.to_json()


def test_plan_json_format() -> None:
    document = json.loads(PLAN.to_json())
    assert document.pop("hash") == PLAN.hash
    seen = document["lines"][2].pop("seen")
    assert document.pop("lines")[2] == {
        "logical_date": "2024-03-01",
        "action": "requeue",
        "why": None,
    }
    assert seen == {
        "status": "failed",
        "attempt_count": 1,
        "current_run_id": None,
        "active_run_id": None,
        "last_run_id": "r1",
        "abandoned": False,
        "marked": False,
    }
    assert document == {
        "version": 1,
        "made_at": "2024-06-01T12:00:00+00:00",
        "source": "osm",
        "customer_id": "acme",
        "query_name": "roads",
        "first_date": "2024-02-28",
        "last_date": "2024-03-01",
        "bbox": "36.1,49.9,36.4,50.1",
        "zoom_levels": [15, 16],
        "sector_class": "stable_rear",
        "reprocess": False,
        "include_terminal": False,
    }


def test_plan_hash_covers_canonical_json() -> None:
    document = json.loads(PLAN.to_json())
    assert PLAN.to_json() == canonical_json(document) + b"\n"
    del document["hash"]
    content = b"tileferry-backfill-plan-v1\n" + canonical_json(document)
    assert sha256(content).hexdigest() == PLAN.hash


def test_whitespace_changes_are_accepted() -> None:
    document = json.loads(PLAN.to_json())
    assert parse_plan(json.dumps(document, indent=2).encode()) == PLAN


def expect_rejection(edit: Callable[[dict[str, Any]], object]) -> InvalidValueError:
    document = json.loads(PLAN.to_json())
    edit(document)
    with pytest.raises(InvalidValueError) as caught:
        parse_plan(json.dumps(document).encode())
    return caught.value


@pytest.mark.parametrize(
    "edit",
    [
        lambda plan: plan.update(customer_id="other"),
        lambda plan: plan.update(include_terminal=True),
        lambda plan: plan.update(zoom_levels=[15]),
        lambda plan: plan.update(made_at="2024-06-01T12:00:01+00:00"),
        lambda plan: plan.update(hash="0" * 64),
        lambda plan: plan["lines"][2]["seen"].update(attempt_count=2),
        lambda plan: plan["lines"][2].update(action="skip", why="marked"),
        lambda plan: plan["lines"][1]["seen"].update(last_run_id="r9"),
    ],
)
def test_plausible_edit_is_detected_by_hash(
    edit: Callable[[dict[str, Any]], object],
) -> None:
    error = expect_rejection(edit)
    assert error.field == "plan.hash"
    assert error.problem.endswith("the plan was edited")
    assert error.remedy == "make a new plan"


EDITS: list[tuple[Callable[[dict[str, Any]], object], str, str | None]] = [
    (
        lambda plan: plan.update(version=2, lines=None),
        "version",
        "is not known: this release reads version 1",
    ),
    (lambda plan: plan.pop("version"), "version", "must be a whole number"),
    (lambda plan: plan.pop("hash"), "hash", "is missing"),
    (lambda plan: plan.update(hash=7), "hash", "must be text"),
    (lambda plan: plan.update(extra=1), "extra", "is not known"),
    (
        lambda plan: plan.update(made_at="noon"),
        "made_at",
        "must be an ISO 8601 time with a time zone",
    ),
    (lambda plan: plan.update(made_at=7), "made_at", "must be text"),
    (lambda plan: plan.update(bbox="1,2,3,94"), "bbox.north", None),
    (lambda plan: plan.update(source=".."), "source", "is not a plain name"),
    (lambda plan: plan.update(first_date="2024-03-02"), "first_date", None),
    (lambda plan: plan.update(last_date="9999-12-31"), "last_date", None),
    (lambda plan: plan.update(reprocess="no"), "reprocess", "must be true or false"),
    (
        lambda plan: plan["lines"].pop(),
        "lines",
        "must have 3 lines, one for each date of the range",
    ),
    (lambda plan: plan.update(lines={}), "lines", "must be a list"),
    (
        lambda plan: plan["lines"].reverse(),
        "lines",
        "must have one line for each date of the range, in order",
    ),
    (lambda plan: plan["lines"].__setitem__(1, 7), "lines[1]", "must be an object"),
    (lambda plan: plan["lines"][1].pop("why"), "lines[1].why", "is missing"),
    (
        lambda plan: plan["lines"][1].update(action="drop"),
        "lines[1].action",
        "must be one of enqueue, requeue, reprocess, skip",
    ),
    (lambda plan: plan["lines"][1].update(why="x"), "lines[1].why", None),
    (lambda plan: plan["lines"][1].update(why=None), "lines[1].why", None),
    (lambda plan: plan["lines"][0].update(logical_date="x"), "lines[0].logical_date", None),
    (
        lambda plan: plan["lines"][1].update(action="reprocess", why=None),
        "lines",
        "reprocess a success, which was not requested",
    ),
    (lambda plan: plan["lines"][2].update(seen=[]), "lines[2].seen", "must be an object"),
    (lambda plan: plan["lines"][2]["seen"].pop("marked"), "lines[2].seen.marked", "is missing"),
    (
        lambda plan: plan["lines"][2]["seen"].update(status="done"),
        "lines[2].seen.status",
        "must be one of pending, success, failed",
    ),
    (
        lambda plan: plan["lines"][2]["seen"].update(attempt_count=-1),
        "lines[2].seen.attempt_count",
        "must be a whole number of at least 0",
    ),
    (
        lambda plan: plan["lines"][2]["seen"].update(current_run_id="a/b"),
        "lines[2].seen.current_run_id",
        "is not a plain name",
    ),
]


@pytest.mark.parametrize(("edit", "field", "problem"), EDITS, ids=range(len(EDITS)))
def test_invalid_plan_field_is_named(
    edit: Callable[[dict[str, Any]], object], field: str, problem: str | None
) -> None:
    error = expect_rejection(edit)
    assert error.field == f"plan.{field}"
    assert problem in {None, error.problem}


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{", b"\xff", PLAN.to_json()[:-9]])
def test_content_that_is_not_plan_is_rejected(content: bytes) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_plan(content)
    assert caught.value.field.startswith("plan")


def test_longest_plan_fits_size_limit() -> None:
    longest = "x" * 64
    line = json.loads(PLAN.to_json())["lines"][1]
    line["seen"].update(
        dict.fromkeys(("current_run_id", "active_run_id", "last_run_id"), longest),
        attempt_count=2**63,
    )
    line["why"] = "attempts_used_up"
    shape = SHAPE_CHARS_MAX
    assert len(json.dumps(line)) * 100_000 + 10_000 < PLAN_BYTES_MAX - shape == 64_000_000


@given(st.binary(max_size=60), st.integers(0, 10_000), st.integers(0, 60))
def test_damaged_plan_is_rejected_without_crash(noise: bytes, start: int, length: int) -> None:
    content = PLAN.to_json()
    start %= len(content)
    damaged = content[:start] + noise + content[start + length :]
    found = read_plan_or_error(damaged)
    assert isinstance(found, InvalidValueError) or found == PLAN


def read_plan_or_error(content: bytes) -> BackfillPlan | InvalidValueError:
    try:
        return parse_plan(content)
    except InvalidValueError as error:
        return error
