"""Which errors are worth another try."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import (
    ErrorClass,
    Final,
    RateLimited,
    Retryable,
    RetryPolicy,
    classify_exception,
)


class NetworkError(OSError):
    """As in spec 2's example."""


def test_spec2_default_policy_retries_all_exceptions() -> None:
    assert classify_exception(RuntimeError(), RetryPolicy()) == Retryable()
    assert classify_exception(ValueError(), RetryPolicy()) == Retryable()


@pytest.mark.parametrize("error", [ValueError(), TypeError(), KeyError()])
def test_spec2_strict_policy_fails_fast_on_listed_exceptions(error: Exception) -> None:
    strict = RetryPolicy(non_retryable_exceptions=[ValueError, TypeError, KeyError])
    assert classify_exception(error, strict) == Final()
    assert classify_exception(OSError(), strict) == Retryable()


def test_spec2_lenient_policy_retries_class_in_both_lists() -> None:
    lenient = RetryPolicy(
        non_retryable_exceptions=[ValueError], retryable_exceptions=[ValueError, NetworkError]
    )
    assert classify_exception(ValueError(), lenient) == Retryable()
    assert classify_exception(NetworkError(), lenient) == Retryable()


def test_design_5_6_most_specific_class_wins() -> None:
    policy = RetryPolicy(
        retryable_exceptions=[Exception, ConnectionError], non_retryable_exceptions=[OSError]
    )
    assert classify_exception(ConnectionResetError(), policy) == Retryable()
    assert classify_exception(FileNotFoundError(), policy) == Final()
    assert classify_exception(KeyError(), policy) == Retryable()


def test_spec2_error_in_neither_list_is_retryable() -> None:
    policy = RetryPolicy(retryable_exceptions=[NetworkError], non_retryable_exceptions=[ValueError])
    assert classify_exception(KeyError(), policy) == Retryable()


@pytest.mark.parametrize(
    "interrupt", [KeyboardInterrupt(), SystemExit(), GeneratorExit(), asyncio.CancelledError()]
)
def test_interrupts_and_cancellation_are_final(interrupt: BaseException) -> None:
    assert classify_exception(interrupt, RetryPolicy()) == Final()


@pytest.mark.parametrize(
    ("error_class", "code"),
    [(Final(), "final"), (Retryable(), "retryable"), (RateLimited(), "rate_limited")],
)
def test_spec4_error_class_codes(error_class: ErrorClass, code: str) -> None:
    assert error_class.code == code


@pytest.mark.parametrize("wait", [-1, float("nan"), float("inf"), "30", 10**400])
def test_invalid_retry_after_is_rejected(wait: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"RateLimited\.retry_after_s: .* of at least 0"):
        RateLimited(retry_after_s=wait)


KINDS = [Exception, OSError, ConnectionError, ConnectionResetError, ValueError, UnicodeError]


@given(st.sets(st.sampled_from(KINDS)), st.sets(st.sampled_from(KINDS)), st.sampled_from(KINDS))
def test_nearest_class_in_mro_decides(
    retryable: set[type[Exception]], final: set[type[Exception]], kind: type[Exception]
) -> None:
    policy = RetryPolicy(retryable_exceptions=retryable, non_retryable_exceptions=final)
    mro = kind.__mro__
    near_retry = min((mro.index(k) for k in retryable if k in mro), default=99)
    near_final = min((mro.index(k) for k in final if k in mro), default=99)
    expected = Retryable() if near_retry <= near_final else Final()
    error = kind() if kind is not UnicodeError else UnicodeError("x")
    assert classify_exception(error, policy) == expected
