"""The retry budget: during an outage retries stay a fraction of the load; afterwards it heals."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import RetryBudget
from tileferry.domain.retry.budget import can_pay_retry


def test_new_budget_is_full() -> None:
    assert RetryBudget().tokens == 10.0
    assert RetryBudget(capacity=3).tokens == 3


def test_budget_defaults() -> None:
    budget = RetryBudget()
    assert (budget.capacity, budget.earned_per_attempt) == (10.0, 0.1)
    assert (budget.refill_per_s, budget.updated_s) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("tokens", "allowed"), [(0.0, False), (0.999, False), (1.0, True), (10.0, True)]
)
def test_retry_costs_whole_token(tokens: float, allowed: bool) -> None:  # noqa: FBT001  # a table
    assert can_pay_retry(tokens) is allowed


def test_first_attempts_earn_tokens_and_retries_spend_them() -> None:
    budget = RetryBudget(tokens=2.0)
    assert budget.earn().tokens == 2.1
    assert budget.spend().tokens == 1.0
    assert RetryBudget(tokens=0.4).spend().tokens == 0.0
    assert RetryBudget(tokens=9.95).earn().tokens == 10.0


def test_ten_first_attempts_pay_for_one_retry() -> None:
    budget = RetryBudget(tokens=0.0)
    for _ in range(10):
        assert not can_pay_retry(budget.tokens)
        budget = budget.earn()
    assert can_pay_retry(budget.tokens)
    assert budget.spend().tokens == 0.0


def test_budget_refills_over_time_but_not_when_clock_goes_back() -> None:
    budget = RetryBudget(tokens=1.0, refill_per_s=0.5, updated_s=100.0)
    later = budget.refill(104.0)
    assert (later.tokens, later.updated_s) == (3.0, 104.0)
    back = later.refill(50.0)
    assert (back.tokens, back.updated_s) == (3.0, 104.0)
    assert later.refill(10_000.0).tokens == 10.0


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
def test_invalid_budget_is_rejected(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match=f"RetryBudget.{next(iter(fields))}"):
        RetryBudget(**fields)


@pytest.mark.parametrize(
    "fields",
    [{"capacity": 1}, {"earned_per_attempt": 0}, {"earned_per_attempt": 1}, {"tokens": 0}],
)
def test_boundary_values_are_accepted(fields: dict[str, Any]) -> None:
    RetryBudget(**fields)


def test_invariant_22_outage_retries_are_a_tenth_of_load_and_budget_recovers() -> None:
    budget = RetryBudget()
    retries = 0
    for _ in range(10_000):  # every operation fails, and each wants a retry
        budget = budget.earn()
        if can_pay_retry(budget.tokens):
            budget = budget.spend()
            retries += 1
    assert retries <= 10_000 * 0.1 + budget.capacity
    assert retries >= 10_000 * 0.09
    for _ in range(101):  # all succeed again
        budget = budget.earn()
    assert budget.tokens == budget.capacity


@given(st.lists(st.sampled_from(["first", "retry", "wait"]), max_size=60), st.floats(1, 20))
def test_tokens_stay_between_zero_and_capacity(steps: list[str], capacity: float) -> None:
    budget = RetryBudget(capacity=capacity, refill_per_s=0.3)
    now_s = 0.0
    for step in steps:
        if step == "first":
            budget = budget.earn()
        elif step == "retry":
            budget = budget.spend()
        else:
            now_s += 1.0
            budget = budget.refill(now_s)
        assert 0 <= budget.tokens <= capacity
