"""The one decision, and what spec 4 asks of it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from support.strategies import failures, policies

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import (
    DOWNLOAD_POLICY,
    POLICY_MATRIX,
    RUN_POLICY,
    Failure,
    Final,
    GiveUp,
    GiveUpReason,
    RateLimited,
    Retryable,
    RetryAt,
    RetryCategory,
    RetryPolicy,
    RetryReason,
    calculate_next_retry,
    compute_jittered_delay,
    costs_token,
    decide,
)

PLAIN = RetryPolicy(max_attempts=3, jitter_enabled=False)
NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)


def make_failure(**changes: Any) -> Failure:
    return evolve(Failure(key="k", attempt=1, error=Retryable()), **changes)


def test_retryable_error_is_retried_after_backoff() -> None:
    assert decide(PLAIN, make_failure()) == RetryAt(
        delay_s=1.0, reason=RetryReason.BACKOFF, attempt=2, rate_limited=0
    )
    assert decide(PLAIN, make_failure(attempt=2, rate_limited=3)) == RetryAt(
        delay_s=2.0, reason=RetryReason.BACKOFF, attempt=3, rate_limited=3
    )


def test_delay_is_jittered_by_key_and_attempt() -> None:
    policy = RetryPolicy()
    decision = decide(policy, make_failure(key="call", attempt=2))
    assert isinstance(decision, RetryAt)
    assert decision.delay_s == compute_jittered_delay(policy, 2, "call") != 2.0


def test_final_error_gives_up_on_first_attempt() -> None:
    assert decide(PLAIN, make_failure(error=Final())) == GiveUp(
        reason=GiveUpReason.FINAL, attempts=1
    )


def test_spec2_last_attempt_is_not_retried() -> None:
    exhausted = GiveUp(reason=GiveUpReason.ATTEMPTS_EXHAUSTED, attempts=3)
    assert decide(PLAIN, make_failure(attempt=3)) == exhausted
    assert decide(PLAIN, make_failure(attempt=4)) == evolve(exhausted, attempts=4)


@pytest.mark.parametrize(
    "category", [RetryCategory.EXECUTION_EXPIRATION, RetryCategory.REPLAY_PROCESSING]
)
def test_spec2_categories_with_one_attempt_are_never_retried(category: RetryCategory) -> None:
    decision = decide(POLICY_MATRIX[category], make_failure())
    assert decision == GiveUp(reason=GiveUpReason.ATTEMPTS_EXHAUSTED, attempts=1)


def test_http_429_retry_after_30_waits_30_s_and_costs_no_attempt() -> None:
    decision = decide(DOWNLOAD_POLICY, make_failure(error=RateLimited(retry_after_s=30.0)))
    assert decision == RetryAt(
        delay_s=30.0, reason=RetryReason.RETRY_AFTER, attempt=1, rate_limited=1
    )


def test_spec5_second_429_gives_up() -> None:
    again = make_failure(error=RateLimited(retry_after_s=30.0), rate_limited=1)
    assert decide(DOWNLOAD_POLICY, again) == GiveUp(
        reason=GiveUpReason.RATE_LIMIT_EXHAUSTED, attempts=1
    )
    no_hint = make_failure(error=RateLimited(), rate_limited=1, attempt=2)
    assert decide(DOWNLOAD_POLICY, no_hint) == GiveUp(
        reason=GiveUpReason.RATE_LIMIT_EXHAUSTED, attempts=2
    )


def test_spec5_risk1_retry_after_is_capped() -> None:
    decision = decide(DOWNLOAD_POLICY, make_failure(error=RateLimited(retry_after_s=1e9)))
    assert isinstance(decision, RetryAt)
    assert decision.delay_s == 300.0


def test_http_401_is_final_on_first_attempt() -> None:
    assert decide(DOWNLOAD_POLICY, make_failure(error=Final())) == GiveUp(
        reason=GiveUpReason.FINAL, attempts=1
    )


def test_design_5_8_retry_after_costs_no_attempt_even_on_last() -> None:
    decision = decide(PLAIN, make_failure(attempt=3, error=RateLimited(retry_after_s=5.0)))
    assert decision == RetryAt(
        delay_s=5.0, reason=RetryReason.RETRY_AFTER, attempt=3, rate_limited=1
    )


def test_design_5_8_rate_limit_waits_are_bounded() -> None:
    policy = evolve(PLAIN, max_rate_limited=4)
    told = RateLimited(retry_after_s=5.0)
    assert isinstance(decide(policy, make_failure(error=told, rate_limited=3)), RetryAt)
    assert decide(policy, make_failure(error=told, rate_limited=4)) == GiveUp(
        reason=GiveUpReason.RATE_LIMIT_EXHAUSTED, attempts=1
    )


def test_spec4_rate_limit_without_hint_backs_off_and_costs_attempt() -> None:
    assert decide(PLAIN, make_failure(attempt=2, error=RateLimited(), rate_limited=1)) == RetryAt(
        delay_s=2.0, reason=RetryReason.BACKOFF, attempt=3, rate_limited=2
    )
    assert decide(PLAIN, make_failure(attempt=3, error=RateLimited())) == GiveUp(
        reason=GiveUpReason.ATTEMPTS_EXHAUSTED, attempts=3
    )


def test_retry_after_zero_is_honoured() -> None:
    assert decide(PLAIN, make_failure(attempt=3, error=RateLimited(retry_after_s=0.0))) == RetryAt(
        delay_s=0.0, reason=RetryReason.RETRY_AFTER, attempt=3, rate_limited=1
    )


@pytest.mark.parametrize(
    ("elapsed_s", "retried"), [(0.0, True), (8.99, True), (9.0, False), (50.0, False)]
)
def test_no_retry_starts_at_or_after_deadline(elapsed_s: float, retried: bool) -> None:  # noqa: FBT001  # a table
    policy = evolve(PLAIN, deadline_s=10.0)
    decision = decide(policy, make_failure(elapsed_s=elapsed_s))
    if retried:
        assert isinstance(decision, RetryAt)
    else:
        assert decision == GiveUp(reason=GiveUpReason.DEADLINE_EXCEEDED, attempts=1)


def test_invariant_23_retry_after_never_extends_deadline() -> None:
    policy = evolve(PLAIN, deadline_s=10.0)
    decision = decide(policy, make_failure(error=RateLimited(retry_after_s=30.0)))
    assert decision == GiveUp(reason=GiveUpReason.DEADLINE_EXCEEDED, attempts=1)


def test_design_5_17_empty_budget_delays_retry_and_is_named() -> None:
    decision = decide(PLAIN, make_failure(budget_tokens=0.0, budget_wait_s=7.5))
    assert decision == RetryAt(
        delay_s=7.5, reason=RetryReason.RETRY_BUDGET, attempt=2, rate_limited=0
    )
    assert costs_token(decision)


@pytest.mark.parametrize("wait_s", [None, 0.0, 0.5, 1.0])
def test_design_5_17_backoff_that_outlasts_the_budget_keeps_its_name(wait_s: float | None) -> None:
    decision = decide(PLAIN, make_failure(budget_wait_s=wait_s))
    assert decision == RetryAt(delay_s=1.0, reason=RetryReason.BACKOFF, attempt=2, rate_limited=0)
    assert costs_token(decision)


def test_design_5_17_requested_wait_costs_no_token() -> None:
    told = make_failure(error=RateLimited(retry_after_s=3.0), budget_wait_s=60.0)
    decision = decide(PLAIN, told)
    assert decision == RetryAt(
        delay_s=3.0, reason=RetryReason.RETRY_AFTER, attempt=1, rate_limited=1
    )
    assert not costs_token(decision)


def test_design_5_17_only_a_deadline_ends_the_wait_for_a_token() -> None:
    waiting = make_failure(budget_wait_s=9.0)
    assert isinstance(decide(evolve(PLAIN, deadline_s=9.1), waiting), RetryAt)
    ended = decide(evolve(PLAIN, deadline_s=9.0), waiting)
    assert ended == GiveUp(reason=GiveUpReason.DEADLINE_EXCEEDED, attempts=1)
    assert not costs_token(ended)


def test_version_1_gives_up_when_the_budget_is_empty() -> None:
    assert decide(PLAIN, make_failure(budget_tokens=0.99), version=1) == GiveUp(
        reason=GiveUpReason.BUDGET_EXHAUSTED, attempts=1
    )
    assert isinstance(decide(PLAIN, make_failure(budget_tokens=1.0), version=1), RetryAt)
    assert isinstance(decide(PLAIN, make_failure(budget_tokens=None), version=1), RetryAt)
    told = RateLimited(retry_after_s=3.0)
    assert decide(PLAIN, make_failure(error=told, budget_tokens=0.0), version=1) == GiveUp(
        reason=GiveUpReason.BUDGET_EXHAUSTED, attempts=1
    )


def test_every_rule_has_a_label() -> None:
    assert [rule.label for rule in RetryReason] == ["backoff", "Retry-After", "retry budget"]


@pytest.mark.parametrize("reason", GiveUpReason)
def test_every_giveup_reason_has_explanation(reason: GiveUpReason) -> None:
    assert len(reason.explanation) > 10


def test_giveup_reason_explanations() -> None:
    assert GiveUpReason.FINAL.explanation == "the error is not retryable"
    assert "attempts are used up" in GiveUpReason.ATTEMPTS_EXHAUSTED.explanation
    assert "still rate-limited after" in GiveUpReason.RATE_LIMIT_EXHAUSTED.explanation
    assert "budget is empty" in GiveUpReason.BUDGET_EXHAUSTED.explanation
    assert "after the deadline" in GiveUpReason.DEADLINE_EXCEEDED.explanation


@pytest.mark.parametrize(
    "fields",
    [
        {"key": "\ud800"},
        {"key": None},
        {"error": None},
        {"error": Retryable},
        {"attempt": 0},
        {"rate_limited": -1},
        {"elapsed_s": -1.0},
        {"budget_tokens": -0.1},
        {"budget_wait_s": -0.1},
    ],
)
def test_invalid_failure_is_rejected(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match=f"Failure.{next(iter(fields))}"):
        make_failure(**fields)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (RetryAt, {"delay_s": -1.0}),
        (RetryAt, {"delay_s": float("inf")}),
        (RetryAt, {"attempt": 0}),
        (RetryAt, {"rate_limited": -1}),
        (RetryAt, {"reason": "backoff"}),
        (GiveUp, {"attempts": 0}),
        (GiveUp, {"reason": "final"}),
    ],
)
def test_invalid_decision_is_rejected(kind: type, fields: dict[str, Any]) -> None:
    good: dict[type, dict[str, Any]] = {
        RetryAt: {"delay_s": 1.0, "reason": RetryReason.BACKOFF, "attempt": 2, "rate_limited": 0},
        GiveUp: {"reason": GiveUpReason.FINAL, "attempts": 1},
    }
    with pytest.raises(InvalidValueError, match=rf"{kind.__name__}\.{next(iter(fields))}"):
        kind(**{**good[kind], **fields})


@given(policies(), failures)
def test_decision_respects_every_policy_limit(policy: RetryPolicy, failed: Failure) -> None:
    decision = decide(policy, failed)
    if isinstance(decision, RetryAt):
        longest_s = max(policy.max_delay, policy.max_retry_after_s, failed.budget_wait_s or 0)
        assert 0 <= decision.delay_s <= longest_s
        assert decision.attempt <= max(policy.max_attempts, failed.attempt)
        assert decision.rate_limited <= max(policy.max_rate_limited, failed.rate_limited)
        assert not isinstance(failed.error, Final)
        if costs_token(decision):
            assert decision.delay_s >= (failed.budget_wait_s or 0)
        if policy.deadline_s is not None:
            assert failed.elapsed_s + decision.delay_s < policy.deadline_s
        # Each retry uses up something that is bounded.
        assert (decision.attempt, decision.rate_limited) > (failed.attempt, failed.rate_limited)
    else:
        assert decision.attempts == failed.attempt


@given(policies(), failures)
def test_decision_is_deterministic(policy: RetryPolicy, failed: Failure) -> None:
    assert decide(policy, failed) == decide(evolve(policy), evolve(failed))


# Spec 4: calculate_next_retry


@pytest.mark.parametrize(
    ("retry_count", "delay_s"),
    [(0, 60), (1, 120), (2, 240), (3, 480), (4, 960), (5, 1920), (6, 3600)],
)
def test_spec4_phase5_exponential_backoff(retry_count: int, delay_s: int) -> None:
    expected = NOW + timedelta(seconds=delay_s)
    assert calculate_next_retry(retry_count, Retryable(), RUN_POLICY, now=NOW) == expected


@pytest.mark.parametrize("retry_count", [7, 8, 100])
def test_spec4_phase5_max_attempts(retry_count: int) -> None:
    assert calculate_next_retry(retry_count, Retryable(), RUN_POLICY, now=NOW) is None


def test_spec4_phase5_final_errors_are_never_retried() -> None:
    assert calculate_next_retry(0, Final(), RUN_POLICY, now=NOW) is None


def test_spec4_phase5_rate_limited_uses_hint_or_backoff() -> None:
    hinted = calculate_next_retry(7, RateLimited(retry_after_s=90.0), RUN_POLICY, now=NOW)
    assert hinted == NOW + timedelta(seconds=90)
    unhinted = calculate_next_retry(2, RateLimited(), RUN_POLICY, now=NOW)
    assert unhinted == NOW + timedelta(seconds=240)


def test_spec4_negative_retry_count_is_rejected() -> None:
    with pytest.raises(InvalidValueError):
        calculate_next_retry(-1, Retryable(), RUN_POLICY, now=NOW)


def test_design_5_8_rate_limit_waits_are_bounded_by_count_and_run_age() -> None:
    hint = RateLimited(retry_after_s=90.0)
    policy = evolve(RUN_POLICY, deadline_s=1_000.0)
    assert calculate_next_retry(0, hint, policy, now=NOW, rate_limited=99) is not None
    assert calculate_next_retry(0, hint, policy, now=NOW, rate_limited=100) is None
    assert calculate_next_retry(0, hint, policy, now=NOW, age_s=909.9) is not None
    assert calculate_next_retry(0, hint, policy, now=NOW, age_s=910.0) is None


def test_spec4_run_age_and_rate_limit_count_default_to_zero() -> None:
    hint = RateLimited(retry_after_s=90.0)
    policy = evolve(RUN_POLICY, max_rate_limited=1, deadline_s=90.5)
    assert calculate_next_retry(0, hint, policy, now=NOW) == NOW + timedelta(seconds=90)


def test_design_5_7_jitter_without_run_key_is_rejected() -> None:
    jittered = evolve(RUN_POLICY, jitter_enabled=True)
    with pytest.raises(InvalidValueError, match="key: must name the run"):
        calculate_next_retry(0, Retryable(), jittered, now=NOW)


def test_naive_now_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match="now: must be a time with a time zone"):
        calculate_next_retry(0, Retryable(), RUN_POLICY, now=NOW.replace(tzinfo=None))


def test_spec4_retry_after_of_run_is_honoured_up_to_one_day() -> None:
    hour = RateLimited(retry_after_s=3600.0)
    assert calculate_next_retry(0, hour, RUN_POLICY, now=NOW) == NOW + timedelta(hours=1)
    month = RateLimited(retry_after_s=30 * 86_400.0)
    assert calculate_next_retry(0, month, RUN_POLICY, now=NOW) == NOW + timedelta(days=1)


def test_jittered_run_policy_spreads_runs_by_key() -> None:
    policy = evolve(RUN_POLICY, jitter_enabled=True)
    times = {
        calculate_next_retry(0, Retryable(), policy, now=NOW, key=f"run-{n}") for n in range(20)
    }
    assert len(times) == 20


def test_only_final_giveup_reason_is_final() -> None:
    ends = [GiveUp(reason=reason, attempts=1) for reason in GiveUpReason]
    assert [end.reason for end in ends if end.is_final] == [GiveUpReason.FINAL]
