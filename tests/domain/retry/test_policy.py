"""A policy holds what spec 2 lists, and refuses what cannot be."""

import math
from typing import Any

import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import BackoffKind, RetryPolicy


def test_spec2_defaults() -> None:
    policy = RetryPolicy()
    assert policy.max_attempts == 3
    assert policy.base_delay == 1.0
    assert policy.max_delay == 30.0
    assert policy.backoff_multiplier == 2.0
    assert policy.jitter_enabled is True
    assert policy.jitter_factor == 0.1
    assert policy.retryable_exceptions == (Exception,)
    assert policy.non_retryable_exceptions == ()


def test_defaults_beyond_spec2() -> None:
    policy = RetryPolicy()
    assert policy.backoff is BackoffKind.EXPONENTIAL
    assert policy.deadline_s is None
    assert policy.max_rate_limited == 10
    assert policy.max_retry_after_s == 300.0


def test_spec2_custom_policy_example() -> None:
    policy = RetryPolicy(
        max_attempts=5,
        base_delay=2.0,
        max_delay=60.0,
        backoff_multiplier=1.5,
        jitter_enabled=True,
        jitter_factor=0.2,
    )
    assert (policy.max_attempts, policy.base_delay, policy.max_delay) == (5, 2.0, 60.0)
    assert (policy.backoff_multiplier, policy.jitter_factor) == (1.5, 0.2)


def test_lists_of_exceptions_are_accepted_and_frozen() -> None:
    policy = RetryPolicy(
        retryable_exceptions=[OSError], non_retryable_exceptions=[ValueError, KeyboardInterrupt]
    )
    assert policy.retryable_exceptions == (OSError,)
    assert policy.non_retryable_exceptions == (ValueError, KeyboardInterrupt)
    assert hash(policy) == hash(
        RetryPolicy(
            retryable_exceptions=(OSError,),
            non_retryable_exceptions=(ValueError, KeyboardInterrupt),
        )
    )


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("max_attempts", 0, "whole number from 1 to 1000"),
        ("max_attempts", 1_001, "whole number from 1 to 1000"),
        ("max_attempts", True, "whole number"),
        ("max_attempts", 2.0, "whole number"),
        ("base_delay", -0.1, "finite number from 0 to 604800"),
        ("base_delay", math.nan, "finite number"),
        ("base_delay", "1", "finite number"),
        ("max_delay", math.inf, "finite number from 0 to 604800"),
        ("max_delay", 604_800.1, "finite number"),
        ("max_delay", 0.5, "below base_delay, 1 s"),
        ("backoff_multiplier", 0.99, "finite number from 1 to 100"),
        ("backoff_multiplier", 100.1, "finite number from 1 to 100"),
        ("jitter_enabled", 1, "must be a bool"),
        ("jitter_factor", -0.01, "finite number from 0 to 1"),
        ("jitter_factor", 1.01, "finite number from 0 to 1"),
        ("retryable_exceptions", [BaseException], "subclasses of Exception only"),
        ("retryable_exceptions", [KeyboardInterrupt], "subclasses of Exception only"),
        ("retryable_exceptions", [GeneratorExit], "subclasses of Exception only"),
        ("retryable_exceptions", [ValueError()], "subclasses of Exception only"),
        ("retryable_exceptions", [int], "subclasses of Exception only"),
        ("retryable_exceptions", ValueError, "must be a list"),
        ("retryable_exceptions", None, "must be a list"),
        ("non_retryable_exceptions", "ValueError", "must be a list"),
        pytest.param("max_attempts", 10**5000, "whole number", id="huge"),
        ("non_retryable_exceptions", [int], "subclasses of BaseException only"),
        ("backoff", "power", "must be a BackoffKind"),
        ("deadline_s", -1, "finite number from 0 to 7776000"),
        ("deadline_s", 7_776_001, "finite number from 0 to 7776000"),
        ("max_rate_limited", -1, "whole number from 0 to 1000"),
        ("max_rate_limited", 1_001, "whole number from 0 to 1000"),
        ("max_retry_after_s", 604_801, "finite number from 0 to 604800"),
    ],
)
def test_spec2_invalid_values_are_rejected_by_field(field: str, value: Any, problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem) as refusal:
        RetryPolicy(**{field: value})
    assert refusal.value.field == f"RetryPolicy.{field}"
    assert str(refusal.value).startswith(f"RetryPolicy.{field}: ")


@pytest.mark.parametrize(
    "fields",
    [
        {"max_attempts": 1},
        {"max_attempts": 1_000},
        {"base_delay": 0},
        {"base_delay": 30.0},
        {"max_delay": 604_800.0},
        {"backoff_multiplier": 1},
        {"backoff_multiplier": 100},
        {"jitter_factor": 0},
        {"jitter_factor": 1},
        {"deadline_s": 0},
        {"deadline_s": 7_776_000},
        {"max_rate_limited": 0},
        {"max_rate_limited": 1_000},
        {"max_retry_after_s": 0},
        {"max_retry_after_s": 604_800},
    ],
)
def test_boundary_values_are_accepted(fields: dict[str, Any]) -> None:
    RetryPolicy(**fields)


def test_integers_are_converted_to_floats() -> None:
    policy = RetryPolicy(base_delay=1, max_delay=30, backoff_multiplier=2, deadline_s=9)
    assert isinstance(policy.base_delay, float)
    assert isinstance(policy.deadline_s, float)
    assert policy == RetryPolicy(base_delay=1.0, deadline_s=9.0)


def test_power_policy_allows_max_delay_below_base() -> None:
    policy = RetryPolicy(backoff=BackoffKind.POWER, base_delay=2.0, max_delay=1.0)
    assert policy.max_delay == 1.0


def test_max_delay_below_base_delay_names_remedy() -> None:
    with pytest.raises(InvalidValueError) as refusal:
        RetryPolicy(base_delay=2.0, max_delay=1.5)
    assert refusal.value.value == 1.5
    assert refusal.value.remedy == "raise max_delay or lower base_delay"
