"""Upload reports, and how the passes of one call become one of them."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError, MisuseError
from tileferry.domain.tiles import (
    PerTileStatus,
    TileId,
    TileUploadStatus,
    UploadBatchReport,
    UploadOutcome,
    UploadPasses,
    UploadRequest,
    build_damaged_attempt,
    compute_next_retry_hint,
)

FLIGHT = "F-042"
ACCEPTED, DUPLICATE, REJECTED, UNREADABLE = TileUploadStatus
SUCCESS, PARTIAL, FAILURE = UploadOutcome


def combine_passes(
    passes: Iterable[UploadBatchReport], *, next_retry_at_s: float | None = None
) -> UploadBatchReport:
    """Return the report of a call that consisted of these passes, in their order."""
    call = UploadPasses()
    for report in passes:
        call.add(report)
    return call.build_report(next_retry_at_s=next_retry_at_s)


def status(x: int, answer: TileUploadStatus) -> PerTileStatus:
    reason = "bad blob" if answer is REJECTED else None
    return PerTileStatus(
        tile_id=TileId(source="cam", zoom=18, x=x, y=0), status=answer, reason=reason
    )


def make_report(answers: dict[int, TileUploadStatus]) -> UploadBatchReport:
    return UploadBatchReport.from_statuses(FLIGHT, [status(x, a) for x, a in answers.items()])


def make_failed_report(answers: dict[int, TileUploadStatus] | None = None) -> UploadBatchReport:
    entries = [status(x, answer) for x, answer in (answers or {}).items()]
    return UploadBatchReport(flight_id=FLIGHT, outcome=FAILURE, per_tile_status=entries)


answers = st.dictionaries(st.integers(0, 4), st.sampled_from(TileUploadStatus), max_size=4)


def with_giveups(report: UploadBatchReport, given_up: int) -> UploadBatchReport:
    return report if report.outcome is SUCCESS else evolve(report, tiles_given_up=given_up)


reports = st.builds(
    with_giveups,
    st.builds(make_report, answers) | st.builds(make_failed_report, answers),
    st.integers(0, 3),
)


# One pass


@given(answers)
def test_rejected_or_unreadable_tile_makes_pass_partial(
    given_answers: dict[int, TileUploadStatus],
) -> None:
    report = make_report(given_answers)
    rejected, unreadable = map(list(given_answers.values()).count, (REJECTED, UNREADABLE))
    assert report.outcome is (PARTIAL if rejected or unreadable else SUCCESS)
    assert (report.tiles_rejected, report.tiles_unreadable) == (rejected, unreadable)
    assert report.tiles_acknowledged == len(given_answers) - rejected - unreadable
    assert (report.retry_count, report.tiles_given_up, report.next_retry_at_s) == (0, 0, None)


def test_pass_with_all_tiles_rejected_is_partial() -> None:
    assert make_report({1: REJECTED, 2: REJECTED}).outcome is PARTIAL


def test_nothing_to_upload_is_success() -> None:
    assert make_report({}).outcome is SUCCESS


def test_duplicate_counts_as_acknowledged() -> None:
    assert [answer.acknowledged for answer in TileUploadStatus] == [True, True, False, False]
    assert list(TileUploadStatus) == ["accepted", "duplicate", "rejected", "unreadable"]
    assert list(UploadOutcome) == ["success", "partial", "failure"]


def test_success_with_rejected_tile_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match="1 tiles were rejected"):
        evolve(make_report({1: REJECTED, 2: ACCEPTED}), outcome=SUCCESS)


def test_duplicate_tile_in_report_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match="contains a tile twice"):
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
def test_invalid_report_field_is_rejected_by_name(field: str, value: Any) -> None:
    changes: dict[str, Any] = {field: value}
    with pytest.raises(InvalidValueError, match=f"UploadBatchReport.{field}"):
        evolve(make_report({}), **changes)


@pytest.mark.parametrize(
    ("field", "value"), [("tile_id", "cam/1/1/1"), ("status", "accepted"), ("reason", 5)]
)
def test_invalid_tile_status_is_rejected(field: str, value: Any) -> None:
    changes: dict[str, Any] = {field: value}
    with pytest.raises(InvalidValueError, match=f"PerTileStatus.{field}"):
        evolve(status(1, ACCEPTED), **changes)


def test_upload_request_requires_valid_flight_id() -> None:
    assert UploadRequest(flight_id=FLIGHT).flight_id == FLIGHT
    with pytest.raises(InvalidValueError, match="flight_id"):
        UploadRequest(flight_id="a b")


# Several passes


@given(reports)
def test_single_pass_is_reported_unchanged(report: UploadBatchReport) -> None:
    assert combine_passes([report]) == report


def test_three_of_ten_rejected_then_accepted_is_success() -> None:
    first = make_report({x: REJECTED if x < 3 else ACCEPTED for x in range(10)})
    second = make_report(dict.fromkeys(range(3), ACCEPTED))
    assert (first.tiles_rejected, len(first.per_tile_status)) == (3, 10)
    call = combine_passes([first, second])
    assert (call.outcome, call.retry_count) == (SUCCESS, 1)
    assert (call.tiles_acknowledged, call.tiles_rejected) == (10, 0)


def test_given_up_tile_makes_call_partial() -> None:
    first = evolve(make_report({1: REJECTED, 2: REJECTED}), tiles_given_up=1)
    call = combine_passes([first, make_report({2: ACCEPTED})])
    assert (call.outcome, call.tiles_given_up, call.tiles_rejected) == (PARTIAL, 1, 1)


def test_tile_rejected_in_four_passes_is_partial_after_3_retries() -> None:
    now_s, cap_s = 1000.0, 60.0
    passes = [make_report({7: REJECTED})] * 4
    call = combine_passes(passes, next_retry_at_s=compute_next_retry_hint(now_s, cap_s))
    assert (call.outcome, call.retry_count, call.next_retry_at_s) == (PARTIAL, 3, 1060.0)
    assert call.tiles_rejected == 1


def test_second_pass_delivers_remaining_twenty() -> None:
    first = make_report({x: ACCEPTED if x < 30 else REJECTED for x in range(50)})
    assert (first.tiles_acknowledged, first.tiles_rejected) == (30, 20)
    second = make_report(dict.fromkeys(range(30, 50), ACCEPTED))
    assert (second.tiles_acknowledged, second.outcome) == (20, SUCCESS)
    both = combine_passes([first, second])
    assert (both.tiles_acknowledged, both.outcome) == (50, SUCCESS)


@given(st.lists(reports, min_size=2, max_size=4))
def test_call_outcome_follows_from_tiles_and_last_pass(
    passes: list[UploadBatchReport],
) -> None:
    call = combine_passes(passes)
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


def test_success_with_given_up_tiles_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match="2 tiles were rejected, unreadable or given up"):
        evolve(make_report({1: ACCEPTED}), tiles_given_up=2)


@pytest.mark.parametrize(
    ("answers", "count", "outcome"),
    [
        ({1: ACCEPTED}, 0, SUCCESS),
        ({1: ACCEPTED}, 2, PARTIAL),
        ({}, 1, PARTIAL),
        ({1: REJECTED}, 1, PARTIAL),
    ],
)
def test_flight_with_giveups_is_not_a_success(
    answers: dict[int, TileUploadStatus], count: int, outcome: UploadOutcome
) -> None:
    report = make_report(answers).with_giveups(count)
    assert (report.outcome, report.undelivered_giveups) == (outcome, count)


def test_failed_upload_with_giveups_stays_failed() -> None:
    assert make_failed_report().with_giveups(2).outcome is FAILURE


@pytest.mark.parametrize(
    ("answer", "attempt", "is_charged"),
    [
        (ACCEPTED, None, False),
        (REJECTED, None, True),
        (REJECTED, "key", True),
        (UNREADABLE, None, False),
        (UNREADABLE, "damaged/0", True),
    ],
)
def test_rejected_and_damaged_tiles_are_charged(
    answer: TileUploadStatus, attempt: str | None, *, is_charged: bool
) -> None:
    assert evolve(status(1, answer), attempt=attempt).is_charged is is_charged


@given(attempts=st.integers(0, 20), limit=st.integers(1, 10))
def test_damaged_attempts_have_ids_of_their_own_below_the_limit(attempts: int, limit: int) -> None:
    this, after = (build_damaged_attempt(count, limit) for count in (attempts, attempts + 1))
    assert (this != after) is (attempts + 1 < limit)


@pytest.mark.parametrize("entries", [None, 5, "text", [1]])
def test_invalid_per_tile_status_is_rejected(entries: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"UploadBatchReport\.per_tile_status: must be"):
        UploadBatchReport(flight_id=FLIGHT, outcome=FAILURE, per_tile_status=entries)


def test_provider_reason_is_escaped() -> None:
    assert evolve(status(1, REJECTED), reason="bad\n\ud800").reason == "bad\\n\\ud800"


def test_acknowledged_tile_stays_acknowledged() -> None:
    call = combine_passes([make_report({1: ACCEPTED, 2: REJECTED}), make_report({1: REJECTED})])
    assert (call.tiles_acknowledged, call.tiles_rejected, call.outcome) == (1, 1, PARTIAL)


def test_failed_pass_keeps_delivered_tiles() -> None:
    first = make_report({1: ACCEPTED, 2: REJECTED})
    assert combine_passes([first, make_failed_report()]).outcome is PARTIAL
    assert combine_passes([make_report({2: REJECTED}), make_failed_report()]).outcome is FAILURE
    assert combine_passes([make_failed_report(), make_report({1: ACCEPTED})]).outcome is SUCCESS


def test_latest_rejection_reason_is_kept() -> None:
    later = evolve(status(1, REJECTED), reason="signature too old")
    second = UploadBatchReport.from_statuses(FLIGHT, [later])
    assert combine_passes([make_report({1: REJECTED}), second]).per_tile_status == (later,)


def test_retries_within_pass_are_counted() -> None:
    first = evolve(make_report({1: REJECTED}), retry_count=2)
    assert combine_passes([first, make_report({1: ACCEPTED})]).retry_count == 3


def test_retry_hint_is_taken_from_last_pass_unless_given() -> None:
    first, last = (
        make_report({1: REJECTED}),
        evolve(make_report({1: REJECTED}), next_retry_at_s=9.0),
    )
    assert combine_passes([first, last]).next_retry_at_s == 9.0
    assert combine_passes([last, first]).next_retry_at_s is None
    assert combine_passes([first, last], next_retry_at_s=5.0).next_retry_at_s == 5.0
    assert combine_passes([last], next_retry_at_s=0.0).next_retry_at_s == 0.0


def test_report_is_available_between_passes() -> None:
    call = UploadPasses()
    call.add(make_report({1: REJECTED, 2: ACCEPTED}))
    assert (call.build_report().outcome, call.build_report().retry_count) == (PARTIAL, 0)
    call.add(make_report({1: DUPLICATE}))
    assert (call.build_report().outcome, call.build_report().retry_count) == (SUCCESS, 1)


def test_passes_can_be_streamed() -> None:
    def stream() -> Iterator[UploadBatchReport]:
        for x in range(100):
            yield make_report({x: ACCEPTED})

    assert combine_passes(stream()).tiles_acknowledged == 100


def test_call_without_passes_is_rejected() -> None:
    with pytest.raises(MisuseError, match="there is no pass to report"):
        combine_passes([])


def test_passes_of_different_flights_are_rejected() -> None:
    other = evolve(make_report({}), flight_id="F-043")
    with pytest.raises(MisuseError, match="F-042"):
        combine_passes([make_report({}), other])


@given(st.floats(0, 1e12), st.floats(0, 1e6))
def test_retry_hint_is_one_backoff_cap_from_now(now_s: float, cap_s: float) -> None:
    assert compute_next_retry_hint(now_s, cap_s) == now_s + cap_s


@pytest.mark.parametrize("field", ["now_s", "backoff_cap_s"])
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_retry_hint_from_invalid_numbers_is_rejected(field: str, value: float) -> None:
    numbers = {"now_s": 1.0, "backoff_cap_s": 1.0, field: value}
    with pytest.raises(InvalidValueError) as caught:
        compute_next_retry_hint(**numbers)
    assert caught.value.field == field
