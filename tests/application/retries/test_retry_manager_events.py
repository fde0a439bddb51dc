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
    PLAIN,
    PUBLISH,
    Bench,
    BrokenSink,
    Form,
    Recorder,
    Script,
    async_loop_form,
    both,
    every_form,
    logged,
    loop_form,
    sync_form,
)

from tileferry.adapters.memory import MemoryAuditSink
from tileferry.application import AuditTrail
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
    InvalidValueError,
    RetryError,
)
from tileferry.domain.retry import (
    POLICY_MATRIX,
    ErrorClass,
    Final,
    RateLimited,
    RetryPolicy,
    classify_exception,
    jittered_delay,
    replay,
)

WHO = {"tenant_id": "tenant-123", "correlation_id": "corr-456", "trace_id": "trace-789"}


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
    recorder.told.clear()
    final = {"classifier": lambda _error: Final(), "idempotency_key": "end", "correlation_id": "c"}
    with pytest.raises(OSError, match="the end"):
        form(manager, Script(OSError("the end")), **final)
    assert recorder.told == [begun, "OSError", "record", OSError]


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
