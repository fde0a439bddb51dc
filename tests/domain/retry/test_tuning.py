"""Proposals from past calls."""

from collections.abc import Sequence
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from support.past_calls import create_past_call, create_past_calls
from support.strategies import error_classes, policies

from tileferry.domain.retry import (
    CALLS_MIN,
    BackoffKind,
    ErrorClass,
    Final,
    PastCall,
    RateLimited,
    Retryable,
    RetryPolicy,
    TuningReport,
    tune_policy,
)

PLAIN = RetryPolicy(max_attempts=5, base_delay=1.0, jitter_enabled=False)  # 1, 2, 4, 8 s
ALL = ("max_attempts", "base_delay", "max_delay", "max_rate_limited")


def tune(
    calls: Sequence[PastCall], policy: RetryPolicy = PLAIN, tunable: Sequence[str] = ALL
) -> TuningReport:
    return tune_policy("X", policy, calls, tunable=tunable)


def get_changes(report: TuningReport) -> dict[str, tuple[float, float]]:
    return {change.field_name: (change.before, change.after) for change in report.changes}


def test_too_few_calls_give_no_proposal() -> None:
    calls = create_past_calls(PLAIN, [5] * (CALLS_MIN - 1))
    report = tune([*calls, *[create_past_call(PLAIN, [Final()])] * 50])
    assert (report.calls, report.calls_missing, report.changes) == (CALLS_MIN - 1, 1, ())
    assert (report.proposed, report.today.given_up) == (None, CALLS_MIN - 1)
    assert tune([]).calls_missing == CALLS_MIN


def test_success_is_counted_by_attempt() -> None:
    report = tune(create_past_calls(PLAIN, [1] * 20 + [2] * 8 + [4] * 2 + [5] * 2))
    assert [(one.attempt, one.reached, one.succeeded) for one in report.attempts] == [
        (2, 32, 20),
        (3, 12, 8),
        (4, 4, 0),
        (5, 4, 2),
    ]
    assert [one.mean_wait_s for one in report.attempts] == [1.0, 2.0, 4.0, 8.0]
    assert report.attempts[0].share == 20 / 32


def test_attempts_that_never_helped_are_dropped() -> None:
    calls = create_past_calls(PLAIN, [1] * 40 + [2] * 40 + [5] * 60)
    report = tune(calls)
    assert get_changes(report) == {"max_attempts": (5, 3)}
    assert report.changes[0].reason == ("no call succeeded after attempt 3, and 60 went further")
    assert report.proposed is not None
    assert (report.today.succeeded, report.proposed.succeeded) == (80, 80)
    assert report.proposed.retries < report.today.retries
    assert tune(calls[1:], tunable=()).changes == ()
    assert tune(create_past_calls(PLAIN, [1] * 80 + [5] * 59)).changes == ()  # too few went further


def test_one_retry_is_always_kept() -> None:
    report = tune(create_past_calls(PLAIN, [5] * 100))
    assert get_changes(report) == {"max_attempts": (5, 2)}
    pair = evolve(PLAIN, max_attempts=2)
    assert tune(create_past_calls(pair, [2] * 100), pair).changes == ()


def test_attempts_are_added_while_the_last_one_helps() -> None:
    report = tune(create_past_calls(PLAIN, [4] * 20 + [5] * 20))
    assert get_changes(report) == {"max_attempts": (5, 9)}  # half of the rest succeeds each time
    assert "20 of 40 calls, and 20 calls ran out" in report.changes[0].reason
    assert report.proposed is not None
    assert (report.proposed.succeeded, report.proposed.unknown) == (20, 20)
    seldom = tune(create_past_calls(PLAIN, [4] * 5 + [5] * 35))
    assert get_changes(seldom) == {"max_attempts": (5, 10)}  # at most twice as many
    rarely = tune(create_past_calls(PLAIN, [4] * 3 + [5] * 35))
    assert get_changes(rarely) == {}
    most = evolve(PLAIN, max_attempts=1_000, base_delay=0.0)
    rescued, exhausted = create_past_calls(most, [999, 1_000])
    calls = [rescued] * 15 + [exhausted] * 15
    assert get_changes(tune(calls, most)) == {}


def test_longer_delays_are_proposed_if_they_save_retries() -> None:
    """Recovered after 15 s each; with 4 s, the third wait ends at 28 s; with 8 s ends at 24 s."""
    calls = [create_past_call(PLAIN, [Retryable()] * 4, key=f"{n}") for n in range(40)]
    assert get_changes(tune(calls)) == {}  # waiting longer than today
    steady = evolve(PLAIN, backoff_multiplier=1.0, max_attempts=10)
    calls = create_past_calls(steady, [8] * 40)
    report = tune(calls, steady)
    assert get_changes(report) == {"base_delay": (1.0, 4.0)}
    assert report.proposed is not None
    assert (report.proposed.succeeded, report.proposed.retries) == (40, 2 * 40)
    capped = evolve(steady, max_delay=1.0)
    report = tune(create_past_calls(capped, [8] * 40), capped)
    assert get_changes(report) == {"base_delay": (1.0, 4.0), "max_delay": (1.0, 4.0)}
    assert tune(calls, steady, ["max_attempts"]).changes == ()


@pytest.mark.parametrize(
    "policy",
    [
        evolve(PLAIN, base_delay=0.0),
        evolve(PLAIN, backoff=BackoffKind.POWER),
        evolve(PLAIN, base_delay=400_000.0, max_delay=500_000.0),
    ],
)
def test_delays_that_cannot_be_lengthened_are_kept(policy: RetryPolicy) -> None:
    assert get_changes(tune(create_past_calls(policy, [2] * 40), policy)) == {}


def test_more_rate_limited_waits_are_proposed_if_many_calls_run_out_of_them() -> None:
    policy = evolve(PLAIN, max_rate_limited=2)
    limited: list[ErrorClass] = [RateLimited(retry_after_s=1.0)] * 3
    ended = [create_past_call(policy, limited) for _ in range(4)]
    report = tune([*ended, *create_past_calls(policy, [1] * 36)], policy)
    assert get_changes(report) == {"max_rate_limited": (2, 4)}
    assert "4 of 40 calls" in report.changes[0].reason
    few = tune([*ended, *create_past_calls(policy, [1] * 37)], policy)
    assert few.changes == ()
    none = evolve(PLAIN, max_rate_limited=0)
    calls = [create_past_call(none, limited) for _ in range(40)]
    assert get_changes(tune(calls, none)) == {"max_rate_limited": (0, 1)}
    most = evolve(PLAIN, max_rate_limited=1_000)
    calls = [create_past_call(most, [RateLimited(retry_after_s=0.0)] * 1_001)] * CALLS_MIN
    assert tune(calls, most).changes == ()


@settings(max_examples=40)
@given(
    policies(),
    st.lists(st.lists(error_classes, min_size=1, max_size=6), min_size=1, max_size=6),
    st.sets(st.sampled_from(ALL)),
)
def test_proposal_keeps_every_success_and_only_changes_tunable_fields(
    policy: RetryPolicy, kinds: list[list[ErrorClass]], tunable: set[str]
) -> None:
    calls = [
        create_past_call(policy, errors, key=f"{number}")
        for errors in kinds
        for number in range(40)
    ]
    report = tune_policy("X", policy, calls, tunable=tunable)
    assert {change.field_name for change in report.changes} <= tunable
    assert (report.proposed is None) == (not report.changes)
    for effect in (report.today, report.proposed, report.aws_standard):
        if effect is not None:
            assert effect.succeeded + effect.given_up + effect.unknown == report.calls
    if report.proposed is not None:
        values: dict[str, Any] = {change.field_name: change.after for change in report.changes}
        assert report.proposed.policy == evolve(policy, **values)
        assert report.proposed.succeeded >= report.today.succeeded
    recorded = sum(
        call.succeeded for call in calls if not isinstance(call.records[0].failure.error, Final)
    )
    assert report.today.succeeded == recorded
