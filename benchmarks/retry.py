"""What a retry loop costs when nothing fails, and what one decision costs when something does."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import backoff
import stamina
import tenacity

from benchmarks.harness import Ratio, seconds_per_call
from tileferry.adapters.system import SystemClock
from tileferry.application import call_with_retry, call_with_retry_async
from tileferry.domain.retry import (
    POLICY_MATRIX,
    Failure,
    Retryable,
    RetryCategory,
    decide,
)

CATEGORY = RetryCategory.API_REQUEST
POLICY = POLICY_MATRIX[CATEGORY]
CLOCK = SystemClock()


def work() -> int:
    """The operation; as cheap as can be, so that only the loop around it shows."""
    return 1


async def work_async() -> int:
    """The same, awaited."""
    return 1


def ours() -> int:
    """Call ``work`` through our driver."""
    return call_with_retry(
        work, policy=POLICY, key="bench", category=CATEGORY, operation="bench", clock=CLOCK
    )


def ours_async() -> Awaitable[int]:
    """Call ``work_async`` through our driver."""
    return call_with_retry_async(
        work_async,
        policy=POLICY,
        key="bench",
        category=CATEGORY,
        operation="bench",
        clock=CLOCK,
        sleep=CLOCK.sleep_async,
    )


def repeated(call: Callable[[], object]) -> Callable[[int], object]:
    """Return a contender that makes the call in a loop."""

    def contender(calls: int) -> None:
        for _ in range(calls):
            call()

    return contender


def repeated_async(call: Callable[[], Awaitable[object]]) -> Callable[[int], object]:
    """Return a contender that awaits the call in a loop."""

    async def main(calls: int) -> None:
        for _ in range(calls):
            await call()

    return lambda calls: asyncio.run(main(calls))


def _report(kind: str, times: dict[str, float]) -> Ratio:
    added = {name: seconds - times["bare"] for name, seconds in times.items() if name != "bare"}
    listed = ", ".join(f"{name} {seconds * 1e6:.2f} µs" for name, seconds in added.items())
    return Ratio(
        name=f"success path, {kind}: added time, ours / backoff",
        ratio=added["ours"] / added["backoff"],
        goal=0.5,
        detail=listed,
    )


def success_path_sync() -> Ratio:
    """Measure the synchronous driver beside its peers."""
    wait = tenacity.wait_exponential_jitter()
    contenders: dict[str, Callable[[], object]] = {
        "bare": work,
        "ours": ours,
        "backoff": backoff.on_exception(backoff.expo, Exception, max_tries=3)(work),
        "tenacity": tenacity.retry(stop=tenacity.stop_after_attempt(3), wait=wait)(work),
        "stamina": stamina.retry(on=Exception, attempts=3)(work),
    }
    times = seconds_per_call(
        {name: repeated(call) for name, call in contenders.items()}, calls=1_000
    )
    return _report("sync", times)


def success_path_async() -> Ratio:
    """Measure the asynchronous driver beside its peers."""
    wait = tenacity.wait_exponential_jitter()
    contenders: dict[str, Callable[[], Awaitable[object]]] = {
        "bare": work_async,
        "ours": ours_async,
        "backoff": backoff.on_exception(backoff.expo, Exception, max_tries=3)(work_async),
        "tenacity": tenacity.retry(stop=tenacity.stop_after_attempt(3), wait=wait)(work_async),
        "stamina": stamina.retry(on=Exception, attempts=3)(work_async),
    }
    times = seconds_per_call(
        {name: repeated_async(call) for name, call in contenders.items()}, calls=1_000
    )
    return _report("async", times)


def one_decision() -> Ratio:
    """Measure a decision, inputs included, against what one retry adds in tenacity."""
    outcomes = {"fails once": 0}

    def fails_every_other_time() -> None:
        outcomes["fails once"] += 1
        if outcomes["fails once"] % 2:
            raise OSError

    def never_fails() -> None:
        outcomes["fails once"] += 1

    def patient(call: Callable[[], None]) -> Callable[[], None]:
        return tenacity.retry(
            stop=tenacity.stop_after_attempt(3),
            wait=tenacity.wait_exponential_jitter(),
            sleep=lambda _: None,
        )(call)

    def decision() -> None:
        decide(POLICY, Failure(key="bench", attempt=1, error=Retryable(), elapsed_s=0.5))

    times = seconds_per_call(
        {
            "decide": repeated(decision),
            "retried": repeated(patient(fails_every_other_time)),
            "not retried": repeated(patient(never_fails)),
        },
        calls=1_000,
    )
    step = times["retried"] - times["not retried"]
    return Ratio(
        name="one decision / one tenacity retry step",
        ratio=times["decide"] / step,
        goal=1.0,
        detail=f"decide {times['decide'] * 1e6:.2f} µs, tenacity's step {step * 1e6:.2f} µs",
    )


def run() -> Iterator[Ratio]:
    """All measurements of this file."""
    yield success_path_sync()
    yield success_path_async()
    yield one_decision()
