"""The retry manager: every form of it, over one loop, with its trace in the audit log."""

import asyncio
import contextlib
import functools
import inspect
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, get_type_hints

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from support.managers import Bench, Script

from tileferry.adapters.memory import MemoryAuditSink, MemoryIdempotencyStore
from tileferry.adapters.system import SharedRetryTokens
from tileferry.application import AuditTrail, RetryManager
from tileferry.domain.audit import (
    IdempotencyAction,
    IdempotencyUsed,
    RetryAttempted,
    RetryExhausted,
    RetrySucceeded,
    event_from_json,
)
from tileferry.domain.errors import (
    AuditError,
    IdempotencyConflictError,
    IdempotencyInProgressError,
    InvalidValueError,
    RetryError,
)
from tileferry.domain.retry import (
    POLICY_MATRIX,
    ErrorClass,
    GiveUpReason,
    RateLimited,
    Retryable,
    RetryBudget,
    RetryCategory,
    RetryPolicy,
    classify_exception,
    jittered_delay,
    replay,
)

PUBLISH = RetryCategory.NATS_PUBLISH
PLAIN = RetryPolicy(max_attempts=3, jitter_enabled=False)
OPERATION = "Publish to exoarmur.audit.append.v1"
WHO = {"tenant_id": "tenant-123", "correlation_id": "corr-456", "trace_id": "trace-789"}

Form = Callable[..., Any]


def sync_form(manager: RetryManager, script: Script, **options: Any) -> Any:
    return manager.execute_with_retry_sync(PUBLISH, OPERATION, script, **options)


def async_form(manager: RetryManager, script: Script, **options: Any) -> Any:
    return asyncio.run(manager.execute_with_retry(PUBLISH, OPERATION, script.awaited, **options))


both = pytest.mark.parametrize("form", [sync_form, async_form])


def loop_form(manager: RetryManager, script: Script, **options: Any) -> Any:
    for attempt in manager.attempts(PUBLISH, OPERATION, **options):
        with attempt:
            return script()
    raise AssertionError


def async_loop_form(manager: RetryManager, script: Script, **options: Any) -> Any:
    async def main() -> Any:
        async for attempt in manager.attempts(PUBLISH, OPERATION, **options):
            async with attempt:
                return await script.awaited()
        raise AssertionError

    return asyncio.run(main())


def decorator_form(manager: RetryManager, script: Script, **options: Any) -> Any:
    @manager.retries(PUBLISH, operation=OPERATION, **options)
    def work() -> Any:
        return script()

    return work()


def async_decorator_form(manager: RetryManager, script: Script, **options: Any) -> Any:
    @manager.retries(PUBLISH, operation=OPERATION, **options)
    async def work() -> Any:
        return await script.awaited()

    return asyncio.run(work())


every_form = pytest.mark.parametrize(
    "form",
    [sync_form, async_form, loop_form, async_loop_form, decorator_form, async_decorator_form],
)


# Policies


@pytest.mark.parametrize("category", RetryCategory)
def test_spec2_each_category_has_its_policy_by_name_and_by_code(category: RetryCategory) -> None:
    manager = Bench().manager()
    assert manager.get_policy(category) is POLICY_MATRIX[category]
    assert manager.get_policy(category.value) is POLICY_MATRIX[category]


def test_a_category_that_does_not_exist_is_refused_before_anything_runs() -> None:
    bench, script = Bench(), Script()
    with pytest.raises(InvalidValueError, match=r"is not a category of retries .*NATS_CONNECT"):
        bench.manager().execute_with_retry_sync("RETRY_SOMETHING", "x", script)
    assert script.calls == 0


def test_policies_are_overridden_by_configuration_and_by_call() -> None:
    bench = Bench()
    configured = {**POLICY_MATRIX, PUBLISH: evolve(PLAIN, max_attempts=2)}
    manager = bench.manager(policies=configured)
    script = Script(*[OSError()] * 9)
    with pytest.raises(RetryError):
        sync_form(manager, script)
    assert script.calls == 2
    with pytest.raises(RetryError):
        sync_form(manager, script, policy=evolve(PLAIN, max_attempts=4))
    assert script.calls == 6


# Every form asks the same loop


@every_form
def test_spec2_success_needs_no_retry_and_leaves_no_trace(form: Form) -> None:
    bench, script = Bench(), Script()
    assert form(bench.manager(), script) == "done"
    assert (script.calls, bench.clock.slept, bench.kinds) == (1, [], [])


@every_form
def test_spec2_what_fails_is_tried_again_after_its_delay(form: Form) -> None:
    bench, script = Bench(), Script(TimeoutError("Connection timeout"), OSError())
    assert form(bench.manager(), script) == "done"
    policy = POLICY_MATRIX[PUBLISH]
    assert bench.clock.slept == [jittered_delay(policy, n, "call-0") for n in (1, 2)]
    assert bench.kinds == ["retry_attempt", "retry_attempt", "retry_succeeded"]


@every_form
def test_spec2_exhaustion_raises_with_the_last_error_and_all_that_happened(form: Form) -> None:
    bench, last = Bench(), ConnectionError("third")
    script = Script(TimeoutError("first"), OSError("second"), last)
    with pytest.raises(RetryError) as failure:
        form(bench.manager(), script, policy=PLAIN)
    error = failure.value
    assert error.__cause__ is last
    assert (error.category, error.operation) == ("RETRY_NATS_PUBLISH", OPERATION)
    assert (error.attempts, error.reason) == (3, GiveUpReason.ATTEMPTS_EXHAUSTED)
    assert error.elapsed_s == sum(bench.clock.slept) == 3.0
    assert [line.summary for line in error.history] == [
        "TimeoutError: first",
        "OSError: second",
        "ConnectionError: third",
    ]
    assert bench.kinds == ["retry_attempt", "retry_attempt", "retry_exhausted"]


@every_form
def test_spec2_a_final_error_passes_as_it_is_and_is_audited(form: Form) -> None:
    bench, error = Bench(), ValueError("no")
    policy = evolve(PLAIN, non_retryable_exceptions=(ValueError, TypeError, KeyError))
    script = Script(error)
    with pytest.raises(ValueError, match=r"^no$") as failure:
        form(bench.manager(), script, policy=policy)
    assert failure.value is error
    assert script.calls == 1
    (event,) = bench.events
    assert isinstance(event, RetryExhausted)
    assert event.decision_record.decision.reason is GiveUpReason.FINAL


@every_form
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_interrupts_are_never_retried(form: Form, stop: type[BaseException]) -> None:
    bench, script = Bench(), Script(OSError(), stop())
    with pytest.raises(stop):
        form(bench.manager(), script)
    assert script.calls == 2
    assert bench.kinds == ["retry_attempt"]


@pytest.mark.parametrize("form", [async_form, async_loop_form, async_decorator_form])
def test_a_cancellation_is_never_retried(form: Form) -> None:
    bench, script = Bench(), Script(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        form(bench.manager(), script)
    assert (script.calls, bench.kinds) == (1, [])


def test_a_wait_can_be_cancelled() -> None:
    async def main() -> int:
        bench, script = Bench(), Script(*[OSError()] * 9)
        manager = bench.manager(sleep=asyncio.sleep)
        task = asyncio.ensure_future(manager.execute_with_retry(PUBLISH, OPERATION, script.awaited))
        while not bench.events:  # noqa: ASYNC110  # nobody tells when an event is there
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return script.calls

    assert asyncio.run(main()) == 1


@every_form
def test_what_the_other_side_asks_for_is_waited(form: Form) -> None:
    bench, script = Bench(), Script(OSError(), OSError())
    waits = iter([7.0, 2.5])
    assert form(bench.manager(), script, classifier=lambda _: RateLimited(next(waits))) == "done"
    assert bench.clock.slept == [7.0, 2.5]


@every_form
def test_the_test_mode_decides_the_same_and_waits_for_nothing(form: Form) -> None:
    patient, hasty = Bench(), Bench()
    errors = [OSError("a"), TimeoutError("b")]
    form(patient.manager(), Script(*errors))
    form(hasty.manager().without_waiting(), Script(*errors))
    assert hasty.clock.slept == []
    delays = [
        [event.delay_seconds for event in bench.events if isinstance(event, RetryAttempted)]
        for bench in (patient, hasty)
    ]
    assert delays[0] == delays[1] == patient.clock.slept


def test_spec2_calls_without_a_key_do_not_come_back_in_step() -> None:
    bench = Bench()
    manager = bench.manager()
    for _ in range(20):
        sync_form(manager, Script(OSError()))
    delays = bench.clock.slept
    assert len(set(delays)) > 15
    assert all(0.45 <= delay <= 0.55 for delay in delays)


# What cannot be tried again


def test_a_bare_coroutine_is_refused_with_a_clear_error() -> None:
    async def work() -> None: ...

    manager = Bench().manager()
    with pytest.raises(InvalidValueError, match=r"cannot be tried again .* give a function"):
        asyncio.run(manager.execute_with_retry(PUBLISH, OPERATION, work()))  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="cannot be tried again"):
        asyncio.run(manager.execute_with_retry(PUBLISH, OPERATION, lambda: 1))  # type: ignore[arg-type,return-value]
    with pytest.raises(InvalidValueError, match="cannot be tried again"):
        _ = manager.execute_with_retry_sync(PUBLISH, OPERATION, work)
    for key in (None, "k"):
        with pytest.raises(InvalidValueError, match="cannot be tried again"):
            manager.execute_with_retry_sync(PUBLISH, OPERATION, 7, idempotency_key=key)  # type: ignore[arg-type]
        with pytest.raises(InvalidValueError, match="cannot be tried again"):
            asyncio.run(
                manager.execute_with_retry(PUBLISH, OPERATION, work(), idempotency_key=key)  # type: ignore[arg-type]
            )


def test_an_attempt_that_is_not_entered_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="attempt: was not entered"):
        for _ in Bench().manager().attempts(PUBLISH, OPERATION):
            pass


# The decorator keeps the signature


def test_a_decorated_function_looks_like_itself() -> None:
    manager = Bench().manager()

    def scale(number: int, *, by: float = 2.0) -> float:
        """Scale."""
        return number * by

    decorated = manager.retries(PUBLISH)(scale)
    assert decorated(3, by=1.5) == 4.5
    assert inspect.signature(decorated) == inspect.signature(scale)
    assert get_type_hints(decorated) == get_type_hints(scale)
    assert (decorated.__name__, decorated.__doc__) == ("scale", "Scale.")

    @manager.retries(PUBLISH)
    async def scale_async(number: int) -> int:
        return number * 2

    assert inspect.iscoroutinefunction(scale_async)
    assert asyncio.run(scale_async(4)) == 8


def test_a_decorated_function_is_named_in_its_events() -> None:
    bench = Bench()

    @bench.manager().retries(PUBLISH)
    def fetch(errors: list[Exception]) -> str:
        if errors:
            raise errors.pop()
        return "ok"

    assert fetch([OSError()]) == "ok"
    (event, _) = bench.events
    assert isinstance(event, RetryAttempted)
    assert event.operation.endswith("fetch")


# Events


@both
def test_spec2_a_retry_is_audited_with_every_field(form: Form) -> None:
    bench, script = Bench(), Script(OSError(), TimeoutError("Connection timeout"))
    before = datetime.fromtimestamp(bench.clock.now(), UTC)
    context = {"stream": "audit"}
    form(bench.manager(), script, policy=PLAIN, **WHO, additional_context=context)
    event = bench.events[1]
    assert isinstance(event, RetryAttempted)
    told = event.as_json()
    del told["decision_record"]
    assert told == {
        "event_type": "retry_attempt",
        "retry_category": "RETRY_NATS_PUBLISH",
        "operation": OPERATION,
        "attempt_number": 2,
        "max_attempts": 3,
        "delay_seconds": 2.0,
        "exception_type": "TimeoutError",
        "exception_message": "Connection timeout",
        **WHO,
        "additional_context": context,
        "timestamp": "2025-06-15T15:06:41Z",
    }
    assert event.timestamp > before
    ended = bench.events[2]
    assert isinstance(ended, RetrySucceeded)
    assert (ended.total_attempts, ended.total_delay_seconds) == (3, 3.0)
    assert ended.correlation_id == "corr-456"


@both
def test_spec2_exhaustion_is_audited_with_every_field(form: Form) -> None:
    bench, script = Bench(), Script(*[TimeoutError("KV operation timeout")] * 3)
    with pytest.raises(RetryError):
        form(bench.manager(), script, policy=PLAIN, **WHO)
    event = bench.events[-1]
    assert isinstance(event, RetryExhausted)
    told = event.as_json()
    del told["decision_record"], told["timestamp"]
    assert told == {
        "event_type": "retry_exhausted",
        "retry_category": "RETRY_NATS_PUBLISH",
        "operation": OPERATION,
        "total_attempts": 3,
        "final_exception_type": "TimeoutError",
        "final_exception_message": "KV operation timeout",
        **WHO,
    }


@both
@pytest.mark.parametrize("result", ["state", None, 0, "", [], {"a": [1, 2.5, None]}])
def test_spec2_a_result_is_recorded_and_then_given_back(form: Form, result: Any) -> None:
    bench = Bench()
    manager = bench.manager()
    first, second = Script(OSError(), result=result), Script(result="other")
    for script in (first, second):
        assert form(manager, script, idempotency_key="k", **WHO) == result
    assert (first.calls, second.calls) == (2, 0)
    used = [event for event in bench.events if isinstance(event, IdempotencyUsed)]
    assert [event.action for event in used] == [IdempotencyAction.RECORD, IdempotencyAction.HIT]
    told = used[1].as_json()
    del told["timestamp"]
    assert told == {
        "event_type": "idempotency",
        "retry_category": "RETRY_NATS_PUBLISH",
        "operation": OPERATION,
        "idempotency_key": "k",
        "action": "hit",
        **WHO,
    }


def test_spec2_the_jitter_of_a_call_with_a_key_comes_from_the_key() -> None:
    benches = [Bench(), Bench()]
    for bench in benches:
        sync_form(bench.manager(), Script(OSError()), idempotency_key="k")
        assert bench.clock.slept == [jittered_delay(POLICY_MATRIX[PUBLISH], 1, "k")]


def test_a_key_needs_a_manager_of_keys() -> None:
    with pytest.raises(InvalidValueError, match=r"RetryManager\.idempotency_manager: is needed"):
        sync_form(Bench().manager(idempotency_manager=None), Script(), idempotency_key="k")


def test_a_decorated_function_has_a_key_from_its_arguments() -> None:
    bench, calls = Bench(), []
    manager = bench.manager()

    @manager.retries(PUBLISH, idempotency_key=lambda name, amount: f"{name}/{amount}")
    def pay(name: str, amount: int) -> dict[str, int]:
        calls.append(name)
        return {name: amount}

    assert [pay("a", 1), pay("a", 1), pay("b", 1)] == [{"a": 1}, {"a": 1}, {"b": 1}]
    assert calls == ["a", "b"]


def test_a_result_that_cannot_be_kept_is_refused_when_the_function_is_decorated() -> None:
    manager = Bench().manager()
    with pytest.raises(InvalidValueError, match=r"result_type: has no form .*'bytes'"):

        @manager.retries(PUBLISH, idempotency_key=str)
        def read(path: str) -> bytes:
            raise AssertionError(path)


def logged(caplog: pytest.LogCaptureFixture, kind: str) -> list[str]:
    """Return the messages of one kind."""
    return [
        record.getMessage() for record in caplog.records if getattr(record, "kind", None) == kind
    ]


@every_form
def test_spec2_every_attempt_that_fails_is_logged(
    form: Form, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    with pytest.raises(RetryError):
        form(
            bench.manager(),
            Script(*[OSError("no\nroute")] * 2),
            policy=evolve(PLAIN, max_attempts=2),
        )
    assert logged(caplog, "retry.attempt") == [
        f"{OPERATION}: attempt 1 of 2 failed: OSError: no\\nroute; trying again in 1.0 s"
    ]
    assert logged(caplog, "retry.exhausted") == [
        f"{OPERATION}: attempt 2 failed: OSError: no\\nroute; all attempts are used up"
    ]


# A sink that fails


class BrokenSink:
    name = "broken"

    def emit(self, _events: object) -> None:
        raise OSError("disk full")


@every_form
def test_a_failing_sink_is_counted_and_logged_and_the_operation_goes_on(
    form: Form, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.trail = AuditTrail(logger=logging.getLogger("x"), sinks=[BrokenSink(), bench.sink])
    assert form(bench.manager(), Script(OSError())) == "done"
    assert bench.kinds == ["retry_attempt", "retry_succeeded"]
    assert bench.trail.failures == {"broken": 2}
    assert (
        logged(caplog, "audit.sink_failed")
        == ["audit sink broken took none of 1 events: disk full"] * 2
    )


@every_form
def test_with_fail_closed_nothing_goes_on_without_its_event(form: Form) -> None:
    bench = Bench()
    bench.trail = AuditTrail(
        logger=logging.getLogger("x"), sinks=[BrokenSink(), bench.sink], fail_closed=True
    )
    script = Script(OSError("the first failure"))
    with pytest.raises(AuditError, match="audit sink broken took no event: OSError: disk full"):
        form(bench.manager(), script)
    assert script.calls == 1
    assert bench.kinds == ["retry_attempt"]  # the others got it all the same
    assert bench.clock.slept == []


def test_several_sinks_get_the_same_events() -> None:
    bench, other = Bench(), MemoryAuditSink(name="other")
    bench.trail = AuditTrail(logger=logging.getLogger("x"), sinks=[bench.sink, other])
    sync_form(bench.manager(), Script(OSError()))
    assert bench.events == other.events != ()


# Replay


@given(
    errors=st.lists(st.sampled_from([OSError, TimeoutError, ValueError]), max_size=6),
    max_attempts=st.integers(1, 5),
    waits=st.lists(st.none() | st.floats(0, 500), min_size=6, max_size=6),
)
def test_invariant_20_every_decision_replays_from_its_event(
    errors: list[type[Exception]], max_attempts: int, waits: list[float | None]
) -> None:
    bench = Bench()
    policy = RetryPolicy(max_attempts=max_attempts, non_retryable_exceptions=(ValueError,))
    told = iter(waits)

    def classify(error: BaseException) -> ErrorClass:
        wait = next(told)
        return classify_exception(error, policy) if wait is None else RateLimited(wait)

    script = Script(*(kind("x") for kind in errors))
    with contextlib.suppress(RetryError, ValueError):
        sync_form(bench.manager(), script, policy=policy, classifier=classify)
    decisions = 0
    for event in bench.events:
        again = event_from_json(event.as_json())
        assert again.canonical_bytes() == event.canonical_bytes()
        if isinstance(again, RetryAttempted | RetryExhausted):
            decisions += 1
            assert replay(again.decision_record) is None
    assert decisions == min(script.calls, len(errors))


# Telemetry


class Recorder:
    """Notes what it is told of each call."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def begin(self, call: Any) -> "Recorder":
        self.told.append((call.category, call.operation, call.correlation_id))
        return self

    def attempt_failed(self, attempt: Any) -> None:
        self.told.append(attempt.error_type)

    def idempotency(self, action: Any) -> None:
        self.told.append(str(action))

    def succeeded(self, attempts: int) -> None:
        self.told.append(attempts)

    def failed(self, error: BaseException) -> None:
        self.told.append(type(error))


@both
def test_telemetry_sees_a_call_from_beginning_to_end(form: Form) -> None:
    recorder, bench = Recorder(), Bench()
    manager = bench.manager(telemetry=recorder)
    begun = ("RETRY_NATS_PUBLISH", OPERATION, "c")
    form(manager, Script(OSError()), correlation_id="c")
    assert recorder.told == [begun, "OSError", 2]
    recorder.told.clear()
    with pytest.raises(RetryError):
        form(manager, Script(*[OSError()] * 9), policy=PLAIN, correlation_id="c")
    assert recorder.told == [begun, "OSError", "OSError", "OSError", RetryError]
    recorder.told.clear()
    for _ in range(2):
        form(manager, Script(), idempotency_key="k", correlation_id="c")
    assert recorder.told == [begun, "record", 1, begun, "hit", 0]


@both
def test_telemetry_that_fails_changes_nothing(form: Form, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Recorder):
        def attempt_failed(self, _attempt: Any) -> None:
            raise RuntimeError("exporter down")

    class Unable:
        def begin(self, _call: Any) -> Any:
            raise RuntimeError("exporter down")

    for telemetry in (Broken(), Unable()):
        assert form(Bench().manager(telemetry=telemetry), Script(OSError())) == "done"
    assert set(logged(caplog, "telemetry.failed")) == {"telemetry failed: exporter down"}


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


def test_telemetry_sees_loops_too() -> None:
    for form in (loop_form, async_loop_form):
        recorder = Recorder()
        manager = Bench().manager(telemetry=recorder)
        begun = ("RETRY_NATS_PUBLISH", OPERATION, None)
        form(manager, Script(OSError()))
        with pytest.raises(RetryError):
            form(manager, Script(*[OSError()] * 9), policy=PLAIN)
        with pytest.raises(KeyboardInterrupt):
            form(manager, Script(KeyboardInterrupt()))
        assert recorder.told == [
            begun, "OSError", 2, begun, "OSError", "OSError", "OSError", OSError,
            begun, KeyboardInterrupt,
        ]  # fmt: skip


def test_an_attempt_is_entered_once() -> None:
    def loop() -> None:
        for attempt in Bench().manager().attempts(PUBLISH, OPERATION):
            with attempt:
                pass
            with attempt:
                pass

    with pytest.raises(InvalidValueError, match="attempt: is over"):
        loop()


def test_what_is_decorated_must_do_its_work_when_it_is_called() -> None:
    manager = Bench().manager()

    def items() -> Any:
        yield 1

    async def items_async() -> Any:
        yield 1

    for function in (items, items_async):
        with pytest.raises(InvalidValueError, match="is a generator"):
            manager.retries(PUBLISH)(function)
    with pytest.raises(InvalidValueError, match="idempotency_key: must be a function"):
        manager.retries(PUBLISH, idempotency_key=5)(lambda: 1)  # type: ignore[arg-type]  # the point
    assert manager.retries(PUBLISH)(functools.partial(max, 1))(2) == 2

    def unknown() -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821  # the point
        return 1

    keyed = manager.retries(PUBLISH, idempotency_key=lambda: "k")(unknown)
    assert keyed() == 1


@pytest.mark.parametrize("policy", [{}, 0, "3", RetryPolicy])
def test_a_policy_that_is_none_is_refused_at_once(policy: Any) -> None:
    with pytest.raises(InvalidValueError, match="policy: must be a RetryPolicy"):
        sync_form(Bench().manager(), Script(), policy=policy)


def test_a_category_goes_by_its_name_as_well_and_by_nothing_else() -> None:
    manager = Bench().manager()
    assert manager.get_policy("API_REQUEST") is POLICY_MATRIX[RetryCategory.API_REQUEST]
    with pytest.raises(InvalidValueError, match="category: is not a category of retries"):
        manager.get_policy([])  # type: ignore[arg-type]  # the point


def test_names_with_control_characters_are_shown_escaped(caplog: pytest.LogCaptureFixture) -> None:
    evil = type("Evil\x1b[2J\n", (OSError,), {})
    with pytest.raises(RetryError) as failure:
        Bench().manager().execute_with_retry_sync(PUBLISH, "op\x1b[2J\n", Script(*[evil()] * 9))
    assert "\x1b" not in f"{failure.value}{caplog.text}"
    assert all("\n" not in record.getMessage() for record in caplog.records)
