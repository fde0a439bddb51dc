"""Playing a policy through."""

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import error_classes, policies

from tileferry.domain.retry import (
    DOWNLOAD_POLICY,
    RUN_POLICY,
    ErrorClass,
    GiveUp,
    GiveUpReason,
    RateLimited,
    Retryable,
    RetryAt,
    RetryLoop,
    RetryPolicy,
    build_schedule,
    simulate,
)


def test_call_without_errors_succeeds_on_first_attempt() -> None:
    result = simulate(DOWNLOAD_POLICY, [], key="k")
    assert (result.failures, result.succeeds, result.attempts) == ((), True, 1)
    assert result.waited_s == 0.0


def test_simulation_gives_up_after_five_503s() -> None:
    result = simulate(DOWNLOAD_POLICY, [Retryable()] * 9, key="k", call_s=0.5)
    assert [step.started_s for step in result.failures] == [0.0, 1.5, 4.0, 8.5, 13.0]
    assert [step.failure.elapsed_s for step in result.failures] == [0.5, 2.0, 4.5, 9.0, 13.5]
    assert (result.attempts, result.succeeds, result.waited_s) == (5, False, 11.0)
    assert result.failures[-1].decision == GiveUp(
        reason=GiveUpReason.ATTEMPTS_EXHAUSTED, attempts=5
    )


def test_success_after_errors_counts_as_attempt() -> None:
    result = simulate(DOWNLOAD_POLICY, [RateLimited(retry_after_s=30.0), Retryable()], key="k")
    assert (result.attempts, result.succeeds, result.waited_s) == (3, True, 31.0)
    assert [step.failure.rate_limited for step in result.failures] == [0, 1]
    assert [step.failure.attempt for step in result.failures] == [1, 1]
    assert [step.failure.elapsed_s for step in result.failures] == [0.0, 30.0]


@pytest.mark.parametrize(
    ("policy", "seconds"),
    [
        (DOWNLOAD_POLICY, 11.0),
        (RUN_POLICY, 7_380.0),
        (RetryPolicy(max_attempts=1), 0.0),
        (RetryPolicy(max_attempts=3), 3.3),
        (RetryPolicy(max_attempts=3, max_delay=2.0), 3.1),
    ],
)
def test_worst_case_backoff(policy: RetryPolicy, seconds: float) -> None:
    assert build_schedule(policy, Retryable()).worst_case_s == pytest.approx(seconds)


@given(policies(), st.text(max_size=10), st.floats(0, 100))
def test_simulation_never_waits_longer_than_worst_case(
    policy: RetryPolicy, key: str, call_s: float
) -> None:
    result = simulate(policy, [Retryable()] * 25, key=key, call_s=call_s)
    longest_s = build_schedule(evolve(policy, deadline_s=None), Retryable()).worst_case_s
    assert result.waited_s <= longest_s * (1 + 1e-9) + 1e-9


@given(policies(), st.lists(error_classes, max_size=12))
def test_simulation_decides_like_retry_loop(policy: RetryPolicy, errors: list[ErrorClass]) -> None:
    told = iter(errors)
    loop = RetryLoop(policy=policy, key="k", started_s=0.0, classifier=lambda _: next(told))
    now_s = 0.0
    for _ in errors:
        decision = loop.record_failure(OSError(), now_s=now_s)
        if not isinstance(decision, RetryAt):
            break
        now_s += decision.delay_s
    result = simulate(policy, errors, key="k")
    assert [step.decision for step in result.failures] == [line.decision for line in loop.history]
