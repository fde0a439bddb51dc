"""Past calls under another policy."""

from collections.abc import Sequence
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import error_classes, policies

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import (
    DecisionRecord,
    ErrorClass,
    Fate,
    Final,
    PastCall,
    RateLimited,
    Retryable,
    RetryPolicy,
    WhatIf,
    retold,
    simulate,
)

PLAIN = RetryPolicy(max_attempts=4, base_delay=1.0, jitter_enabled=False)


def past(policy: RetryPolicy, *errors: ErrorClass, call_s: float = 0.0) -> PastCall:
    """Play a call and return it as the log would tell of it."""
    played = simulate(policy, errors, key="k", call_s=call_s)
    records = tuple(
        DecisionRecord(policy=policy, failure=step.failure, decision=step.decision)
        for step in played.failures
    )
    return PastCall(records=records, succeeded=played.succeeds)


SUCCEEDED_AFTER_3 = past(PLAIN, *[Retryable()] * 3)
GAVE_UP_AFTER_4 = past(PLAIN, *[Retryable()] * 4)


def test_a_past_call_has_failed() -> None:
    with pytest.raises(InvalidValueError, match=r"PastCall\.records: must hold at least one"):
        PastCall(records=(), succeeded=True)


def test_the_examples_are_what_they_are_called() -> None:
    assert (SUCCEEDED_AFTER_3.succeeded, SUCCEEDED_AFTER_3.waited_s) == (True, 7.0)
    assert (GAVE_UP_AFTER_4.succeeded, GAVE_UP_AFTER_4.waited_s) == (False, 7.0)


@given(policies(), st.lists(error_classes, min_size=1, max_size=6), st.floats(0, 50))
def test_under_its_own_policy_a_call_goes_as_it_went(
    policy: RetryPolicy, errors: list[ErrorClass], call_s: float
) -> None:
    deadline_free = evolve(policy, deadline_s=None)  # sums of floats may fall beside a deadline
    call = past(deadline_free, *errors, call_s=call_s)
    again = retold(deadline_free, call)
    assert again.fate is (Fate.SUCCEEDS if call.succeeded else Fate.GIVEN_UP)
    assert again.waited_s == call.waited_s


@pytest.mark.parametrize(
    ("changes", "fate", "waited_s"),
    [
        ({"max_attempts": 3}, Fate.GIVEN_UP, 3.0),
        ({"max_attempts": 1}, Fate.GIVEN_UP, 0.0),
        ({"max_attempts": 9}, Fate.SUCCEEDS, 7.0),
        ({"base_delay": 3.0}, Fate.SUCCEEDS, 21.0),
        ({"max_delay": 2.0}, Fate.SUCCEEDS, 5.0),
        ({"deadline_s": 6.0}, Fate.GIVEN_UP, 3.0),
        ({"deadline_s": 7.5}, Fate.SUCCEEDS, 7.0),
    ],
)
def test_a_call_that_succeeded(changes: dict[str, Any], fate: Fate, waited_s: float) -> None:
    again = retold(evolve(PLAIN, **changes), SUCCEEDED_AFTER_3)
    assert (again.fate, again.waited_s) == (fate, waited_s)


@pytest.mark.parametrize(
    ("changes", "fate", "waited_s"),
    [
        ({"max_attempts": 3}, Fate.GIVEN_UP, 3.0),
        ({"max_attempts": 5}, Fate.UNKNOWN, 15.0),
        ({"base_delay": 2.0}, Fate.GIVEN_UP, 14.0),
    ],
)
def test_a_call_that_was_given_up(changes: dict[str, Any], fate: Fate, waited_s: float) -> None:
    again = retold(evolve(PLAIN, **changes), GAVE_UP_AFTER_4)
    assert (again.fate, again.waited_s) == (fate, waited_s)


def test_a_final_error_stays_final() -> None:
    again = retold(evolve(PLAIN, max_attempts=100), past(PLAIN, Retryable(), Final()))
    assert (again.fate, again.waited_s) == (Fate.GIVEN_UP, 1.0)


def test_the_time_of_the_calls_themselves_counts_towards_the_deadline() -> None:
    call = past(PLAIN, *[Retryable()] * 3, call_s=10.0)  # calls 30 s, waits 7 s
    assert retold(evolve(PLAIN, deadline_s=37.5), call).fate is Fate.SUCCEEDS
    assert retold(evolve(PLAIN, deadline_s=36.5), call).fate is Fate.GIVEN_UP
    assert retold(evolve(PLAIN, deadline_s=36.5, base_delay=0.5), call).fate is Fate.SUCCEEDS


def test_waits_that_were_asked_for_are_bounded_by_the_other_policy() -> None:
    told = RateLimited(retry_after_s=30.0)
    call = past(PLAIN, told, told)
    assert retold(evolve(PLAIN, max_retry_after_s=10.0), call).waited_s == 20.0
    assert retold(evolve(PLAIN, max_rate_limited=1), call).fate is Fate.GIVEN_UP


def under(policy: RetryPolicy, calls: Sequence[PastCall]) -> WhatIf:
    result = WhatIf(policy)
    for call in calls:
        result.add(call)
    return result


def test_many_calls_are_added_up() -> None:
    history = [past(PLAIN, Retryable()), SUCCEEDED_AFTER_3, GAVE_UP_AFTER_4, past(PLAIN, Final())]
    fewer = under(evolve(PLAIN, max_attempts=2), history)
    assert (fewer.calls, fewer.succeeded, fewer.still_succeed, fewer.lost) == (4, 2, 1, 1)
    assert (fewer.given_up, fewer.still_given_up, fewer.unknown) == (2, 2, 0)
    assert (fewer.waited_s, fewer.would_wait_s) == (15.0, 3.0)
    more = under(evolve(PLAIN, max_attempts=6), history)
    assert (more.lost, more.still_given_up, more.unknown) == (0, 1, 1)
    assert more.would_wait_s == 15.0 + 8.0
