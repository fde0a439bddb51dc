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
    download_outcome,
)

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


def report(tally: DownloadTally, requested: int, **more: Any) -> DownloadBatchReport:
    return DownloadBatchReport.from_tally(tally, tiles_requested=requested, **NAMES, **more)


@given(tallies(), tallies(), tallies())
def test_tallies_add_up_in_any_order_and_grouping(
    a: DownloadTally, b: DownloadTally, c: DownloadTally
) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + DownloadTally() == a
    assert (a + b).tiles_accounted == a.tiles_accounted + b.tiles_accounted
    for name in COUNTS:
        assert getattr(a + b, name) == getattr(a, name) + getattr(b, name)


def test_a_tally_adds_to_tallies_only() -> None:
    one: Any = 1
    with pytest.raises(TypeError):
        DownloadTally() + one


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [-1, True, 1.0, None])
def test_an_impossible_count_is_refused(name: str, value: Any) -> None:
    wrong: dict[str, Any] = {"tiles_downloaded": 5, name: value}
    with pytest.raises(InvalidValueError, match=name):
        DownloadTally(**wrong)


def test_more_downgraded_than_downloaded_is_refused() -> None:
    assert DownloadTally(tiles_downloaded=3, tiles_downgraded=3).tiles_accounted == 3
    with pytest.raises(InvalidValueError, match="tiles_downgraded"):
        DownloadTally(tiles_downloaded=3, tiles_downgraded=4)


@given(tallies(), st.integers(0, 1000))
def test_a_report_keeps_the_tally_and_its_outcome_follows(tally: DownloadTally, rest: int) -> None:
    requested = tally.tiles_accounted + rest
    result = report(tally, requested, next_retry_at_s=12.5)
    assert result.tally == tally
    assert (result.tiles_requested, result.next_retry_at_s) == (requested, 12.5)
    if rest == tally.tiles_failed == tally.tiles_missing == 0:
        assert result.outcome is DownloadOutcome.SUCCESS
    elif tally.tiles_accounted:
        assert result.outcome is DownloadOutcome.PARTIAL
    else:
        assert result.outcome is DownloadOutcome.FAILURE
    assert report(tally, requested, aborted=True).outcome is DownloadOutcome.FAILURE


@given(tallies())
def test_more_answers_than_requests_are_refused(tally: DownloadTally) -> None:
    with pytest.raises(InvalidValueError, match="tiles requested"):
        report(tally + DownloadTally(tiles_failed=1), tally.tiles_accounted)


def test_spec5_ac1_a_hundred_good_tiles_are_a_success() -> None:
    result = report(DownloadTally(tiles_downloaded=100), 100)
    assert (result.tiles_downloaded, result.outcome) == (100, DownloadOutcome.SUCCESS)


def test_spec5_ac2_ten_of_fifty_turned_down_by_resolution_are_a_success() -> None:
    tally = DownloadTally(tiles_downloaded=40, tiles_rejected_resolution=10)
    result = report(tally, 50)
    assert (result.tiles_rejected_resolution, result.tiles_downloaded) == (10, 40)
    assert result.outcome is DownloadOutcome.SUCCESS


def test_spec5_ac3_five_turned_down_by_freshness_do_not_fail_the_rest() -> None:
    result = report(DownloadTally(tiles_downloaded=15, tiles_rejected_freshness=5), 20)
    assert (result.tiles_rejected_freshness, result.outcome) == (5, DownloadOutcome.SUCCESS)


def test_spec5_ac4_three_downgraded_tiles_are_downloaded_ones() -> None:
    result = report(DownloadTally(tiles_downloaded=10, tiles_downgraded=3), 10)
    assert (result.tiles_downgraded, result.tiles_downloaded) == (3, 10)
    assert result.outcome is DownloadOutcome.SUCCESS


def test_spec5_ac6_an_aborted_run_is_a_failure_that_shows_what_it_wrote() -> None:
    result = report(DownloadTally(tiles_downloaded=30, retry_count=4), 100, aborted=True)
    assert (result.outcome, result.tiles_downloaded) == (DownloadOutcome.FAILURE, 30)
    assert result.retry_count == 4


def test_spec5_ac8_a_repeat_reports_the_hundred_journaled_tiles_and_zero_else() -> None:
    result = DownloadBatchReport.no_op(tiles_journaled=100, **NAMES)
    assert asdict(result) == {
        "outcome": DownloadOutcome.IDEMPOTENT_NO_OP,
        **NAMES,
        **dict.fromkeys(COUNTS, 0),
        "tiles_requested": 0,
        "tiles_downloaded": 100,
        "next_retry_at_s": None,
    }


def test_spec5_ac9_a_batch_refused_by_the_budget_is_a_failure() -> None:
    result = report(DownloadTally(), 100)
    assert (result.outcome, result.tiles_downloaded) == (DownloadOutcome.FAILURE, 0)


def test_spec5_ac12_thirty_journaled_and_seventy_new_are_a_hundred() -> None:
    tally = DownloadTally(tiles_downloaded=30) + DownloadTally(tiles_downloaded=70)
    result = report(tally, 100)
    assert (result.tiles_downloaded, result.outcome) == (100, DownloadOutcome.SUCCESS)


def test_an_area_without_tiles_is_a_success() -> None:
    assert download_outcome(DownloadTally(), 0) is DownloadOutcome.SUCCESS


@pytest.mark.parametrize("name", ["tiles_missing", "tiles_failed"])
def test_a_missing_or_failed_tile_makes_it_partial(name: str) -> None:
    tally = DownloadTally(tiles_downloaded=9) + DownloadTally(**{name: 1})
    assert download_outcome(tally, 10) is DownloadOutcome.PARTIAL


def test_outcomes_have_stable_values() -> None:
    assert list(DownloadOutcome) == ["success", "partial", "failure", "idempotent_no_op"]


@pytest.mark.parametrize("changed", [{"tiles_failed": 1}, {"tiles_missing": 1}, {}])
def test_a_success_with_loose_ends_cannot_be_built(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match="is no success"):
        DownloadBatchReport(
            outcome=DownloadOutcome.SUCCESS,
            tiles_requested=2,
            tiles_downloaded=1,
            **NAMES,
            **changed,
        )


@pytest.mark.parametrize("name", [*COUNTS[1:], "tiles_requested"])
def test_a_no_op_that_did_something_cannot_be_built(name: str) -> None:
    done = DownloadBatchReport.no_op(tiles_journaled=100, **NAMES)
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
def test_a_bad_field_is_named(field: str, value: Any) -> None:
    good: dict[str, Any] = {"outcome": DownloadOutcome.FAILURE, "tiles_requested": 1, **NAMES}
    with pytest.raises(InvalidValueError, match=field):
        DownloadBatchReport(**{**good, field: value})


def test_a_batch_with_nothing_left_is_not_partial() -> None:
    with pytest.raises(InvalidValueError, match="is more than partial: nothing is left to do"):
        DownloadBatchReport(
            outcome=DownloadOutcome.PARTIAL,
            flight_id="F1",
            request_hash="0" * 16,
            tiles_requested=5,
            tiles_downloaded=5,
        )


def test_a_batch_of_which_every_tile_failed_is_a_failure() -> None:
    assert download_outcome(DownloadTally(tiles_failed=100), 100) is DownloadOutcome.FAILURE
    assert download_outcome(DownloadTally(tiles_missing=100), 100) is DownloadOutcome.PARTIAL
