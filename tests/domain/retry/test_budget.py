"""The retry budget: in an outage retries queue up for tokens; afterwards the bucket recovers."""

import math
import random
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
    assert (budget.capacity, budget.earned_per_success) == (10.0, 0.5)
    assert (budget.refill_per_s, budget.updated_s) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("tokens", "allowed"), [(0.0, False), (0.999, False), (1.0, True), (10.0, True)]
)
def test_retry_costs_whole_token(tokens: float, allowed: bool) -> None:  # noqa: FBT001  # a table
    assert can_pay_retry(tokens) is allowed


def test_successes_earn_tokens_and_retries_spend_them() -> None:
    budget = RetryBudget(tokens=2.0)
    assert budget.earn().tokens == 2.5
    assert budget.spend().tokens == 1.0
    assert RetryBudget(tokens=0.4).spend().tokens == 0.0
    assert RetryBudget(tokens=9.95).earn().tokens == 10.0


def test_ten_small_earnings_pay_for_one_retry() -> None:
    budget = RetryBudget(earned_per_success=0.1, tokens=0.0)
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
        {"earned_per_success": -0.1},
        {"earned_per_success": 1.1},
        {"refill_per_s": 0},
        {"tokens": -1e7},
        {"tokens": 10.1},
        {"updated_s": float("nan")},
    ],
)
def test_invalid_budget_is_rejected(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match=f"RetryBudget.{next(iter(fields))}"):
        RetryBudget(**fields)


@pytest.mark.parametrize(
    "fields",
    [{"capacity": 1}, {"earned_per_success": 0}, {"earned_per_success": 1}, {"tokens": -1}],
)
def test_boundary_values_are_accepted(fields: dict[str, Any]) -> None:
    RetryBudget(**fields)


@pytest.mark.parametrize(
    ("tokens", "wait_s"), [(10.0, 0.0), (1.0, 0.0), (0.5, 0.25), (0.0, 0.5), (-3.0, 2.0)]
)
def test_empty_bucket_makes_next_retry_wait(tokens: float, wait_s: float) -> None:
    assert RetryBudget(refill_per_s=2.0, tokens=tokens).wait_s == wait_s


def test_waiting_retries_get_their_tokens_one_after_the_other() -> None:
    budget = RetryBudget(capacity=2.0, refill_per_s=4.0)
    waits = []
    for _ in range(5):
        waits.append(budget.wait_s)
        budget = budget.reserve()
    assert waits == [0.0, 0.0, 0.25, 0.5, 0.75]
    assert (budget.tokens, budget.retries_allowed) == (-3.0, 0)


def test_debt_is_bounded() -> None:
    assert RetryBudget(tokens=-1e6).reserve().tokens == -1e6


NORMAL_PER_S = 10


def test_invariant_22_outage_retries_are_a_tenth_of_load_and_budget_recovers() -> None:
    budget = RetryBudget()
    outage_s, retried_at_s = 600, []
    for call in range(outage_s * NORMAL_PER_S):  # all fail, and each wants a retry
        now_s = call / NORMAL_PER_S
        budget = budget.refill(now_s)
        if now_s + budget.wait_s < outage_s:  # a later one would meet a provider that works again
            retried_at_s.append(now_s + budget.wait_s)
            budget = budget.reserve()
    normal = outage_s * NORMAL_PER_S
    assert normal * 0.09 <= len(retried_at_s) <= normal * 0.1 + budget.capacity
    assert retried_at_s == sorted(retried_at_s)
    recovered = budget.refill(outage_s + budget.capacity)  # nothing but time
    assert recovered.tokens == recovered.capacity
    earned = budget.earn(math.ceil((budget.capacity - budget.tokens) / budget.earned_per_success))
    assert earned.tokens == budget.capacity


def test_invariant_38_weather_below_30_percent_errors_is_hardly_slowed() -> None:
    budget, chance = RetryBudget(), random.Random(38)  # noqa: S311  # not a secret
    waits = []
    for call in range(20_000):
        budget = budget.refill(call / NORMAL_PER_S)
        if chance.random() < 0.29:
            waits.append(budget.wait_s)
            budget = budget.reserve()
        else:
            budget = budget.earn()
    assert sum(wait > 0 for wait in waits) < 0.05 * len(waits)
    assert max(waits) < 3


@given(st.lists(st.sampled_from(["first", "retry", "wait"]), max_size=60), st.floats(1, 20))
def test_tokens_stay_between_zero_and_capacity(steps: list[str], capacity: float) -> None:
    budget = RetryBudget(capacity=capacity, earned_per_success=0.1, refill_per_s=0.3)
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
