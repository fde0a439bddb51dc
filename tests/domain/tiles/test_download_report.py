"""Download reports: tallies that add up, and outcomes that follow from them."""

import math
from typing import Any

import pytest
from attrs import asdict, evolve, fields
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    DownloadBatchReport,
    DownloadOutcome,
    DownloadTally,
    TileFailures,
    determine_download_outcome,
)
from tileferry.domain.tiles.download import combine_reports

NAMES: dict[str, Any] = {"flight_id": "F-042", "request_hash": "0123456789abcdef"}
COUNTS = [item.name for item in fields(DownloadTally)]

counts = st.integers(0, 1000)


@st.composite
def tallies(draw: st.DrawFn) -> DownloadTally:
    downloaded = draw(counts)
    others = {
        name: draw(counts)
        for name in COUNTS
        if name not in {"tiles_downloaded", "tiles_downgraded"}
    }
    downgraded = draw(st.integers(0, downloaded))
    return DownloadTally(tiles_downloaded=downloaded, tiles_downgraded=downgraded, **others)


def make_report(tally: DownloadTally, requested: int, **more: Any) -> DownloadBatchReport:
    return DownloadBatchReport.from_tally(tally, tiles_requested=requested, **NAMES, **more)


@given(tallies(), tallies(), tallies())
def test_tally_addition_is_associative_and_commutative(
    a: DownloadTally, b: DownloadTally, c: DownloadTally
) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + DownloadTally() == a
    assert (a + b).tiles_accounted == a.tiles_accounted + b.tiles_accounted
    for name in COUNTS:
        assert getattr(a + b, name) == getattr(a, name) + getattr(b, name)


def test_tally_adds_only_to_tallies() -> None:
    one: Any = 1
    with pytest.raises(TypeError):
        DownloadTally() + one


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [-1, True, 1.0, None])
def test_invalid_count_is_rejected(name: str, value: Any) -> None:
    wrong: dict[str, Any] = {"tiles_downloaded": 5, name: value}
    with pytest.raises(InvalidValueError, match=name):
        DownloadTally(**wrong)


def test_more_downgraded_than_downloaded_is_rejected() -> None:
    assert DownloadTally(tiles_downloaded=3, tiles_downgraded=3).tiles_accounted == 3
    with pytest.raises(InvalidValueError, match="tiles_downgraded"):
        DownloadTally(tiles_downloaded=3, tiles_downgraded=4)


@given(tallies(), st.integers(0, 1000))
def test_report_outcome_follows_from_tally(tally: DownloadTally, rest: int) -> None:
    requested = tally.tiles_accounted + rest
    result = make_report(tally, requested, next_retry_at_s=12.5)
    assert result.tally == tally
    assert (result.tiles_requested, result.next_retry_at_s) == (requested, 12.5)
    if rest == tally.tiles_failed == 0:
        assert result.outcome is DownloadOutcome.SUCCESS
    elif tally.tiles_accounted:
        assert result.outcome is DownloadOutcome.PARTIAL
    else:
        assert result.outcome is DownloadOutcome.FAILURE
    assert make_report(tally, requested, aborted=True).outcome is DownloadOutcome.FAILURE


@given(tallies())
def test_more_tiles_accounted_than_requested_is_rejected(tally: DownloadTally) -> None:
    with pytest.raises(InvalidValueError, match="tiles requested"):
        make_report(tally + DownloadTally(tiles_failed=1), tally.tiles_accounted)


def test_ten_of_fifty_rejected_by_resolution_are_success() -> None:
    tally = DownloadTally(tiles_downloaded=40, tiles_rejected_resolution=10)
    result = make_report(tally, 50)
    assert (result.tiles_rejected_resolution, result.tiles_downloaded) == (10, 40)
    assert result.outcome is DownloadOutcome.SUCCESS


def test_five_rejected_by_freshness_are_success() -> None:
    result = make_report(DownloadTally(tiles_downloaded=15, tiles_rejected_freshness=5), 20)
    assert (result.tiles_rejected_freshness, result.outcome) == (5, DownloadOutcome.SUCCESS)


def test_downgraded_tiles_count_as_downloaded() -> None:
    result = make_report(DownloadTally(tiles_downloaded=10, tiles_downgraded=3), 10)
    assert (result.tiles_downgraded, result.tiles_downloaded) == (3, 10)
    assert result.outcome is DownloadOutcome.SUCCESS


def test_aborted_batch_is_failure_with_counts() -> None:
    result = make_report(DownloadTally(tiles_downloaded=30, retry_count=4), 100, aborted=True)
    assert (result.outcome, result.tiles_downloaded) == (DownloadOutcome.FAILURE, 30)
    assert result.retry_count == 4


def test_no_op_reports_only_journaled_tiles() -> None:
    result = DownloadBatchReport.for_no_op(tiles_journaled=100, **NAMES)
    assert asdict(result) == {
        "outcome": DownloadOutcome.IDEMPOTENT_NO_OP,
        **NAMES,
        **dict.fromkeys(COUNTS, 0),
        "tiles_requested": 0,
        "tiles_downloaded": 100,
        "next_retry_at_s": None,
        "tiles_reused": 0,
        "reasons": (),
        "failures": (),
    }


def test_reused_tiles_are_among_the_downloaded_ones() -> None:
    tally = DownloadTally(tiles_downloaded=10)
    assert make_report(tally, 10, tiles_reused=10).tiles_reused == 10
    with pytest.raises(InvalidValueError, match="reuses more tiles"):
        make_report(tally, 10, tiles_reused=11)


def test_batch_rejected_by_budget_is_failure() -> None:
    result = make_report(DownloadTally(), 100)
    assert (result.outcome, result.tiles_downloaded) == (DownloadOutcome.FAILURE, 0)


def test_area_without_tiles_is_success() -> None:
    assert determine_download_outcome(DownloadTally(), 0) is DownloadOutcome.SUCCESS


def test_failed_tile_makes_outcome_partial_and_absent_tile_does_not() -> None:
    failed = DownloadTally(tiles_downloaded=9, tiles_failed=1)
    assert determine_download_outcome(failed, 10) is DownloadOutcome.PARTIAL
    absent = DownloadTally(tiles_downloaded=9, tiles_missing=1)
    assert determine_download_outcome(absent, 10) is DownloadOutcome.SUCCESS


def test_outcomes_have_stable_values() -> None:
    assert list(DownloadOutcome) == ["success", "partial", "failure", "idempotent_no_op"]


@pytest.mark.parametrize("changed", [{"tiles_failed": 1}, {}])
def test_success_with_unfinished_tiles_is_rejected(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match="cannot be a success"):
        DownloadBatchReport(
            outcome=DownloadOutcome.SUCCESS,
            tiles_requested=2,
            tiles_downloaded=1,
            **NAMES,
            **changed,
        )


@pytest.mark.parametrize("name", [*COUNTS[1:], "tiles_requested"])
def test_no_op_with_nonzero_counts_is_rejected(name: str) -> None:
    done = DownloadBatchReport.for_no_op(tiles_journaled=100, **NAMES)
    changes: dict[str, Any] = {name: 1}
    with pytest.raises(InvalidValueError, match="no-op"):
        evolve(done, **changes)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("outcome", "success"),
        ("flight_id", "a/b"),
        ("request_hash", "0123456789ABCDEF"),
        ("request_hash", "0123"),
        ("request_hash", "0123456789abcdef\n"),
        ("request_hash", None),
        ("tiles_requested", -1),
        ("tiles_downloaded", -1),
        ("next_retry_at_s", -1.0),
        ("next_retry_at_s", math.nan),
        ("next_retry_at_s", math.inf),
    ],
)
def test_invalid_field_is_rejected_by_name(field: str, value: Any) -> None:
    good: dict[str, Any] = {"outcome": DownloadOutcome.FAILURE, "tiles_requested": 1, **NAMES}
    with pytest.raises(InvalidValueError, match=field):
        DownloadBatchReport(**{**good, field: value})


def test_partial_with_nothing_left_is_rejected() -> None:
    with pytest.raises(
        InvalidValueError, match="cannot be partial: every tile was stored, rejected or absent"
    ):
        DownloadBatchReport(
            outcome=DownloadOutcome.PARTIAL,
            flight_id="F1",
            request_hash="0" * 16,
            tiles_requested=5,
            tiles_downloaded=5,
        )


def test_batch_with_all_tiles_failed_is_failure() -> None:
    assert (
        determine_download_outcome(DownloadTally(tiles_failed=100), 100) is DownloadOutcome.FAILURE
    )
    some_absent = DownloadTally(tiles_missing=50, tiles_failed=50)
    assert determine_download_outcome(some_absent, 100) is DownloadOutcome.PARTIAL


def test_failures_keep_a_few_examples() -> None:
    group = TileFailures(reason="HTTP 503")
    for number in range(5):
        group = group.add(f"sat/14/{number}/0")
    assert (group.tiles, group.examples) == (5, ("sat/14/0/0", "sat/14/1/0", "sat/14/2/0"))


# Several areas


def make_area_report(outcome: DownloadOutcome, **fields: Any) -> DownloadBatchReport:
    return DownloadBatchReport(
        outcome=outcome, flight_id="F1", request_hash="0123456789abcdef", **fields
    )


DONE = make_area_report(DownloadOutcome.SUCCESS, tiles_requested=3, tiles_downloaded=3)
HALF = make_area_report(
    DownloadOutcome.PARTIAL,
    tiles_requested=4,
    tiles_downloaded=3,
    tiles_failed=1,
    tiles_reused=2,
    reasons=("it is so",),
    next_retry_at_s=9.0,
    failures=(TileFailures(reason="not found", tiles=1, examples=("a",)),),
)
NOTHING = make_area_report(DownloadOutcome.IDEMPOTENT_NO_OP, tiles_downloaded=5)


def test_reports_of_several_areas_add_up_to_the_worst_outcome() -> None:
    assert combine_reports([HALF]) is HALF
    both = combine_reports([DONE, HALF])
    assert both.outcome is DownloadOutcome.PARTIAL
    assert (both.tiles_requested, both.tiles_downloaded, both.tiles_failed) == (7, 6, 1)
    assert (both.tiles_reused, both.reasons) == (2, ("it is so",))
    assert both.next_retry_at_s == 9.0
    assert (both.tiles_reused, both.failures) == (2, HALF.failures)
    (group,) = combine_reports([HALF, HALF]).failures
    assert (group.tiles, group.examples) == (2, ("a", "a"))
    assert both.request_hash != DONE.request_hash
    assert combine_reports([DONE, DONE]).outcome is DownloadOutcome.SUCCESS
    assert combine_reports([DONE, HALF], aborted=True).outcome is DownloadOutcome.FAILURE


def test_complete_areas_add_nothing_unless_all_are() -> None:
    assert combine_reports([NOTHING, DONE]).tally == DONE.tally
    assert combine_reports([NOTHING, DONE]).outcome is DownloadOutcome.SUCCESS
    all_done = combine_reports([NOTHING, NOTHING])
    assert (all_done.outcome, all_done.tiles_downloaded) == (DownloadOutcome.IDEMPOTENT_NO_OP, 10)
