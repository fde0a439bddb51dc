"""A policy against an error that stays."""

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import policies

from tileferry.domain.retry import (
    POLICY_MATRIX,
    ErrorClass,
    Final,
    GiveUpReason,
    RateLimited,
    Retryable,
    RetryCategory,
    RetryPolicy,
    RetryReason,
    build_schedule,
    compute_jittered_delay,
    simulate,
)


def test_spec2_delay_examples() -> None:
    """Spec 2: 1.0 s ±0.1, 2.0 s ±0.2, 4.0 s ±0.4, 8.0 s ±0.8."""
    plan = build_schedule(POLICY_MATRIX[RetryCategory.NATS_CONNECT], Retryable())
    bounds = [(wait.delay_s_min, wait.delay_s, wait.delay_s_max) for wait in plan.waits]
    assert bounds == [
        pytest.approx(expected)
        for expected in [(0.9, 1.0, 1.1), (1.8, 2.0, 2.2), (3.6, 4.0, 4.4), (7.2, 8.0, 8.8)]
    ]
    assert (plan.calls, plan.ends_by) == (5, GiveUpReason.ATTEMPTS_EXHAUSTED)
    assert plan.worst_case_s == pytest.approx(16.5)
    assert [wait.attempt for wait in plan.waits] == [1, 2, 3, 4]


def test_final_error_has_no_waits() -> None:
    plan = build_schedule(RetryPolicy(), Final())
    assert (plan.waits, plan.calls, plan.worst_case_s) == ((), 1, 0.0)
    assert plan.ends_by is GiveUpReason.FINAL


def test_retry_after_wait_has_no_jitter_and_costs_no_attempt() -> None:
    plan = build_schedule(RetryPolicy(max_rate_limited=2), RateLimited(retry_after_s=30.0))
    assert [(wait.call, wait.attempt, wait.delay_s_max) for wait in plan.waits] == [
        (1, 1, 30.0),
        (2, 1, 30.0),
    ]
    assert {wait.reason for wait in plan.waits} == {RetryReason.RETRY_AFTER}
    assert (plan.calls, plan.worst_case_s) == (3, 60.0)
    assert plan.ends_by is GiveUpReason.RATE_LIMIT_EXHAUSTED


def test_jitter_never_exceeds_max_delay() -> None:
    plan = build_schedule(RetryPolicy(max_attempts=4, max_delay=2.0), Retryable())
    assert [wait.delay_s_max for wait in plan.waits] == pytest.approx([1.1, 2.0, 2.0])


def test_deadline_ends_schedule_and_bounds_worst_case() -> None:
    policy = RetryPolicy(max_attempts=9, deadline_s=3.2)
    plan = build_schedule(policy, Retryable())
    assert (plan.calls, plan.ends_by) == (3, GiveUpReason.DEADLINE_EXCEEDED)
    assert plan.worst_case_s == 3.2


@given(policies(), st.sampled_from([Retryable(), RateLimited(), RateLimited(5.0)]), st.text())
def test_simulated_delays_are_within_schedule_bounds(
    policy: RetryPolicy, error: ErrorClass, key: str
) -> None:
    # Jitter decides whether a deadline is met, so without one; and no thousand attempts each time.
    bounded = evolve(policy, deadline_s=None, max_attempts=min(policy.max_attempts, 20))
    plan = build_schedule(bounded, error)
    played = simulate(bounded, [error] * plan.calls, key=key)
    assert len(played.failures) == plan.calls
    for wait, step in zip(plan.waits, played.failures, strict=False):
        delay_s = step.decision.delay_s  # type: ignore[union-attr]
        assert wait.attempt == step.failure.attempt
        assert wait.delay_s_min - 1e-6 <= delay_s <= wait.delay_s_max * (1 + 1e-9) + 1e-9
        if wait.reason is RetryReason.BACKOFF:
            assert delay_s == compute_jittered_delay(bounded, wait.attempt, key)
