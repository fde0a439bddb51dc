"""Retries for calls that nearly always succeed: the manager is built at the first failure."""

import pytest
from support.managers import RetryBench, ScriptedOperation

from tileferry.application import RetryManager
from tileferry.application.retries.retries_on_failure import RetriesOnFailure
from tileferry.domain.errors import RetryError
from tileferry.domain.retry import POLICY_MATRIX, Final, RetryCategory

CATEGORY = RetryCategory.REPLAY_VALIDATION


def test_success_needs_no_manager() -> None:
    def build() -> RetryManager:
        raise AssertionError

    calls = RetriesOnFailure(RetryBench().clock, build)
    assert calls.execute_with_retry_sync(CATEGORY, "Read", lambda: 7) == 7


def test_failures_are_retried_and_audited_as_by_the_manager() -> None:
    results = []
    for lazily in (False, True):
        bench = RetryBench()
        calls = (
            RetriesOnFailure(bench.clock, bench.create_manager)
            if lazily
            else bench.create_manager()
        )
        operation = ScriptedOperation(TimeoutError("away"))
        assert calls.execute_with_retry_sync(CATEGORY, "Read", operation) == "done"
        results.append((bench.clock.now(), bench.events))
    assert results[0] == results[1]
    assert len(results[0][1]) == 2


def test_last_error_is_raised_as_by_the_manager() -> None:
    bench = RetryBench()
    calls = RetriesOnFailure(bench.clock, bench.create_manager)
    errors = [TimeoutError("away") for _ in range(POLICY_MATRIX[CATEGORY].max_attempts)]
    with pytest.raises(RetryError):
        calls.execute_with_retry_sync(CATEGORY, "Read", ScriptedOperation(*errors))
    assert bench.kinds[-1] == "retry_exhausted"


def test_classifier_decides() -> None:
    bench = RetryBench()
    calls = RetriesOnFailure(bench.clock, bench.create_manager)
    with pytest.raises(TimeoutError):
        calls.execute_with_retry_sync(
            CATEGORY, "Read", ScriptedOperation(TimeoutError()), classifier=lambda _: Final()
        )
