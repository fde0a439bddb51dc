"""What a retry loop costs when nothing fails, and what one decision costs when something does."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

import backoff
import stamina
import tenacity

from benchmarks.harness import Ratio, seconds_per_call
from tileferry.adapters.memory import MemoryAuditSink
from tileferry.adapters.system import SystemClock, new_id
from tileferry.application import AuditTrail, RetryManager
from tileferry.domain.retry import (
    POLICY_MATRIX,
    Failure,
    Retryable,
    RetryCategory,
    decide,
)

CATEGORY = RetryCategory.API_REQUEST
POLICY = POLICY_MATRIX[CATEGORY]
MANAGER = RetryManager(
    clock=SystemClock(),
    new_id=new_id,
    audit=AuditTrail(logger=logging.getLogger("benchmarks"), sinks=[MemoryAuditSink()]),
    sleep=SystemClock.sleep_async,
)


def work() -> int:
    """The operation; as cheap as can be, so that only the loop around it shows."""
    return 1


async def work_async() -> int:
    """The same, awaited."""
    return 1


def ours() -> int:
    """Call ``work`` through the retry manager."""
    return MANAGER.execute_with_retry_sync(CATEGORY, "bench", work)


def ours_async() -> Awaitable[int]:
    """Await ``work_async`` through the retry manager."""
    return MANAGER.execute_with_retry(CATEGORY, "bench", work_async)


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


def _report(kind: str, times: dict[str, float]) -> Iterator[Ratio]:
    added = {name: seconds - times["bare"] for name, seconds in times.items() if name != "bare"}
    listed = ", ".join(f"{name} {seconds * 1e6:.2f} µs" for name, seconds in added.items())
    for form in ("execute_with_retry", "decorator"):
        yield Ratio(
            name=f"success path, {kind}, {form}: added time, ours / backoff",
            ratio=added[form] / added["backoff"],
            goal=0.5,
            detail=listed,
        )


def success_path_sync() -> Iterator[Ratio]:
    """Measure the synchronous driver beside its peers."""
    wait = tenacity.wait_exponential_jitter()
    contenders: dict[str, Callable[[], object]] = {
        "bare": work,
        "execute_with_retry": ours,
        "decorator": MANAGER.retries(CATEGORY)(work),
        "backoff": backoff.on_exception(backoff.expo, Exception, max_tries=3)(work),
        "tenacity": tenacity.retry(stop=tenacity.stop_after_attempt(3), wait=wait)(work),
        "stamina": stamina.retry(on=Exception, attempts=3)(work),
    }
    times = seconds_per_call(
        {name: repeated(call) for name, call in contenders.items()}, calls=1_000
    )
    return _report("sync", times)


def success_path_async() -> Iterator[Ratio]:
    """Measure the asynchronous driver beside its peers."""
    wait = tenacity.wait_exponential_jitter()
    contenders: dict[str, Callable[[], Awaitable[object]]] = {
        "bare": work_async,
        "execute_with_retry": ours_async,
        "decorator": MANAGER.retries(CATEGORY)(work_async),
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
    yield from success_path_sync()
    yield from success_path_async()
    yield one_decision()
