"""The pace of requests: down by a factor on overload, up by steps with successes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import HoldRule, Pace
from tileferry.domain.retry.pace import DROP_FACTOR, LEVEL_MIN

FULL = Pace(concurrency_max=8)


def drop(pace: Pace, count: int = 1) -> Pace:
    for _ in range(count):
        pace = pace.slow_down("429", started_s=pace.dropped_s, now_s=pace.dropped_s + 1)
    return pace


def test_pace_starts_at_full_speed() -> None:
    assert (FULL.concurrency, FULL.spacing_s, FULL.cause) == (8, 0.0, "")
    assert FULL.is_full
    assert FULL.speed_up() is FULL


def test_overload_drops_concurrency_and_names_the_cause() -> None:
    slower = FULL.slow_down("503", started_s=5.0, now_s=6.0)
    assert (slower.concurrency, slower.cause, slower.dropped_s) == (5, "503", 6.0)
    assert slower.level == 8 * DROP_FACTOR
    assert slower.is_slower_than(FULL)
    assert not FULL.is_slower_than(slower)


def test_requests_that_fail_together_count_once() -> None:
    slower = FULL.slow_down("429", started_s=5.0, now_s=6.0)
    assert slower.slow_down("429", started_s=5.9, now_s=6.1) is slower
    assert slower.slow_down("429", started_s=6.0, now_s=6.1).level < slower.level


def test_below_one_request_at_a_time_requests_start_further_apart() -> None:
    slow = drop(FULL, 7)
    assert (slow.concurrency, slow.level < 1, slow.spacing_s > 0) == (1, True, True)
    slowest = drop(slow, 100)
    assert slowest.level == LEVEL_MIN
    assert slowest.spacing_s == pytest.approx(0.9)


def test_one_round_of_successes_adds_one_request() -> None:
    pace = Pace(concurrency_max=8, level=4.0, cause="429")
    for _ in range(5):
        pace = pace.speed_up()
    assert (pace.concurrency, pace.cause) == (5, "429")


def test_pace_recovers_completely_and_forgets_the_cause() -> None:
    pace, successes = drop(FULL, 100), 0
    while not pace.is_full:
        pace, successes = pace.speed_up(), successes + 1
    assert (pace.concurrency, pace.cause) == (8, "")
    assert successes < 50


@pytest.mark.parametrize(
    "fields", [{"concurrency_max": 0}, {"level": 0.01}, {"level": 8.1}, {"dropped_s": -1}]
)
def test_invalid_pace_is_rejected(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match=f"Pace.{next(iter(fields))}"):
        Pace(**{"concurrency_max": 8, **fields})


def test_rules_have_labels() -> None:
    assert [rule.label for rule in HoldRule] == ["source gate", "pace"]


@given(
    st.integers(1, 64),
    st.lists(st.tuples(st.booleans(), st.floats(0, 10), st.floats(0, 10)), max_size=200),
)
def test_pace_stays_within_its_bounds(
    concurrency_max: int, outcomes: list[tuple[bool, float, float]]
) -> None:
    pace, now_s = Pace(concurrency_max=concurrency_max), 0.0
    for is_success, took_s, passed_s in outcomes:
        now_s += passed_s
        before = pace
        if is_success:
            pace = pace.speed_up()
            assert pace.level >= before.level
            assert pace.level - before.level <= 1
        else:
            pace = pace.slow_down("429", started_s=max(0.0, now_s - took_s), now_s=now_s)
            assert pace.level in {before.level, max(LEVEL_MIN, before.level * DROP_FACTOR)}
            assert pace.dropped_s >= before.dropped_s
        assert 1 <= pace.concurrency <= concurrency_max
        assert 0 <= pace.spacing_s <= 0.91
        assert (pace.spacing_s == 0) == (pace.level >= 1)
        assert pace.is_full == (pace.cause == "")
