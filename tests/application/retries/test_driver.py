"""Both drivers of the retry loop: same decisions, same waits, same errors."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.managers import ScriptedOperation

from tileferry.adapters.memory import ManualClock
from tileferry.application import call_with_retry, call_with_retry_async
from tileferry.domain.errors import MisuseError, RetryError
from tileferry.domain.retry import (
    DOWNLOAD_POLICY,
    Decision,
    ErrorClass,
    Final,
    GiveUpReason,
    RateLimited,
    Retryable,
    RetryBudget,
    RetryCategory,
    RetryPolicy,
)

Result = TypeVar("Result")
PLAIN = RetryPolicy(max_attempts=3, jitter_enabled=False)
Driver = Callable[..., Any]


def sync_driver(call: Callable[[], Result], *, clock: ManualClock, **options: Any) -> Result:
    return call_with_retry(
        call, key="k", category=RetryCategory.KV_GET, operation="Get it", clock=clock, **options
    )


def async_driver(call: Callable[[], Result], *, clock: ManualClock, **options: Any) -> Result:
    async def awaitable() -> Result:
        await asyncio.sleep(0)
        return call()

    return asyncio.run(
        call_with_retry_async(
            awaitable,
            key="k",
            category=RetryCategory.KV_GET,
            operation="Get it",
            clock=clock,
            sleep=clock.sleep_async,
            **options,
        )
    )


both = pytest.mark.parametrize("drive", [sync_driver, async_driver])


@both
def test_spec2_success_needs_no_retry(drive: Driver) -> None:
    clock, call = ManualClock(), ScriptedOperation()
    assert drive(call, clock=clock, policy=PLAIN) == "done"
    assert (call.calls, clock.slept) == (1, [])


@both
def test_none_is_a_valid_result(drive: Driver) -> None:
    assert (
        drive(ScriptedOperation(OSError(), result=None), clock=ManualClock(), policy=PLAIN) is None
    )


@both
def test_failures_are_retried_after_backoff(drive: Driver) -> None:
    clock, call = ManualClock(), ScriptedOperation(OSError(), OSError())
    assert drive(call, clock=clock, policy=PLAIN) == "done"
    assert (call.calls, clock.slept) == (3, [1.0, 2.0])


@both
def test_spec2_exhaustion_raises_retry_error_from_last_failure(drive: Driver) -> None:
    clock, last = ManualClock(), OSError("third")
    call = ScriptedOperation(OSError("first"), OSError("second"), last, OSError("never"))
    with pytest.raises(RetryError) as raised:
        drive(call, clock=clock, policy=PLAIN)
    error = raised.value
    assert error.__cause__ is last
    assert (error.category, error.operation) == ("RETRY_KV_GET", "Get it")
    assert (error.attempts, error.elapsed_s) == (3, 3.0)
    assert error.reason is GiveUpReason.ATTEMPTS_EXHAUSTED
    assert [line.error_message for line in error.history] == ["first", "second", "third"]
    assert (call.calls, clock.slept) == (3, [1.0, 2.0])


@both
def test_spec2_non_retryable_exception_is_raised_unchanged(drive: Driver) -> None:
    clock, wrong = ManualClock(), ValueError("wrong")
    policy = RetryPolicy(non_retryable_exceptions=[ValueError])
    call = ScriptedOperation(wrong)
    with pytest.raises(ValueError, match="wrong") as raised:
        drive(call, clock=clock, policy=policy)
    assert raised.value is wrong
    assert (call.calls, clock.slept) == (1, [])


@both
def test_rate_limit_waits_retry_after_and_continues(drive: Driver) -> None:
    clock, call = ManualClock(), ScriptedOperation(OSError("429"))
    result = drive(
        call,
        clock=clock,
        policy=DOWNLOAD_POLICY,
        classifier=lambda _: RateLimited(retry_after_s=30.0),
    )
    assert result == "done"
    assert clock.slept == [30.0]


@both
def test_five_503s_back_off_1_2_4_4_seconds(drive: Driver) -> None:
    clock, call = ManualClock(), ScriptedOperation(*(OSError("503") for _ in range(9)))
    with pytest.raises(RetryError) as raised:
        drive(call, clock=clock, policy=DOWNLOAD_POLICY)
    assert raised.value.attempts == call.calls == 5
    assert clock.slept == [1.0, 2.0, 4.0, 4.0]


@both
def test_deadline_includes_call_duration(drive: Driver) -> None:
    clock = ManualClock()
    policy = RetryPolicy(max_attempts=9, jitter_enabled=False, deadline_s=10.0)

    def slow() -> None:
        clock.advance(3.0)
        raise OSError

    with pytest.raises(RetryError) as raised:
        drive(slow, clock=clock, policy=policy)
    assert raised.value.reason is GiveUpReason.DEADLINE_EXCEEDED
    assert clock.slept == [1.0, 2.0]
    assert raised.value.elapsed_s == 12.0


@both
def test_invariant_14_wall_clock_jump_does_not_affect_retries(drive: Driver) -> None:
    clock = ManualClock()
    policy = RetryPolicy(max_attempts=3, jitter_enabled=False, deadline_s=100.0)

    def jumping() -> None:
        clock.set_wall_clock(clock.now() + 86_400)
        raise OSError

    with pytest.raises(RetryError) as raised:
        drive(jumping, clock=clock, policy=policy)
    assert raised.value.reason is GiveUpReason.ATTEMPTS_EXHAUSTED
    assert clock.slept == [1.0, 2.0]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_interrupts_are_not_retried(interrupt: type[BaseException]) -> None:
    clock, call = ManualClock(), ScriptedOperation(interrupt())
    with pytest.raises(interrupt):
        sync_driver(call, clock=clock, policy=PLAIN)
    assert (call.calls, clock.slept) == (1, [])


def test_cancelled_task_is_not_retried() -> None:
    clock, calls = ManualClock(), 0

    async def forever() -> None:
        nonlocal calls
        calls += 1
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(
            call_with_retry_async(
                forever,
                policy=PLAIN,
                key="k",
                category=RetryCategory.KV_GET,
                operation="wait",
                clock=clock,
                sleep=clock.sleep_async,
            )
        )
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert (calls, clock.slept) == (1, [])


@given(st.lists(st.sampled_from([Final(), Retryable(), RateLimited(retry_after_s=3.0)])))
def test_both_drivers_behave_identically(classes: list[ErrorClass]) -> None:
    def outcome(drive: Driver) -> tuple[object, ...]:
        clock, told = ManualClock(), iter(classes)
        call = ScriptedOperation(*(OSError(str(number)) for number in range(len(classes))))
        try:
            result: object = drive(call, clock=clock, policy=PLAIN, classifier=lambda _: next(told))
        except (OSError, RetryError) as error:
            result = str(error)
        return (result, call.calls, clock.slept)

    assert outcome(sync_driver) == outcome(async_driver)


async def return_word() -> str:
    return "x"


def run_async(call: Any, clock: ManualClock) -> Any:
    return asyncio.run(
        call_with_retry_async(
            call,
            policy=PLAIN,
            key="k",
            category=RetryCategory.KV_GET,
            operation="word",
            clock=clock,
            sleep=clock.sleep_async,
        )
    )


def test_design_5_3_bare_coroutine_is_rejected() -> None:
    clock = ManualClock()
    with pytest.raises(MisuseError, match=r"call: a coroutine cannot be called again"):
        run_async(return_word(), clock)
    assert clock.slept == []


def test_call_for_other_driver_is_rejected_without_retry() -> None:
    clock = ManualClock()
    with pytest.raises(MisuseError, match=r"call: a coroutine cannot be called again"):
        _ = sync_driver(return_word, clock=clock, policy=PLAIN)
    with pytest.raises(MisuseError, match=r"call: a int cannot be called again"):
        run_async(lambda: 7, clock)
    seven: Any = 7
    with pytest.raises(MisuseError, match=r"call: a int cannot be called again"):
        sync_driver(seven, clock=clock, policy=PLAIN)
    assert clock.slept == []


def test_return_types_are_preserved() -> None:
    def number() -> int:
        return 7

    async def word() -> str:
        return "seven"

    clock = ManualClock()
    got: int = sync_driver(number, clock=clock, policy=PLAIN)
    awaitable: Awaitable[str] = call_with_retry_async(
        word,
        policy=PLAIN,
        key="k",
        category=RetryCategory.KV_GET,
        operation="word",
        clock=clock,
        sleep=clock.sleep_async,
    )

    async def wait() -> str:
        return await awaitable

    assert (got, asyncio.run(wait())) == (7, "seven")


def test_async_driver_charges_tokens_and_notifies_observer() -> None:
    clock, script = ManualClock(), ScriptedOperation(TimeoutError("x"))
    told: list[object] = []

    class Tokens:
        """Pays for every retry."""

        def note_success(self) -> None:
            told.append("earned")

        def charge(self, decide: Callable[[RetryBudget], Decision]) -> Decision:
            told.append("paid")
            return decide(RetryBudget())

    class Observer:
        def on_attempt_failed(self, attempt: Any) -> None:
            told.append(attempt.error_type)

        def on_success(self, loop: Any) -> None:
            told.append(len(loop.history))

    result = asyncio.run(
        call_with_retry_async(
            script.run_async,
            policy=PLAIN,
            key="k",
            category=RetryCategory.KV_GET,
            operation="Get it",
            clock=clock,
            sleep=clock.sleep_async,
            observer=Observer,
            tokens=Tokens(),
        )
    )
    assert (result, told) == ("done", ["paid", "TimeoutError", "earned", 1])
