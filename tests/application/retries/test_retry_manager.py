"""The retry manager: every form of it asks one loop, and goes by one policy."""

import asyncio
import functools
import inspect
from typing import Any, get_type_hints

import pytest
from attrs import evolve
from support.managers import (
    OPERATION,
    PLAIN,
    PUBLISH,
    Bench,
    Form,
    Script,
    async_decorator_form,
    async_form,
    async_loop_form,
    every_form,
    inline,
    sync_form,
)

from tileferry.application import RetryManager
from tileferry.domain.audit import (
    RetryAttempted,
    RetryExhausted,
)
from tileferry.domain.errors import (
    InvalidValueError,
    RetryError,
)
from tileferry.domain.retry import (
    POLICY_MATRIX,
    GiveUpReason,
    RateLimited,
    RetryCategory,
    RetryPolicy,
    jittered_delay,
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


@pytest.mark.parametrize("policy", [{}, 0, "3", RetryPolicy])
def test_a_policy_that_is_none_is_refused_at_once(policy: Any) -> None:
    with pytest.raises(InvalidValueError, match="policy: must be a RetryPolicy"):
        sync_form(Bench().manager(), Script(), policy=policy)


def test_a_category_goes_by_its_name_as_well_and_by_nothing_else() -> None:
    manager = Bench().manager()
    assert manager.get_policy("API_REQUEST") is POLICY_MATRIX[RetryCategory.API_REQUEST]
    with pytest.raises(InvalidValueError, match="category: is not a category of retries"):
        manager.get_policy([])  # type: ignore[arg-type]  # the point


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


def test_a_loop_ends_by_itself_after_a_success() -> None:
    bench, script = Bench(), Script(TimeoutError("x"))
    for attempt in bench.manager().attempts(PUBLISH, OPERATION, PLAIN):
        with attempt:
            script()
    assert (script.calls, bench.clock.slept) == (2, [PLAIN.base_delay])


@pytest.mark.parametrize("offload", [inline, None])
def test_an_awaited_loop_ends_by_itself_after_a_success(offload: Any) -> None:
    bench, script = Bench(), Script(TimeoutError("x"))

    async def main() -> None:
        async for attempt in bench.manager(offload=offload).attempts(PUBLISH, OPERATION, PLAIN):
            async with attempt:
                await script.awaited()

    asyncio.run(main())
    assert (script.calls, bench.clock.slept) == (2, [PLAIN.base_delay])
    assert bench.kinds == ["retry_attempt", "retry_succeeded"]


def test_the_asynchronous_form_needs_something_to_sleep_by() -> None:
    bench = Bench()
    manager = RetryManager(clock=bench.clock, new_id=bench.new_id, audit=bench.trail)
    with pytest.raises(InvalidValueError, match=r"give asyncio\.sleep"):
        async_form(manager, Script(TimeoutError("x")))


def test_an_attempt_that_is_not_entered_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="attempt: was not entered"):
        for _ in Bench().manager().attempts(PUBLISH, OPERATION):
            pass


def test_an_attempt_is_entered_once() -> None:
    def loop() -> None:
        for attempt in Bench().manager().attempts(PUBLISH, OPERATION):
            with attempt:
                pass
            with attempt:
                pass

    with pytest.raises(InvalidValueError, match="attempt: is over"):
        loop()


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
