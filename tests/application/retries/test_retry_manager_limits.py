"""What bounds retries, and what must not get in their way."""

import asyncio
import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.managers import (
    PUBLISH,
    Bench,
    BrokenSink,
    Form,
    Script,
    async_form,
    both,
    every_form,
    sync_form,
)

from tileferry.adapters.memory import MemoryIdempotencyStore
from tileferry.adapters.system import SharedRetryTokens
from tileferry.application import AuditTrail
from tileferry.domain.errors import (
    AuditError,
    IdempotencyConflictError,
    IdempotencyInProgressError,
    InvalidValueError,
    RetryError,
)
from tileferry.domain.retry import (
    ErrorClass,
    GiveUpReason,
    Retryable,
    RetryBudget,
)

# The budget of retries


@every_form
def test_invariant_22_retries_are_paid_from_a_bucket_that_all_calls_share(form: Form) -> None:
    bench = Bench()
    budget = RetryBudget(capacity=2.0, earned_per_attempt=0.0)
    manager = bench.manager(tokens=SharedRetryTokens(clock=bench.clock, budget=budget))
    first, second = Script(*[OSError()] * 9), Script(*[OSError()] * 9)
    assert form(manager, Script()) == "done"
    assert form(manager, Script(OSError())) == "done"
    with pytest.raises(RetryError) as failure:
        form(manager, first)
    assert (first.calls, failure.value.reason) == (2, GiveUpReason.BUDGET_EXHAUSTED)
    with pytest.raises(RetryError):
        form(manager, second)
    assert second.calls == 1


def test_invariant_22_what_is_given_back_earns_nothing() -> None:
    bench = Bench()
    tokens = SharedRetryTokens(clock=bench.clock, budget=RetryBudget(capacity=1.0, tokens=0.0))
    manager = bench.manager(tokens=tokens)
    for form in (sync_form, async_form):
        for _ in range(20):
            form(manager, Script(), idempotency_key="k")
    assert tokens.budget.tokens == pytest.approx(0.1)


def test_invariant_22_what_succeeds_earns_retries_again() -> None:
    bench = Bench()
    budget = RetryBudget(capacity=1.0, tokens=0.0)
    manager = bench.manager(tokens=SharedRetryTokens(clock=bench.clock, budget=budget))
    for _ in range(10):
        sync_form(manager, Script())
    assert sync_form(manager, Script(OSError())) == "done"


# What must not get in the way


BAD_LABELS: list[dict[str, Any]] = [
    {"tenant_id": 123},
    {"correlation_id": "\ud800"},
    {"trace_id": object()},
    {"additional_context": "x"},
    {"additional_context": {"when": datetime(2026, 1, 1, tzinfo=UTC)}},
    {"additional_context": {1: 2}},
]


@both
@pytest.mark.parametrize("labels", BAD_LABELS)
def test_a_label_that_makes_no_sense_hides_no_error_and_costs_no_effect(
    form: Form, labels: dict[str, Any]
) -> None:
    bench, script = Bench(), Script(OSError())
    bench.store = MemoryIdempotencyStore(clock=bench.clock, audit_sink=bench.sink)
    manager = bench.manager()
    assert form(manager, script, idempotency_key="k", **labels) == "done"
    assert form(manager, Script(), idempotency_key="k", **labels) == "done"
    assert bench.kinds == ["retry_attempt", "retry_succeeded", "idempotency", "idempotency"]
    with pytest.raises(RetryError) as failure:
        form(manager, Script(*[OSError("real")] * 9), **labels)
    assert str(failure.value.__cause__) == "real"
    assert bench.trail.failures == {}


@pytest.mark.parametrize("operation", [None, 5, "", "\ud800"])
def test_an_operation_without_a_name_is_retried_all_the_same(operation: Any) -> None:
    bench = Bench()
    bench.clock.set_wall_clock(-1e15)
    manager = bench.manager()
    assert manager.execute_with_retry_sync(PUBLISH, operation, Script(OSError())) == "done"
    assert bench.kinds == ["retry_attempt", "retry_succeeded"]


@both
def test_our_own_errors_are_not_kept_as_the_end_of_the_operation(form: Form) -> None:
    bench = Bench()
    closed = AuditTrail(logger=logging.getLogger("x"), sinks=[BrokenSink()], fail_closed=True)
    with pytest.raises(AuditError):
        form(bench.manager(audit=closed), Script(OSError()), idempotency_key="k")

    def broken(_error: BaseException) -> ErrorClass:
        raise RuntimeError("classifier")

    with pytest.raises(RuntimeError, match="classifier"):
        form(bench.manager(), Script(OSError()), idempotency_key="k", classifier=broken)
    assert form(bench.manager(), Script(), idempotency_key="k") == "done"


def test_the_wrong_form_leaves_the_key_free() -> None:
    bench = Bench()
    manager = bench.manager()

    async def work() -> str:
        return "done"

    with pytest.raises(InvalidValueError, match="cannot be tried again"):
        _ = manager.execute_with_retry_sync(PUBLISH, "x", work, idempotency_key="k")
    assert (
        asyncio.run(manager.execute_with_retry(PUBLISH, "x", work, idempotency_key="k")) == "done"
    )


def test_a_classifier_may_use_the_manager_itself() -> None:
    bench = Bench()
    manager = bench.manager(tokens=SharedRetryTokens(clock=bench.clock))

    def classify(_error: BaseException) -> ErrorClass:
        manager.execute_with_retry_sync(PUBLISH, "look it up", Script(OSError()))
        return Retryable()

    done: list[Any] = []
    thread = threading.Thread(
        target=lambda: done.append(sync_form(manager, Script(OSError()), classifier=classify)),
        daemon=True,
    )
    thread.start()
    thread.join(10)
    assert done == ["done"]


def test_the_test_mode_does_not_wait_for_a_busy_key_either() -> None:
    bench = Bench()
    bench.store.claim("k", fingerprint="other", owner="x", lease=timedelta(hours=1))
    quick = bench.manager().without_waiting()
    with pytest.raises(IdempotencyConflictError):
        sync_form(quick, Script(), idempotency_key="k")
    sync_form(quick, Script(), idempotency_key="free")
    record = bench.store.find("free")
    assert record is not None
    bench.store.clear("free")
    bench.store.claim("free", fingerprint=record.fingerprint, owner="x", lease=timedelta(hours=1))
    with pytest.raises(IdempotencyInProgressError):
        sync_form(quick, Script(), idempotency_key="free")
    assert bench.clock.slept == []


def test_names_with_control_characters_are_shown_escaped(caplog: pytest.LogCaptureFixture) -> None:
    evil = type("Evil\x1b[2J\n", (OSError,), {})
    with pytest.raises(RetryError) as failure:
        Bench().manager().execute_with_retry_sync(PUBLISH, "op\x1b[2J\n", Script(*[evil()] * 9))
    assert "\x1b" not in f"{failure.value}{caplog.text}"
    assert all("\n" not in record.getMessage() for record in caplog.records)
