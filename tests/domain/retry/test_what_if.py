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
    Final,
    PastCall,
    RateLimited,
    Retryable,
    RetryPolicy,
    WhatIfOutcome,
    WhatIfSummary,
    replay_call,
    simulate,
)

PLAIN = RetryPolicy(max_attempts=4, base_delay=1.0, jitter_enabled=False)


def make_past_call(policy: RetryPolicy, *errors: ErrorClass, call_s: float = 0.0) -> PastCall:
    """Play a call and return it as the log would tell of it."""
    played = simulate(policy, errors, key="k", call_s=call_s)
    records = tuple(
        DecisionRecord(policy=policy, failure=step.failure, decision=step.decision)
        for step in played.failures
    )
    return PastCall(records=records, succeeded=played.succeeds)


SUCCEEDED_AFTER_3 = make_past_call(PLAIN, *[Retryable()] * 3)
GAVE_UP_AFTER_4 = make_past_call(PLAIN, *[Retryable()] * 4)


def test_past_call_without_failures_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match=r"PastCall\.records: must hold at least one"):
        PastCall(records=(), succeeded=True)


def test_example_calls_match_their_names() -> None:
    assert (SUCCEEDED_AFTER_3.succeeded, SUCCEEDED_AFTER_3.waited_s) == (True, 7.0)
    assert (GAVE_UP_AFTER_4.succeeded, GAVE_UP_AFTER_4.waited_s) == (False, 7.0)


@given(policies(), st.lists(error_classes, min_size=1, max_size=6), st.floats(0, 50))
def test_call_replays_identically_under_its_own_policy(
    policy: RetryPolicy, errors: list[ErrorClass], call_s: float
) -> None:
    deadline_free = evolve(policy, deadline_s=None)  # sums of floats may fall beside a deadline
    call = make_past_call(deadline_free, *errors, call_s=call_s)
    again = replay_call(deadline_free, call)
    assert again.fate is (WhatIfOutcome.SUCCEEDS if call.succeeded else WhatIfOutcome.GIVEN_UP)
    assert again.waited_s == call.waited_s


@pytest.mark.parametrize(
    ("changes", "fate", "waited_s"),
    [
        ({"max_attempts": 3}, WhatIfOutcome.GIVEN_UP, 3.0),
        ({"max_attempts": 1}, WhatIfOutcome.GIVEN_UP, 0.0),
        ({"max_attempts": 9}, WhatIfOutcome.SUCCEEDS, 7.0),
        ({"base_delay": 3.0}, WhatIfOutcome.SUCCEEDS, 21.0),
        ({"max_delay": 2.0}, WhatIfOutcome.SUCCEEDS, 5.0),
        ({"deadline_s": 6.0}, WhatIfOutcome.GIVEN_UP, 3.0),
        ({"deadline_s": 7.5}, WhatIfOutcome.SUCCEEDS, 7.0),
    ],
)
def test_successful_call_under_other_policy(
    changes: dict[str, Any], fate: WhatIfOutcome, waited_s: float
) -> None:
    again = replay_call(evolve(PLAIN, **changes), SUCCEEDED_AFTER_3)
    assert (again.fate, again.waited_s) == (fate, waited_s)


@pytest.mark.parametrize(
    ("changes", "fate", "waited_s"),
    [
        ({"max_attempts": 3}, WhatIfOutcome.GIVEN_UP, 3.0),
        ({"max_attempts": 5}, WhatIfOutcome.UNKNOWN, 15.0),
        ({"base_delay": 2.0}, WhatIfOutcome.GIVEN_UP, 14.0),
    ],
)
def test_given_up_call_under_other_policy(
    changes: dict[str, Any], fate: WhatIfOutcome, waited_s: float
) -> None:
    again = replay_call(evolve(PLAIN, **changes), GAVE_UP_AFTER_4)
    assert (again.fate, again.waited_s) == (fate, waited_s)


def test_final_error_stays_final_under_other_policy() -> None:
    again = replay_call(
        evolve(PLAIN, max_attempts=100), make_past_call(PLAIN, Retryable(), Final())
    )
    assert (again.fate, again.waited_s) == (WhatIfOutcome.GIVEN_UP, 1.0)


def test_call_duration_counts_towards_deadline() -> None:
    call = make_past_call(PLAIN, *[Retryable()] * 3, call_s=10.0)  # calls 30 s, waits 7 s
    assert replay_call(evolve(PLAIN, deadline_s=37.5), call).fate is WhatIfOutcome.SUCCEEDS
    assert replay_call(evolve(PLAIN, deadline_s=36.5), call).fate is WhatIfOutcome.GIVEN_UP
    assert (
        replay_call(evolve(PLAIN, deadline_s=36.5, base_delay=0.5), call).fate
        is WhatIfOutcome.SUCCEEDS
    )


def test_retry_after_waits_are_bounded_by_other_policy() -> None:
    told = RateLimited(retry_after_s=30.0)
    call = make_past_call(PLAIN, told, told)
    assert replay_call(evolve(PLAIN, max_retry_after_s=10.0), call).waited_s == 20.0
    assert replay_call(evolve(PLAIN, max_rate_limited=1), call).fate is WhatIfOutcome.GIVEN_UP


def replay_calls(policy: RetryPolicy, calls: Sequence[PastCall]) -> WhatIfSummary:
    result = WhatIfSummary(policy)
    for call in calls:
        result.add(call)
    return result


def test_what_if_totals_over_many_calls() -> None:
    history = [
        make_past_call(PLAIN, Retryable()),
        SUCCEEDED_AFTER_3,
        GAVE_UP_AFTER_4,
        make_past_call(PLAIN, Final()),
    ]
    fewer = replay_calls(evolve(PLAIN, max_attempts=2), history)
    assert (fewer.calls, fewer.succeeded, fewer.still_succeed, fewer.lost) == (4, 2, 1, 1)
    assert (fewer.given_up, fewer.still_given_up, fewer.unknown) == (2, 2, 0)
    assert (fewer.waited_s, fewer.would_wait_s) == (15.0, 3.0)
    more = replay_calls(evolve(PLAIN, max_attempts=6), history)
    assert (more.lost, more.still_given_up, more.unknown) == (0, 1, 1)
    assert more.would_wait_s == 15.0 + 8.0
