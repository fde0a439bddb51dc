"""The retry manager: every form of it asks one loop, and goes by one policy."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Coroutine
from typing import Any, get_type_hints

import pytest
from attrs import evolve
from support.managers import (
    OPERATION,
    PLAIN_POLICY,
    PUBLISH,
    Form,
    RetryBench,
    ScriptedOperation,
    call_async,
    call_async_decorated,
    call_in_async_loop,
    call_sync,
    every_form,
    run_inline,
)

from tileferry.application import RetryManager
from tileferry.domain.audit import (
    NotRetryable,
    RetryAttempted,
)
from tileferry.domain.errors import InvalidValueError, MisuseError, RetryError
from tileferry.domain.retry import (
    POLICY_MATRIX,
    GiveUpReason,
    RateLimited,
    RetryCategory,
    RetryPolicy,
    compute_jittered_delay,
)

# Policies


@pytest.mark.parametrize("category", RetryCategory)
def test_spec2_policy_is_found_by_category_and_by_value(category: RetryCategory) -> None:
    manager = RetryBench().create_manager()
    assert manager.get_policy(category) is POLICY_MATRIX[category]
    assert manager.get_policy(category.value) is POLICY_MATRIX[category]


def test_unknown_category_is_rejected_before_running() -> None:
    bench, script = RetryBench(), ScriptedOperation()
    with pytest.raises(InvalidValueError, match=r"is not a category of retries .*NATS_CONNECT"):
        bench.create_manager().execute_with_retry_sync("RETRY_SOMETHING", "x", script)
    assert script.calls == 0


def test_policy_can_be_overridden_by_config_and_call() -> None:
    bench = RetryBench()
    configured = {**POLICY_MATRIX, PUBLISH: evolve(PLAIN_POLICY, max_attempts=2)}
    manager = bench.create_manager(policies=configured)
    script = ScriptedOperation(*[OSError()] * 9)
    with pytest.raises(RetryError):
        call_sync(manager, script)
    assert script.calls == 2
    with pytest.raises(RetryError):
        call_sync(manager, script, policy=evolve(PLAIN_POLICY, max_attempts=4))
    assert script.calls == 6


@pytest.mark.parametrize("policy", [{}, 0, "3", RetryPolicy])
def test_invalid_policy_is_rejected(policy: Any) -> None:
    with pytest.raises(InvalidValueError, match="policy: must be a RetryPolicy"):
        call_sync(RetryBench().create_manager(), ScriptedOperation(), policy=policy)


def test_policy_is_found_by_category_name_only() -> None:
    manager = RetryBench().create_manager()
    assert manager.get_policy("API_REQUEST") is POLICY_MATRIX[RetryCategory.API_REQUEST]
    with pytest.raises(InvalidValueError, match="category: is not a category of retries"):
        manager.get_policy([])  # type: ignore[arg-type]  # the point


# Every form asks the same loop


@every_form
def test_spec2_success_needs_no_retry_and_emits_no_events(form: Form) -> None:
    bench, script = RetryBench(), ScriptedOperation()
    assert form(bench.create_manager(), script) == "done"
    assert (script.calls, bench.clock.slept, bench.kinds) == (1, [], [])


@every_form
def test_spec2_failure_is_retried_after_jittered_delay(form: Form) -> None:
    bench, script = RetryBench(), ScriptedOperation(TimeoutError("Connection timeout"), OSError())
    assert form(bench.create_manager(), script) == "done"
    policy = POLICY_MATRIX[PUBLISH]
    assert bench.clock.slept == [compute_jittered_delay(policy, n, "call-0") for n in (1, 2)]
    assert bench.kinds == ["retry_attempt", "retry_attempt", "retry_succeeded"]


@every_form
def test_spec2_exhaustion_raises_last_error_with_history(form: Form) -> None:
    bench, last = RetryBench(), ConnectionError("third")
    script = ScriptedOperation(TimeoutError("first"), OSError("second"), last)
    with pytest.raises(RetryError) as failure:
        form(bench.create_manager(), script, policy=PLAIN_POLICY)
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
def test_spec2_final_error_is_raised_unchanged_and_audited(form: Form) -> None:
    bench, error = RetryBench(), ValueError("no")
    policy = evolve(PLAIN_POLICY, non_retryable_exceptions=(ValueError, TypeError, KeyError))
    script = ScriptedOperation(error)
    with pytest.raises(ValueError, match=r"^no$") as failure:
        form(bench.create_manager(), script, policy=policy)
    assert failure.value is error
    assert script.calls == 1
    (event,) = bench.events
    assert isinstance(event, NotRetryable)
    assert event.decision_record.decision.reason is GiveUpReason.FINAL


@every_form
def test_spec2_final_error_after_retries_is_not_exhaustion(form: Form) -> None:
    bench = RetryBench()
    policy = evolve(PLAIN_POLICY, non_retryable_exceptions=(ValueError,))
    with pytest.raises(ValueError, match="no"):
        form(bench.create_manager(), ScriptedOperation(OSError(), ValueError("no")), policy=policy)
    assert bench.kinds == ["retry_attempt", "not_retryable"]


@every_form
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_interrupts_are_never_retried(form: Form, stop: type[BaseException]) -> None:
    bench, script = RetryBench(), ScriptedOperation(OSError(), stop())
    with pytest.raises(stop):
        form(bench.create_manager(), script)
    assert script.calls == 2
    assert bench.kinds == ["retry_attempt"]


@pytest.mark.parametrize("form", [call_async, call_in_async_loop, call_async_decorated])
def test_cancellation_is_never_retried(form: Form) -> None:
    bench, script = RetryBench(), ScriptedOperation(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        form(bench.create_manager(), script)
    assert (script.calls, bench.kinds) == (1, [])


def test_retry_wait_can_be_cancelled() -> None:
    async def main() -> int:
        bench, script = RetryBench(), ScriptedOperation(*[OSError()] * 9)
        manager = bench.create_manager(sleep=asyncio.sleep)
        task = asyncio.ensure_future(
            manager.execute_with_retry(PUBLISH, OPERATION, script.run_async)
        )
        while not bench.events:  # noqa: ASYNC110  # nobody tells when an event is there
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return script.calls

    assert asyncio.run(main()) == 1


@every_form
def test_retry_after_is_respected(form: Form) -> None:
    bench, script = RetryBench(), ScriptedOperation(OSError(), OSError())
    waits = iter([7.0, 2.5])
    assert (
        form(bench.create_manager(), script, classifier=lambda _: RateLimited(next(waits)))
        == "done"
    )
    assert bench.clock.slept == [7.0, 2.5]


@every_form
def test_test_mode_decides_the_same_without_waiting(form: Form) -> None:
    patient, hasty = RetryBench(), RetryBench()
    errors = [OSError("a"), TimeoutError("b")]
    form(patient.create_manager(), ScriptedOperation(*errors))
    form(hasty.create_manager().without_waiting(), ScriptedOperation(*errors))
    assert hasty.clock.slept == []
    delays = [
        [event.delay_seconds for event in bench.events if isinstance(event, RetryAttempted)]
        for bench in (patient, hasty)
    ]
    assert delays[0] == delays[1] == patient.clock.slept


def test_spec2_calls_without_key_get_different_jitter() -> None:
    bench = RetryBench()
    manager = bench.create_manager()
    for _ in range(20):
        call_sync(manager, ScriptedOperation(OSError()))
    delays = bench.clock.slept
    assert len(set(delays)) > 15
    assert all(0.45 <= delay <= 0.55 for delay in delays)


# What cannot be tried again


def test_bare_coroutine_or_wrong_callable_is_rejected() -> None:
    async def work() -> None: ...

    manager = RetryBench().create_manager()
    with pytest.raises(MisuseError, match=r"cannot be called again; pass a function"):
        asyncio.run(manager.execute_with_retry(PUBLISH, OPERATION, work()))  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="cannot be called again"):
        asyncio.run(manager.execute_with_retry(PUBLISH, OPERATION, lambda: 1))  # type: ignore[arg-type,return-value]
    with pytest.raises(MisuseError, match="cannot be called again"):
        _ = manager.execute_with_retry_sync(PUBLISH, OPERATION, work)
    for key in (None, "k"):
        with pytest.raises(MisuseError, match="cannot be called again"):
            manager.execute_with_retry_sync(PUBLISH, OPERATION, 7, idempotency_key=key)  # type: ignore[arg-type]
        with pytest.raises(MisuseError, match="cannot be called again"):
            asyncio.run(
                manager.execute_with_retry(PUBLISH, OPERATION, work(), idempotency_key=key)  # type: ignore[arg-type]
            )


def test_attempt_loop_ends_after_success() -> None:
    bench, script = RetryBench(), ScriptedOperation(TimeoutError("x"))
    for attempt in bench.create_manager().attempts(PUBLISH, OPERATION, PLAIN_POLICY):
        with attempt:
            script()
    assert (script.calls, bench.clock.slept) == (2, [PLAIN_POLICY.base_delay])


@pytest.mark.parametrize("offload", [run_inline, None])
def test_async_attempt_loop_ends_after_success(offload: Any) -> None:
    bench, script = RetryBench(), ScriptedOperation(TimeoutError("x"))

    async def main() -> None:
        async for attempt in bench.create_manager(offload=offload).attempts(
            PUBLISH, OPERATION, PLAIN_POLICY
        ):
            async with attempt:
                await script.run_async()

    asyncio.run(main())
    assert (script.calls, bench.clock.slept) == (2, [PLAIN_POLICY.base_delay])
    assert bench.kinds == ["retry_attempt", "retry_succeeded"]


def test_async_form_requires_sleep() -> None:
    bench = RetryBench()
    manager = RetryManager(clock=bench.clock, new_id=bench.new_id, audit=bench.trail)
    with pytest.raises(MisuseError, match=r"pass asyncio\.sleep"):
        call_async(manager, ScriptedOperation(TimeoutError("x")))


def test_attempt_not_entered_is_rejected() -> None:
    with pytest.raises(MisuseError, match="attempt: was never entered"):
        for _ in RetryBench().create_manager().attempts(PUBLISH, OPERATION):
            pass


def test_attempt_cannot_be_entered_twice() -> None:
    def loop() -> None:
        for attempt in RetryBench().create_manager().attempts(PUBLISH, OPERATION):
            with attempt:
                pass
            with attempt:
                pass

    with pytest.raises(MisuseError, match="attempt: has ended"):
        loop()


# The decorator keeps the signature


def test_decorated_function_keeps_signature_and_metadata() -> None:
    manager = RetryBench().create_manager()

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


def test_events_name_the_decorated_function() -> None:
    bench = RetryBench()

    @bench.create_manager().retries(PUBLISH)
    def fetch(errors: list[Exception]) -> str:
        if errors:
            raise errors.pop()
        return "ok"

    assert fetch([OSError()]) == "ok"
    (event, _) = bench.events
    assert isinstance(event, RetryAttempted)
    assert event.operation.endswith("fetch")


def test_generators_cannot_be_decorated() -> None:
    manager = RetryBench().create_manager()

    def items() -> Any:
        yield 1

    async def items_async() -> Any:
        yield 1

    for function in (items, items_async):
        with pytest.raises(MisuseError, match="is a generator"):
            manager.retries(PUBLISH)(function)
    with pytest.raises(MisuseError, match="idempotency_key: must be a function"):
        manager.retries(PUBLISH, idempotency_key=5)(lambda: 1)  # type: ignore[arg-type]  # the point
    assert manager.retries(PUBLISH)(functools.partial(max, 1))(2) == 2


def test_spec2_unknown_result_type_is_refused_before_the_effect() -> None:
    """A result that cannot be stored would leave an effect without a record."""
    bench, effects = RetryBench(), list[int]()
    manager = bench.create_manager()

    def unresolved() -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821  # the point
        effects.append(1)

    def undeclared():  # type: ignore[no-untyped-def]  # the point
        effects.append(1)
        return object()

    async def undeclared_async():  # type: ignore[no-untyped-def]  # the point
        return undeclared()  # type: ignore[no-untyped-call]  # the point

    for function in (unresolved, undeclared, lambda: [object()], functools.partial(undeclared)):
        with pytest.raises(MisuseError, match="result_type: is unknown, so the result may not be"):
            manager.execute_with_retry_sync(PUBLISH, "x", function, idempotency_key="k")
        with pytest.raises(MisuseError, match="declare what the operation returns"):
            manager.retries(PUBLISH, idempotency_key=lambda: "k")(function)
    with pytest.raises(MisuseError, match="result_type: is unknown"):
        asyncio.run(manager.execute_with_retry(PUBLISH, "x", undeclared_async, idempotency_key="k"))
    assert (effects, bench.store.find("k"), bench.kinds) == ([], None, [])


def test_spec2_result_type_is_read_from_the_return_annotation() -> None:
    manager = RetryBench().create_manager()

    def fetch() -> Awaitable[dict[str, int]]:
        return ScriptedOperation(result={"tiles": 1}).run_async()  # type: ignore[return-value]

    def unstorable() -> Coroutine[Any, Any, bytes]:
        raise AssertionError

    call = manager.execute_with_retry(PUBLISH, "x", fetch, idempotency_key="k")
    assert asyncio.run(call) == {"tiles": 1}
    with pytest.raises(MisuseError, match=r"result_type: 'bytes' cannot be stored as JSON"):
        asyncio.run(manager.execute_with_retry(PUBLISH, "x", unstorable, idempotency_key="k2"))
    assert manager.execute_with_retry_sync(PUBLISH, "x", int, idempotency_key="k3") == 0
