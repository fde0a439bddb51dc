"""Delays: growth, cap, jitter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import keys, policies

from tileferry.domain.retry import (
    BackoffKind,
    RetryPolicy,
    compute_jittered_delay,
    compute_nominal_delay,
)

attempts = st.integers(1, 1_000)


@pytest.mark.parametrize(
    ("attempt", "nominal", "least", "most"),
    [(1, 1.0, 0.9, 1.1), (2, 2.0, 1.8, 2.2), (3, 4.0, 3.6, 4.4), (4, 8.0, 7.2, 8.8)],
)
def test_spec2_delay_examples(attempt: int, nominal: float, least: float, most: float) -> None:
    policy = RetryPolicy(max_attempts=5)
    assert compute_nominal_delay(policy, attempt) == nominal
    delays = [compute_jittered_delay(policy, attempt, f"call-{number}") for number in range(300)]
    assert min(delays) >= least
    assert max(delays) <= most
    # All of the range is used, not only its middle.
    assert min(delays) < nominal * 0.92
    assert max(delays) > nominal * 1.08


def test_spec2_delays_are_capped_at_max_delay() -> None:
    policy = RetryPolicy(max_attempts=10, jitter_enabled=False)
    assert [compute_nominal_delay(policy, n) for n in (5, 6, 7, 10)] == [16.0, 30.0, 30.0, 30.0]
    assert compute_jittered_delay(policy, 9, "k") == 30.0


def test_jitter_spreads_delays_below_cap() -> None:
    policy = RetryPolicy(max_attempts=10)
    delays = {compute_jittered_delay(policy, 9, f"call-{number}") for number in range(200)}
    assert len(delays) == 200
    assert max(delays) <= 30.0
    assert min(delays) >= 27.0
    assert min(delays) < 27.5


def test_power_backoff_raises_base_to_attempt() -> None:
    policy = RetryPolicy(
        backoff=BackoffKind.POWER, base_delay=3.0, max_delay=100.0, jitter_enabled=False
    )
    assert [compute_nominal_delay(policy, n) for n in (1, 2, 3, 4, 5)] == [
        3.0,
        9.0,
        27.0,
        81.0,
        100.0,
    ]


@pytest.mark.parametrize("backoff", BackoffKind)
@pytest.mark.parametrize("attempt", [1, 100, 200, 999])
def test_zero_base_delay_stays_zero(backoff: BackoffKind, attempt: int) -> None:
    policy = RetryPolicy(
        max_attempts=1_000, base_delay=0, max_delay=30.0, backoff_multiplier=100, backoff=backoff
    )
    assert compute_jittered_delay(policy, attempt, "k") == 0.0


@pytest.mark.parametrize("backoff", BackoffKind)
def test_overflowing_delay_is_capped(backoff: BackoffKind) -> None:
    policy = RetryPolicy(
        max_attempts=1_000,
        backoff=backoff,
        base_delay=30.0,
        backoff_multiplier=100.0,
        jitter_enabled=False,
    )
    assert compute_nominal_delay(policy, 999) == 30.0


def test_jitter_matches_first_release() -> None:
    """Changing the derivation would make every past decision replay differently."""
    policy = RetryPolicy()
    assert compute_jittered_delay(policy, 1, "call") == 0.9187281538863801
    assert compute_jittered_delay(policy, 2, "call") == 2.080838518992178
    assert compute_jittered_delay(policy, 1, "other") == 1.0079657609053805


@given(policies(), attempts, keys)
def test_delay_is_within_jitter_and_cap(policy: RetryPolicy, attempt: int, key: str) -> None:
    nominal = compute_nominal_delay(policy, attempt)
    delay = compute_jittered_delay(policy, attempt, key)
    assert 0 <= delay <= policy.max_delay
    rounding = 1e-9 * nominal + 1e-300
    slack = nominal * policy.jitter_factor + rounding if policy.jitter_enabled else 0.0
    assert abs(delay - nominal) <= slack


@given(policies(), attempts, keys)
def test_jitter_is_deterministic_per_key_and_attempt(
    policy: RetryPolicy, attempt: int, key: str
) -> None:
    assert compute_jittered_delay(policy, attempt, key) == compute_jittered_delay(
        policy, attempt, key
    )


@given(policies(), st.integers(1, 999))
def test_exponential_delays_never_shrink(policy: RetryPolicy, attempt: int) -> None:
    if policy.backoff is BackoffKind.EXPONENTIAL or policy.base_delay >= 1:
        assert compute_nominal_delay(policy, attempt) <= compute_nominal_delay(policy, attempt + 1)


@given(keys, keys)
def test_different_keys_get_different_delays(key: str, other: str) -> None:
    policy = RetryPolicy()
    if key != other:
        same = sum(
            compute_jittered_delay(policy, attempt, key)
            == compute_jittered_delay(policy, attempt, other)
            for attempt in range(1, 6)
        )
        assert same == 0


def test_attempt_and_key_are_separated_in_jitter_seed() -> None:
    policy = RetryPolicy(base_delay=1.0, backoff_multiplier=1.0, max_delay=1.5)
    assert compute_jittered_delay(policy, 1, "1k") != compute_jittered_delay(policy, 11, "k")
