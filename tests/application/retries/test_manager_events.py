"""What a retry leaves behind: events in every sink, records in the log, telemetry, and a replay."""

import contextlib
import logging
from datetime import UTC, datetime
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from support.managers import (
    OPERATION,
    PLAIN_POLICY,
    PUBLISH,
    FailingSink,
    Form,
    RetryBench,
    ScriptedOperation,
    TelemetryRecorder,
    call_in_async_loop,
    call_in_loop,
    call_sync,
    every_form,
    find_log_messages,
    sync_and_async,
)

from tileferry.adapters.memory import MemoryAuditSink
from tileferry.application import AuditTrail
from tileferry.application.ports.progress import ProgressEvent, RetryScheduled
from tileferry.domain.audit import (
    CallFailed,
    IdempotencyAction,
    IdempotencyUsed,
    RetryAttempted,
    RetryExhausted,
    RetrySucceeded,
    event_from_json,
)
from tileferry.domain.errors import AuditError, MisuseError, RetryError
from tileferry.domain.retry import (
    POLICY_MATRIX,
    ErrorClass,
    Final,
    RateLimited,
    RetryPolicy,
    RetryReason,
    classify_exception,
    compute_jittered_delay,
    replay_decision,
)

WHO = {"tenant_id": "tenant-123", "correlation_id": "corr-456", "trace_id": "trace-789"}


# Events


@sync_and_async
def test_spec2_retry_is_audited_with_every_field(form: Form) -> None:
    bench, script = RetryBench(), ScriptedOperation(OSError(), TimeoutError("Connection timeout"))
    before = datetime.fromtimestamp(bench.clock.now(), UTC)
    context = {"stream": "audit"}
    form(bench.create_manager(), script, policy=PLAIN_POLICY, **WHO, additional_context=context)
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


@sync_and_async
def test_spec2_exhaustion_is_audited_with_every_field(form: Form) -> None:
    bench, script = RetryBench(), ScriptedOperation(*[TimeoutError("KV operation timeout")] * 3)
    with pytest.raises(RetryError):
        form(bench.create_manager(), script, policy=PLAIN_POLICY, **WHO)
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


@sync_and_async
@pytest.mark.parametrize("result", ["state", None, 0, "", [], {"a": [1, 2.5, None]}])
def test_spec2_recorded_result_is_returned_on_second_call(form: Form, result: Any) -> None:
    bench = RetryBench()
    manager = bench.create_manager()
    first, second = ScriptedOperation(OSError(), result=result), ScriptedOperation(result="other")
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
        "outcome": "success",
        **WHO,
    }


def test_spec2_jitter_is_derived_from_idempotency_key() -> None:
    benches = [RetryBench(), RetryBench()]
    for bench in benches:
        call_sync(bench.create_manager(), ScriptedOperation(OSError()), idempotency_key="k")
        assert bench.clock.slept == [compute_jittered_delay(POLICY_MATRIX[PUBLISH], 1, "k")]


def test_idempotency_key_requires_idempotency_manager() -> None:
    with pytest.raises(MisuseError, match=r"RetryManager\.idempotency_manager: is required"):
        call_sync(
            RetryBench().create_manager(idempotency_manager=None),
            ScriptedOperation(),
            idempotency_key="k",
        )


def test_decorator_derives_key_from_arguments() -> None:
    bench, calls = RetryBench(), []
    manager = bench.create_manager()

    @manager.retries(PUBLISH, idempotency_key=lambda name, amount: f"{name}/{amount}")
    def pay(name: str, amount: int) -> dict[str, int]:
        calls.append(name)
        return {name: amount}

    assert [pay("a", 1), pay("a", 1), pay("b", 1)] == [{"a": 1}, {"a": 1}, {"b": 1}]
    assert calls == ["a", "b"]


def test_unserializable_return_type_is_rejected_at_decoration() -> None:
    manager = RetryBench().create_manager()
    with pytest.raises(MisuseError, match=r"result_type: 'bytes' cannot be stored as JSON"):

        @manager.retries(PUBLISH, idempotency_key=str)
        def read(path: str) -> bytes:
            raise AssertionError(path)


@every_form
def test_spec2_every_failed_attempt_is_logged(form: Form, caplog: pytest.LogCaptureFixture) -> None:
    bench = RetryBench()
    with pytest.raises(RetryError):
        form(
            bench.create_manager(),
            ScriptedOperation(*[OSError("no\nroute")] * 2),
            policy=evolve(PLAIN_POLICY, max_attempts=2),
        )
    assert find_log_messages(caplog, "retry.attempt") == [
        f"{OPERATION}: attempt 1 of 2 failed: OSError: no\\nroute; trying again in 1.0 s (backoff)"
    ]
    assert find_log_messages(caplog, "retry.exhausted") == [
        f"{OPERATION}: attempt 2 failed: OSError: no\\nroute; all attempts are used up"
    ]


# A sink that fails


@every_form
def test_failing_sink_is_logged_and_operation_continues(
    form: Form, caplog: pytest.LogCaptureFixture
) -> None:
    bench = RetryBench()
    bench.trail = AuditTrail(logger=logging.getLogger("x"), sinks=[FailingSink(), bench.sink])
    assert form(bench.create_manager(), ScriptedOperation(OSError())) == "done"
    assert bench.kinds == ["retry_attempt", "retry_succeeded"]
    assert bench.trail.failures == {"broken": 2}
    assert (
        find_log_messages(caplog, "audit.sink_failed")
        == ["audit sink broken took none of 1 events: disk full"] * 2
    )


@every_form
def test_fail_closed_stops_when_event_cannot_be_recorded(form: Form) -> None:
    bench = RetryBench()
    bench.trail = AuditTrail(
        logger=logging.getLogger("x"), sinks=[FailingSink(), bench.sink], fail_closed=True
    )
    script = ScriptedOperation(OSError("the first failure"))
    with pytest.raises(AuditError, match="audit sink broken failed: OSError: disk full"):
        form(bench.create_manager(), script)
    assert script.calls == 1
    assert bench.kinds == ["retry_attempt"]  # the others got it all the same
    assert bench.clock.slept == []


def test_all_sinks_get_same_events() -> None:
    bench, other = RetryBench(), MemoryAuditSink(name="other")
    bench.trail = AuditTrail(logger=logging.getLogger("x"), sinks=[bench.sink, other])
    call_sync(bench.create_manager(), ScriptedOperation(OSError()))
    assert bench.events == other.events != ()


# Progress


@every_form
def test_wait_is_reported_after_it_is_audited(form: Form) -> None:
    bench = RetryBench()
    events: list[tuple[ProgressEvent, list[str]]] = []
    manager = bench.create_manager(progress=lambda event: events.append((event, bench.kinds)))
    with pytest.raises(RetryError):
        form(
            manager,
            ScriptedOperation(*[OSError("no route")] * 2),
            policy=evolve(PLAIN_POLICY, max_attempts=2),
        )
    scheduled = RetryScheduled(
        operation=OPERATION,
        reason="no route",
        category=PUBLISH.value,
        rule=RetryReason.BACKOFF,
        is_rate_limited=False,
        attempt=1,
        max_attempts=2,
        delay_s=1.0,
    )
    assert events == [(scheduled, ["retry_attempt"])]


@every_form
def test_failing_listener_is_logged_and_operation_continues(
    form: Form, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_event: ProgressEvent) -> None:
        raise ZeroDivisionError("a defect")

    manager = RetryBench().create_manager(progress=fail)
    assert form(manager, ScriptedOperation(OSError())) == "done"
    assert find_log_messages(caplog, "progress.listener_failed") == [
        "progress listener failed: a defect"
    ]


@every_form
def test_listener_can_interrupt_wait(form: Form) -> None:
    def stop(_event: ProgressEvent) -> None:
        raise KeyboardInterrupt

    script = ScriptedOperation(OSError())
    with pytest.raises(KeyboardInterrupt):
        form(RetryBench().create_manager(progress=stop), script)
    assert script.calls == 1


# Replay


@given(
    errors=st.lists(st.sampled_from([OSError, TimeoutError, ValueError]), max_size=6),
    max_attempts=st.integers(1, 5),
    waits=st.lists(st.none() | st.floats(0, 500), min_size=6, max_size=6),
)
def test_invariant_20_every_decision_replays_from_its_event(
    errors: list[type[Exception]], max_attempts: int, waits: list[float | None]
) -> None:
    bench = RetryBench()
    policy = RetryPolicy(max_attempts=max_attempts, non_retryable_exceptions=(ValueError,))
    told = iter(waits)

    def classify(error: BaseException) -> ErrorClass:
        wait = next(told)
        return classify_exception(error, policy) if wait is None else RateLimited(wait)

    script = ScriptedOperation(*(kind("x") for kind in errors))
    with contextlib.suppress(RetryError, ValueError):
        call_sync(bench.create_manager(), script, policy=policy, classifier=classify)
    decisions = 0
    for event in bench.events:
        again = event_from_json(event.as_json())
        assert again.canonical_bytes() == event.canonical_bytes()
        if isinstance(again, RetryAttempted | CallFailed):
            decisions += 1
            assert replay_decision(again.decision_record) is None
    assert decisions == min(script.calls, len(errors))


# Telemetry


@sync_and_async
def test_telemetry_observes_whole_call(form: Form) -> None:
    recorder, bench = TelemetryRecorder(), RetryBench()
    manager = bench.create_manager(
        telemetry=recorder,
        idempotency_manager=bench.create_idempotency_manager(keep_failures=True),
    )
    begun = ("RETRY_NATS_PUBLISH", OPERATION, "c")
    form(manager, ScriptedOperation(OSError()), correlation_id="c")
    assert recorder.told == [begun, "OSError", 2]
    recorder.told.clear()
    with pytest.raises(RetryError):
        form(manager, ScriptedOperation(*[OSError()] * 9), policy=PLAIN_POLICY, correlation_id="c")
    assert recorder.told == [begun, "OSError", "OSError", "OSError", RetryError]
    recorder.told.clear()
    for _ in range(2):
        form(manager, ScriptedOperation(), idempotency_key="k", correlation_id="c")
    assert recorder.told == [begun, "record", 1, begun, "hit", 0]
    recorder.told.clear()
    final = {"classifier": lambda _error: Final(), "idempotency_key": "end", "correlation_id": "c"}
    with pytest.raises(OSError, match="the end"):
        form(manager, ScriptedOperation(OSError("the end")), **final)
    assert recorder.told == [begun, "OSError", "record", OSError]


@sync_and_async
def test_telemetry_failure_is_logged_and_ignored(
    form: Form, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(TelemetryRecorder):
        def attempt_failed(self, _attempt: Any) -> None:
            raise RuntimeError("exporter down")

    class Unable:
        def begin(self, _call: Any) -> Any:
            raise RuntimeError("exporter down")

    for telemetry in (Broken(), Unable()):
        assert (
            form(RetryBench().create_manager(telemetry=telemetry), ScriptedOperation(OSError()))
            == "done"
        )
    assert set(find_log_messages(caplog, "telemetry.failed")) == {"telemetry failed: exporter down"}


def test_telemetry_observes_attempt_loops() -> None:
    for form in (call_in_loop, call_in_async_loop):
        recorder = TelemetryRecorder()
        manager = RetryBench().create_manager(telemetry=recorder)
        begun = ("RETRY_NATS_PUBLISH", OPERATION, None)
        form(manager, ScriptedOperation(OSError()))
        with pytest.raises(RetryError):
            form(manager, ScriptedOperation(*[OSError()] * 9), policy=PLAIN_POLICY)
        with pytest.raises(KeyboardInterrupt):
            form(manager, ScriptedOperation(KeyboardInterrupt()))
        assert recorder.told == [
            begun, "OSError", 2, begun, "OSError", "OSError", "OSError", OSError,
            begun, KeyboardInterrupt,
        ]  # fmt: skip
