"""The loop without its I/O."""

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import error_classes, policies

from tileferry.domain.errors import RetryError
from tileferry.domain.retry import (
    DOWNLOAD_POLICY,
    ErrorClass,
    Failure,
    Final,
    GiveUp,
    GiveUpReason,
    RateLimited,
    Retryable,
    RetryAt,
    RetryBudget,
    RetryCategory,
    RetryLoop,
    RetryPolicy,
    RetryReason,
    decide,
)


def make_loop(policy: RetryPolicy | None = None, started_s: float = 100.0) -> RetryLoop:
    policy = policy or RetryPolicy(jitter_enabled=False)
    return RetryLoop(policy=policy, key="k", started_s=started_s)


def test_loop_counts_attempts_and_records_failures() -> None:
    loop = make_loop()
    first = loop.record_failure(OSError("down"), now_s=100.5)
    second = loop.record_failure(OSError("still"), now_s=102.5)
    third = loop.record_failure(OSError(), now_s=106.0)

    assert first == RetryAt(delay_s=1.0, reason=RetryReason.BACKOFF, attempt=2, rate_limited=0)
    assert second == RetryAt(delay_s=2.0, reason=RetryReason.BACKOFF, attempt=3, rate_limited=0)
    assert third == GiveUp(reason=GiveUpReason.ATTEMPTS_EXHAUSTED, attempts=3)
    assert [line.summary for line in loop.history] == ["OSError: down", "OSError: still", "OSError"]
    assert [line.decision for line in loop.history] == [first, second, third]
    assert loop.history[1].failure == Failure(
        key="k", attempt=2, error=Retryable(), rate_limited=0, elapsed_s=2.5, budget_tokens=None
    )


def test_policy_lists_classify_without_classifier() -> None:
    loop = make_loop(RetryPolicy(non_retryable_exceptions=[ValueError]))
    assert loop.record_failure(ValueError(), now_s=100.0) == GiveUp(
        reason=GiveUpReason.FINAL, attempts=1
    )


def test_classifier_overrides_policy_lists() -> None:
    loop = RetryLoop(
        policy=DOWNLOAD_POLICY,
        key="k",
        started_s=0.0,
        classifier=lambda _: RateLimited(retry_after_s=30.0),
    )
    assert loop.record_failure(OSError("429"), now_s=0.0) == RetryAt(
        delay_s=30.0, reason=RetryReason.RETRY_AFTER, attempt=1, rate_limited=1
    )
    assert loop.record_failure(OSError("429"), now_s=30.0) == GiveUp(
        reason=GiveUpReason.RATE_LIMIT_EXHAUSTED, attempts=1
    )


def test_classifier_receives_error() -> None:
    seen: list[BaseException] = []

    def classifier(error: BaseException) -> ErrorClass:
        seen.append(error)
        return Final()

    error = OSError("429")
    loop = RetryLoop(policy=RetryPolicy(), key="k", started_s=0.0, classifier=classifier)
    loop.record_failure(error, now_s=0.0)
    assert seen == [error]


def test_no_classifier_can_make_an_interrupt_retryable() -> None:
    loop = RetryLoop(policy=RetryPolicy(), key="k", started_s=0.0, classifier=lambda _: Retryable())
    assert loop.record_failure(KeyboardInterrupt(), now_s=0.0) == GiveUp(
        reason=GiveUpReason.FINAL, attempts=1
    )


def test_empty_budget_delays_the_retry_and_is_recorded() -> None:
    loop = make_loop()
    budget = RetryBudget(refill_per_s=0.1, tokens=-0.5)
    decision = loop.record_failure(OSError(), now_s=100.0, budget=budget)
    assert decision == RetryAt(
        delay_s=15.0, reason=RetryReason.RETRY_BUDGET, attempt=2, rate_limited=0
    )
    failure = loop.history[0].failure
    assert (failure.budget_tokens, failure.budget_wait_s) == (0.0, 15.0)


def test_clock_before_start_counts_as_zero_elapsed() -> None:
    loop = make_loop()
    loop.record_failure(OSError(), now_s=99.0)
    assert loop.history[0].failure.elapsed_s == 0.0


def test_error_message_is_escaped_for_logs() -> None:
    loop = make_loop()
    loop.record_failure(OSError("a\nb\x1b[31m"), now_s=100.0)
    assert loop.history[0].error_message == "a\\nb\\x1b[31m"
    assert loop.history[0].error_type == "OSError"


def test_error_with_failing_str_does_not_break_loop() -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    loop = make_loop()
    loop.record_failure(SilentError(), now_s=100.0)
    assert loop.history[0].summary == "SilentError"


def test_spec2_exhaustion_carries_category_attempts_operation_and_history() -> None:
    loop = evolve(make_loop(), category=RetryCategory.KV_GET, operation="Get a switch")
    last = OSError("down")
    loop.record_failure(OSError("down"), now_s=100.25)
    loop.record_failure(OSError("down"), now_s=102.0)
    decision = loop.record_failure(last, now_s=104.0)
    assert isinstance(decision, GiveUp)
    with pytest.raises(RetryError) as raised:
        loop.get_delay(last)

    error = raised.value
    assert error.__cause__ is last
    assert error.category == "RETRY_KV_GET"
    assert error.operation == "Get a switch"
    assert error.attempts == 3
    assert error.elapsed_s == 4.0
    assert error.reason is GiveUpReason.ATTEMPTS_EXHAUSTED
    assert error.history == tuple(loop.history)
    assert str(error) == (
        "Get a switch (RETRY_KV_GET) gave up after 3 attempts in 4.0 s: "
        "all attempts are used up; last error: OSError: down"
    )


@given(policies(), st.lists(error_classes, max_size=60), st.floats(0, 1e6))
def test_every_loop_ends_within_policy_limits(
    policy: RetryPolicy, errors: list[ErrorClass], started_s: float
) -> None:
    scripted = iter(errors)
    loop = RetryLoop(
        policy=policy,
        key="k",
        started_s=started_s,
        classifier=lambda _: next(scripted, Retryable()),
    )
    now_s = started_s
    while isinstance(decision := loop.record_failure(OSError(), now_s=now_s), RetryAt):
        now_s += decision.delay_s
    assert len(loop.history) <= policy.max_attempts + policy.max_rate_limited
    for line in loop.history:
        assert decide(policy, line.failure) == line.decision
    if isinstance(loop.history[-1].failure.error, Final):
        assert decision.reason is GiveUpReason.FINAL
