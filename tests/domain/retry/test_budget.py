"""The retry budget: during an outage retries stay a fraction of the load; afterwards it heals."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import RetryBudget
from tileferry.domain.retry.budget import pays_retry


def test_a_new_bucket_is_full() -> None:
    assert RetryBudget().tokens == 10.0
    assert RetryBudget(capacity=3).tokens == 3


def test_defaults() -> None:
    budget = RetryBudget()
    assert (budget.capacity, budget.earned_per_attempt) == (10.0, 0.1)
    assert (budget.refill_per_s, budget.updated_s) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("tokens", "allowed"), [(0.0, False), (0.999, False), (1.0, True), (10.0, True)]
)
def test_a_retry_needs_a_whole_token(tokens: float, allowed: bool) -> None:  # noqa: FBT001  # a table
    assert pays_retry(tokens) is allowed


def test_first_attempts_earn_and_retries_cost() -> None:
    budget = RetryBudget(tokens=2.0)
    assert budget.after_first_attempt().tokens == 2.1
    assert budget.after_retry().tokens == 1.0
    assert RetryBudget(tokens=0.4).after_retry().tokens == 0.0
    assert RetryBudget(tokens=9.95).after_first_attempt().tokens == 10.0


def test_ten_first_attempts_pay_one_retry() -> None:
    budget = RetryBudget(tokens=0.0)
    for _ in range(10):
        assert not pays_retry(budget.tokens)
        budget = budget.after_first_attempt()
    assert pays_retry(budget.tokens)
    assert budget.after_retry().tokens == 0.0


def test_time_refills_and_a_clock_that_goes_back_does_not() -> None:
    budget = RetryBudget(tokens=1.0, refill_per_s=0.5, updated_s=100.0)
    later = budget.refilled(104.0)
    assert (later.tokens, later.updated_s) == (3.0, 104.0)
    back = later.refilled(50.0)
    assert (back.tokens, back.updated_s) == (3.0, 104.0)
    assert later.refilled(10_000.0).tokens == 10.0


@pytest.mark.parametrize(
    "fields",
    [
        {"capacity": 0.5},
        {"earned_per_attempt": -0.1},
        {"earned_per_attempt": 1.1},
        {"refill_per_s": -1},
        {"tokens": -1},
        {"tokens": 10.1},
        {"updated_s": float("nan")},
    ],
)
def test_impossible_buckets_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match=f"RetryBudget.{next(iter(fields))}"):
        RetryBudget(**fields)


@pytest.mark.parametrize(
    "fields",
    [{"capacity": 1}, {"earned_per_attempt": 0}, {"earned_per_attempt": 1}, {"tokens": 0}],
)
def test_the_edges_are_allowed(fields: dict[str, Any]) -> None:
    RetryBudget(**fields)


def test_invariant_22_in_a_total_outage_retries_are_a_tenth_of_the_load_and_it_heals() -> None:
    budget = RetryBudget()
    retries = 0
    for _ in range(10_000):  # every operation fails, and each wants a retry
        budget = budget.after_first_attempt()
        if pays_retry(budget.tokens):
            budget = budget.after_retry()
            retries += 1
    assert retries <= 10_000 * 0.1 + budget.capacity
    assert retries >= 10_000 * 0.09
    for _ in range(101):  # all succeed again
        budget = budget.after_first_attempt()
    assert budget.tokens == budget.capacity


@given(st.lists(st.sampled_from(["first", "retry", "wait"]), max_size=60), st.floats(1, 20))
def test_the_bucket_never_leaves_its_bounds(steps: list[str], capacity: float) -> None:
    budget = RetryBudget(capacity=capacity, refill_per_s=0.3)
    now_s = 0.0
    for step in steps:
        if step == "first":
            budget = budget.after_first_attempt()
        elif step == "retry":
            budget = budget.after_retry()
        else:
            now_s += 1.0
            budget = budget.refilled(now_s)
        assert 0 <= budget.tokens <= capacity
