"""What bounds retries, and what must not get in their way."""

import asyncio
import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.managers import (
    PUBLISH,
    FailingSink,
    Form,
    RetryBench,
    ScriptedOperation,
    call_async,
    call_sync,
    every_form,
    sync_and_async,
)

from tileferry.adapters.memory import MemoryIdempotencyStore
from tileferry.adapters.system import SharedRetryTokens
from tileferry.application import AuditTrail
from tileferry.domain.errors import (
    AuditError,
    IdempotencyConflictError,
    IdempotencyInProgressError,
    MisuseError,
    RetryError,
)
from tileferry.domain.retry import (
    ErrorClass,
    RateLimited,
    Retryable,
    RetryBudget,
    RetryReason,
)

# The budget of retries


@every_form
def test_invariant_22_calls_share_one_retry_budget(form: Form) -> None:
    bench = RetryBench()
    budget = RetryBudget(capacity=2.0, earned_per_success=0.0, refill_per_s=0.001)
    tokens = SharedRetryTokens(clock=bench.clock, budget=budget)
    manager = bench.create_manager(tokens=tokens)
    assert form(manager, ScriptedOperation()) == "done"
    for _ in range(2):
        assert form(manager, ScriptedOperation(OSError())) == "done"
    assert [wait.decision_record.decision.reason for wait in bench.retries] == ["backoff"] * 2
    assert form(manager, ScriptedOperation(OSError())) == "done"  # late, but not cancelled
    assert bench.retries[-1].decision_record.decision.reason is RetryReason.RETRY_BUDGET
    assert bench.retries[-1].delay_seconds == pytest.approx(1_000, rel=0.01)
    assert tokens.budget.tokens == pytest.approx(-1, abs=0.01)


def test_design_5_17_requested_waits_cost_no_token() -> None:
    bench = RetryBench()
    tokens = SharedRetryTokens(clock=bench.clock, budget=RetryBudget(capacity=1.0, tokens=0.0))
    manager = bench.create_manager(tokens=tokens)
    limited = ScriptedOperation(*[OSError()] * 3)
    told = RateLimited(retry_after_s=0.0)
    assert call_sync(manager, limited, classifier=lambda _error: told) == "done"
    assert {wait.delay_seconds for wait in bench.retries} == {0.0}
    assert tokens.budget.tokens == pytest.approx(0.5)  # earned by the success


def test_invariant_22_recorded_result_earns_no_tokens() -> None:
    bench = RetryBench()
    tokens = SharedRetryTokens(clock=bench.clock, budget=RetryBudget(capacity=1.0, tokens=0.0))
    manager = bench.create_manager(tokens=tokens)
    for form in (call_sync, call_async):
        for _ in range(20):
            form(manager, ScriptedOperation(), idempotency_key="k")
    assert tokens.budget.tokens == pytest.approx(0.5)


def test_invariant_22_successful_calls_earn_tokens() -> None:
    bench = RetryBench()
    budget = RetryBudget(capacity=1.0, tokens=0.0)
    manager = bench.create_manager(tokens=SharedRetryTokens(clock=bench.clock, budget=budget))
    for _ in range(10):
        call_sync(manager, ScriptedOperation())
    assert call_sync(manager, ScriptedOperation(OSError())) == "done"


# What must not get in the way


BAD_LABELS: list[dict[str, Any]] = [
    {"tenant_id": 123},
    {"correlation_id": "\ud800"},
    {"trace_id": object()},
    {"additional_context": "x"},
    {"additional_context": {"when": datetime(2026, 1, 1, tzinfo=UTC)}},
    {"additional_context": {1: 2}},
]


@sync_and_async
@pytest.mark.parametrize("labels", BAD_LABELS)
def test_invalid_label_hides_no_error_and_repeats_no_effect(
    form: Form, labels: dict[str, Any]
) -> None:
    bench, script = RetryBench(), ScriptedOperation(OSError())
    bench.store = MemoryIdempotencyStore(clock=bench.clock, audit_sink=bench.sink)
    manager = bench.create_manager()
    assert form(manager, script, idempotency_key="k", **labels) == "done"
    assert form(manager, ScriptedOperation(), idempotency_key="k", **labels) == "done"
    assert bench.kinds == ["retry_attempt", "retry_succeeded", "idempotency", "idempotency"]
    with pytest.raises(RetryError) as failure:
        form(manager, ScriptedOperation(*[OSError("real")] * 9), **labels)
    assert str(failure.value.__cause__) == "real"
    assert bench.trail.failures == {}


@pytest.mark.parametrize("operation", [None, 5, "", "\ud800"])
def test_operation_with_invalid_name_is_still_retried(operation: Any) -> None:
    bench = RetryBench()
    bench.clock.set_wall_clock(-1e15)
    manager = bench.create_manager()
    assert (
        manager.execute_with_retry_sync(PUBLISH, operation, ScriptedOperation(OSError())) == "done"
    )
    assert bench.kinds == ["retry_attempt", "retry_succeeded"]


@sync_and_async
def test_framework_errors_are_not_recorded_as_outcome(form: Form) -> None:
    bench = RetryBench()
    closed = AuditTrail(logger=logging.getLogger("x"), sinks=[FailingSink()], fail_closed=True)
    with pytest.raises(AuditError):
        form(bench.create_manager(audit=closed), ScriptedOperation(OSError()), idempotency_key="k")

    def broken(_error: BaseException) -> ErrorClass:
        raise RuntimeError("classifier")

    with pytest.raises(RuntimeError, match="classifier"):
        form(
            bench.create_manager(),
            ScriptedOperation(OSError()),
            idempotency_key="k",
            classifier=broken,
        )
    assert form(bench.create_manager(), ScriptedOperation(), idempotency_key="k") == "done"


def test_wrong_call_form_does_not_claim_key() -> None:
    bench = RetryBench()
    manager = bench.create_manager()

    async def work() -> str:
        return "done"

    with pytest.raises(MisuseError, match="cannot be called again"):
        _ = manager.execute_with_retry_sync(PUBLISH, "x", work, idempotency_key="k")
    assert (
        asyncio.run(manager.execute_with_retry(PUBLISH, "x", work, idempotency_key="k")) == "done"
    )


def test_classifier_may_call_same_manager() -> None:
    bench = RetryBench()
    manager = bench.create_manager(tokens=SharedRetryTokens(clock=bench.clock))

    def classify(_error: BaseException) -> ErrorClass:
        manager.execute_with_retry_sync(PUBLISH, "look it up", ScriptedOperation(OSError()))
        return Retryable()

    done: list[Any] = []
    thread = threading.Thread(
        target=lambda: done.append(
            call_sync(manager, ScriptedOperation(OSError()), classifier=classify)
        ),
        daemon=True,
    )
    thread.start()
    thread.join(10)
    assert done == ["done"]


def test_test_mode_does_not_wait_for_busy_key() -> None:
    bench = RetryBench()
    bench.store.claim("k", fingerprint="other", owner="x", lease=timedelta(hours=1))
    quick = bench.create_manager().without_waiting()
    with pytest.raises(IdempotencyConflictError):
        call_sync(quick, ScriptedOperation(), idempotency_key="k")
    call_sync(quick, ScriptedOperation(), idempotency_key="free")
    record = bench.store.find("free")
    assert record is not None
    bench.store.clear("free")
    bench.store.claim("free", fingerprint=record.fingerprint, owner="x", lease=timedelta(hours=1))
    with pytest.raises(IdempotencyInProgressError):
        call_sync(quick, ScriptedOperation(), idempotency_key="free")
    assert bench.clock.slept == []


def test_control_characters_in_names_are_escaped(caplog: pytest.LogCaptureFixture) -> None:
    evil = type("Evil\x1b[2J\n", (OSError,), {})
    with pytest.raises(RetryError) as failure:
        RetryBench().create_manager().execute_with_retry_sync(
            PUBLISH, "op\x1b[2J\n", ScriptedOperation(*[evil()] * 9)
        )
    assert "\x1b" not in f"{failure.value}{caplog.text}"
    assert all("\n" not in record.getMessage() for record in caplog.records)
