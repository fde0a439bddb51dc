"""Upload reports, and how the passes of one call become one of them."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import nominal_delay, upload_policy
from tileferry.domain.tiles import (
    PerTileStatus,
    TileId,
    TileUploadStatus,
    UploadBatchReport,
    UploadOutcome,
    UploadPasses,
    UploadRequest,
    next_retry_hint,
)

FLIGHT = "F-042"
ACCEPTED, DUPLICATE, REJECTED, UNREADABLE = TileUploadStatus
SUCCESS, PARTIAL, FAILURE = UploadOutcome


def added_up(
    passes: Iterable[UploadBatchReport], *, next_retry_at_s: float | None = None
) -> UploadBatchReport:
    """Return the report of a call that consisted of these passes, in their order."""
    call = UploadPasses()
    for report in passes:
        call.add(report)
    return call.report(next_retry_at_s=next_retry_at_s)


def status(x: int, answer: TileUploadStatus) -> PerTileStatus:
    reason = "bad blob" if answer is REJECTED else None
    return PerTileStatus(
        tile_id=TileId(source="cam", zoom=18, x=x, y=0), status=answer, reason=reason
    )


def carried_out(answers: dict[int, TileUploadStatus]) -> UploadBatchReport:
    return UploadBatchReport.from_statuses(FLIGHT, [status(x, a) for x, a in answers.items()])


def failed(answers: dict[int, TileUploadStatus] | None = None) -> UploadBatchReport:
    entries = [status(x, answer) for x, answer in (answers or {}).items()]
    return UploadBatchReport(flight_id=FLIGHT, outcome=FAILURE, per_tile_status=entries)


answers = st.dictionaries(st.integers(0, 4), st.sampled_from(TileUploadStatus), max_size=4)


def with_giveups(report: UploadBatchReport, given_up: int) -> UploadBatchReport:
    return report if report.outcome is SUCCESS else evolve(report, tiles_given_up=given_up)


reports = st.builds(
    with_giveups, st.builds(carried_out, answers) | st.builds(failed, answers), st.integers(0, 3)
)


# One pass


@given(answers)
def test_any_tile_that_is_left_makes_a_pass_partial(
    given_answers: dict[int, TileUploadStatus],
) -> None:
    report = carried_out(given_answers)
    rejected, unreadable = map(list(given_answers.values()).count, (REJECTED, UNREADABLE))
    assert report.outcome is (PARTIAL if rejected or unreadable else SUCCESS)
    assert (report.tiles_rejected, report.tiles_unreadable) == (rejected, unreadable)
    assert report.tiles_acknowledged == len(given_answers) - rejected - unreadable
    assert (report.retry_count, report.tiles_given_up, report.next_retry_at_s) == (0, 0, None)


def test_a_pass_in_which_all_were_rejected_is_partial_too() -> None:
    assert carried_out({1: REJECTED, 2: REJECTED}).outcome is PARTIAL


def test_nothing_to_upload_is_a_success() -> None:
    assert carried_out({}).outcome is SUCCESS


def test_a_duplicate_is_acknowledged() -> None:
    assert [answer.acknowledged for answer in TileUploadStatus] == [True, True, False, False]
    assert list(TileUploadStatus) == ["accepted", "duplicate", "rejected", "unreadable"]
    assert list(UploadOutcome) == ["success", "partial", "failure"]


def test_a_success_with_a_rejected_tile_cannot_be_built() -> None:
    with pytest.raises(InvalidValueError, match="1 tiles were rejected"):
        evolve(carried_out({1: REJECTED, 2: ACCEPTED}), outcome=SUCCESS)


def test_a_tile_that_comes_twice_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="names a tile twice"):
        UploadBatchReport.from_statuses(FLIGHT, [status(1, ACCEPTED), status(1, REJECTED)])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("flight_id", "../x"),
        ("outcome", "success"),
        ("tiles_given_up", -1),
        ("retry_count", -1),
        ("next_retry_at_s", math.nan),
        ("next_retry_at_s", -1.0),
    ],
)
def test_a_bad_field_of_a_report_is_named(field: str, value: Any) -> None:
    changes: dict[str, Any] = {field: value}
    with pytest.raises(InvalidValueError, match=f"UploadBatchReport.{field}"):
        evolve(carried_out({}), **changes)


@pytest.mark.parametrize(
    ("field", "value"), [("tile_id", "cam/1/1/1"), ("status", "accepted"), ("reason", 5)]
)
def test_a_bad_answer_is_refused(field: str, value: Any) -> None:
    changes: dict[str, Any] = {field: value}
    with pytest.raises(InvalidValueError, match=f"PerTileStatus.{field}"):
        evolve(status(1, ACCEPTED), **changes)


def test_a_request_names_its_flight() -> None:
    assert UploadRequest(flight_id=FLIGHT).flight_id == FLIGHT
    with pytest.raises(InvalidValueError, match="flight_id"):
        UploadRequest(flight_id="a b")


# Several passes


@given(reports)
def test_spec1_ac1_a_single_pass_is_reported_unchanged(report: UploadBatchReport) -> None:
    assert added_up([report]) == report


def test_spec1_ac2_three_of_ten_rejected_then_success_is_a_success_with_one_retry() -> None:
    first = carried_out({x: REJECTED if x < 3 else ACCEPTED for x in range(10)})
    second = carried_out(dict.fromkeys(range(3), ACCEPTED))
    assert (first.tiles_rejected, len(first.per_tile_status)) == (3, 10)
    call = added_up([first, second])
    assert (call.outcome, call.retry_count) == (SUCCESS, 1)
    assert (call.tiles_acknowledged, call.tiles_rejected) == (10, 0)


def test_spec1_ac3_a_tile_given_up_on_the_way_leaves_the_call_partial() -> None:
    first = evolve(carried_out({1: REJECTED, 2: REJECTED}), tiles_given_up=1)
    call = added_up([first, carried_out({2: ACCEPTED})])
    assert (call.outcome, call.tiles_given_up, call.tiles_rejected) == (PARTIAL, 1, 1)


def test_spec1_ac4_the_same_tile_rejected_in_four_passes_is_partial_after_three_retries() -> None:
    now_s, cap_s = 1000.0, 60.0
    passes = [carried_out({7: REJECTED})] * 4
    call = added_up(passes, next_retry_at_s=next_retry_hint(now_s, cap_s))
    assert (call.outcome, call.retry_count, call.next_retry_at_s) == (PARTIAL, 3, 1060.0)
    assert call.tiles_rejected == 1


def test_spec1_ac4_the_three_retries_wait_2_4_and_8_seconds() -> None:
    policy = upload_policy(3, 2.0, 60.0)
    assert [nominal_delay(policy, attempt) for attempt in (1, 2, 3)] == [2.0, 4.0, 8.0]


def test_spec1_ac13_thirty_delivered_then_the_other_twenty() -> None:
    first = carried_out({x: ACCEPTED if x < 30 else REJECTED for x in range(50)})
    assert (first.tiles_acknowledged, first.tiles_rejected) == (30, 20)
    second = carried_out(dict.fromkeys(range(30, 50), ACCEPTED))
    assert (second.tiles_acknowledged, second.outcome) == (20, SUCCESS)
    both = added_up([first, second])
    assert (both.tiles_acknowledged, both.outcome) == (50, SUCCESS)


@given(st.lists(reports, min_size=2, max_size=4))
def test_each_tile_counts_once_and_the_call_is_no_better_than_its_tiles_and_last_pass(
    passes: list[UploadBatchReport],
) -> None:
    call = added_up(passes)
    said: dict[TileId, list[PerTileStatus]] = {}
    for report in passes:
        for entry in report.per_tile_status:
            said.setdefault(entry.tile_id, []).append(entry)
    assert {entry.tile_id for entry in call.per_tile_status} == set(said)
    for entry in call.per_tile_status:
        history = said[entry.tile_id]
        assert entry == ([e for e in history if e.status.acknowledged] or history)[-1]
    assert call.retry_count == len(passes) - 1
    assert call.tiles_given_up == sum(report.tiles_given_up for report in passes)

    last = passes[-1].outcome
    if call.outcome is SUCCESS:
        assert last is SUCCESS
        assert call.tiles_rejected == call.tiles_unreadable == call.tiles_given_up == 0
    elif call.outcome is FAILURE:
        assert last is FAILURE
        assert call.tiles_acknowledged == 0
    else:
        left = call.tiles_rejected + call.tiles_unreadable + call.tiles_given_up
        assert left or last is not SUCCESS


def test_a_success_leaves_nothing_given_up() -> None:
    with pytest.raises(InvalidValueError, match="2 tiles were rejected, unreadable or given up"):
        evolve(carried_out({1: ACCEPTED}), tiles_given_up=2)


@pytest.mark.parametrize("entries", [None, 5, "text", [1]])
def test_entries_that_are_none_are_refused(entries: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"UploadBatchReport\.per_tile_status: must be"):
        UploadBatchReport(flight_id=FLIGHT, outcome=FAILURE, per_tile_status=entries)


def test_what_a_provider_says_of_a_tile_is_made_safe() -> None:
    assert evolve(status(1, REJECTED), reason="bad\n\ud800").reason == "bad\\n\\ud800"


def test_what_was_acknowledged_once_stays_so() -> None:
    call = added_up([carried_out({1: ACCEPTED, 2: REJECTED}), carried_out({1: REJECTED})])
    assert (call.tiles_acknowledged, call.tiles_rejected, call.outcome) == (1, 1, PARTIAL)


def test_a_failed_pass_does_not_undo_what_was_delivered() -> None:
    first = carried_out({1: ACCEPTED, 2: REJECTED})
    assert added_up([first, failed()]).outcome is PARTIAL
    assert added_up([carried_out({2: REJECTED}), failed()]).outcome is FAILURE
    assert added_up([failed(), carried_out({1: ACCEPTED})]).outcome is SUCCESS


def test_the_latest_reason_for_a_rejection_stands() -> None:
    later = evolve(status(1, REJECTED), reason="signature too old")
    second = UploadBatchReport.from_statuses(FLIGHT, [later])
    assert added_up([carried_out({1: REJECTED}), second]).per_tile_status == (later,)


def test_the_retries_that_a_pass_made_itself_count() -> None:
    first = evolve(carried_out({1: REJECTED}), retry_count=2)
    assert added_up([first, carried_out({1: ACCEPTED})]).retry_count == 3


def test_the_last_pass_s_hint_stands_unless_another_is_given() -> None:
    first, last = (
        carried_out({1: REJECTED}),
        evolve(carried_out({1: REJECTED}), next_retry_at_s=9.0),
    )
    assert added_up([first, last]).next_retry_at_s == 9.0
    assert added_up([last, first]).next_retry_at_s is None
    assert added_up([first, last], next_retry_at_s=5.0).next_retry_at_s == 5.0
    assert added_up([last], next_retry_at_s=0.0).next_retry_at_s == 0.0


def test_passes_can_be_added_as_they_come_and_reported_in_between() -> None:
    call = UploadPasses()
    call.add(carried_out({1: REJECTED, 2: ACCEPTED}))
    assert (call.report().outcome, call.report().retry_count) == (PARTIAL, 0)
    call.add(carried_out({1: DUPLICATE}))
    assert (call.report().outcome, call.report().retry_count) == (SUCCESS, 1)


def test_passes_are_read_once_and_one_at_a_time() -> None:
    def stream() -> Iterator[UploadBatchReport]:
        for x in range(100):
            yield carried_out({x: ACCEPTED})

    assert added_up(stream()).tiles_acknowledged == 100


def test_a_call_without_passes_has_no_report() -> None:
    with pytest.raises(InvalidValueError, match="one pass at least"):
        added_up([])


def test_passes_of_two_flights_do_not_mix() -> None:
    other = evolve(carried_out({}), flight_id="F-043")
    with pytest.raises(InvalidValueError, match="F-042"):
        added_up([carried_out({}), other])


@given(st.floats(0, 1e12), st.floats(0, 1e6))
def test_the_hint_is_one_cap_from_now(now_s: float, cap_s: float) -> None:
    assert next_retry_hint(now_s, cap_s) == now_s + cap_s


@pytest.mark.parametrize("field", ["now_s", "backoff_cap_s"])
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_a_hint_from_impossible_numbers_is_refused(field: str, value: float) -> None:
    numbers = {"now_s": 1.0, "backoff_cap_s": 1.0, field: value}
    with pytest.raises(InvalidValueError) as caught:
        next_retry_hint(**numbers)
    assert caught.value.field == field
