"""The two drivers of the retry loop: they call and wait, the loop decides.

Nothing but the call and one look at the clock happens until an attempt fails: the success path is
what nearly every call takes.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from tileferry.application.ports.clock import AsyncSleep, Clock, Offload
from tileferry.application.ports.retries import RetryTokens
from tileferry.domain.errors import MisuseError
from tileferry.domain.retry import (
    Classifier,
    FailedAttempt,
    GiveUp,
    RetryLoop,
    RetryPolicy,
)

Result = TypeVar("Result")
JitterKey = str | Callable[[], str]
"""What the jitter is derived from; one that must be made is made when it is needed."""


class RetryObserver(Protocol):
    """Sees what a call that does not succeed at once comes to."""

    def on_attempt_failed(self, attempt: FailedAttempt) -> None:
        """Note a failed attempt and what was decided, before that happens."""
        ...

    def on_success(self, loop: RetryLoop) -> None:
        """Note a success after failures."""
        ...


def call_with_retry(
    call: Callable[[], Result],
    *,
    policy: RetryPolicy,
    key: JitterKey,
    category: str,
    operation: str,
    clock: Clock,
    classifier: Classifier | None = None,
    observer: Callable[[], RetryObserver] | None = None,
    tokens: RetryTokens | None = None,
) -> Result:
    """Return what ``call`` returns, trying again as ``policy`` says.

    A final error is raised as it is; when the tries are used up, ``RetryError`` is raised from the
    last one. What is not an ``Exception`` (an interrupt, a cancellation) passes straight through.
    """
    if not callable(call):
        raise not_callable_error(call)
    if tokens is not None:
        tokens.note_first_attempt()
    started_s = clock.monotonic()
    try:
        result = call()
    except Exception as error:  # noqa: BLE001  # the policy says which errors count
        failure = error
    else:
        return reject_awaitable(result)
    return keep_trying(
        call,
        failure,
        create_loop(policy, key, started_s, classifier),
        category=category,
        operation=operation,
        clock=clock,
        observer=observer() if observer else None,
        tokens=tokens,
    )


def keep_trying(
    call: Callable[[], Result],
    error: Exception,
    loop: RetryLoop,
    *,
    category: str,
    operation: str,
    clock: Clock,
    observer: RetryObserver | None,
    tokens: RetryTokens | None = None,
) -> Result:
    """Go on after the first attempt, which raised ``error``."""
    try:
        while True:
            attempt = decide_after_failure(loop, error, clock, tokens)
            if observer is not None:
                observer.on_attempt_failed(attempt)
            clock.sleep(get_delay_or_raise(loop, attempt, error, category, operation))
            try:
                result = call()
            except Exception as failure:  # noqa: BLE001  # as above
                error = failure
            else:
                if observer is not None:
                    observer.on_success(loop)
                return reject_awaitable(result)
    finally:
        del error  # it holds this frame, which holds it


async def call_with_retry_async(
    call: Callable[[], Awaitable[Result]],
    *,
    policy: RetryPolicy,
    key: JitterKey,
    category: str,
    operation: str,
    clock: Clock,
    sleep: AsyncSleep,
    classifier: Classifier | None = None,
    observer: Callable[[], RetryObserver] | None = None,
    offload: Offload | None = None,
    tokens: RetryTokens | None = None,
) -> Result:
    """Do what ``call_with_retry`` does, for a ``call`` that returns an awaitable each time.

    An observer that may wait (for a disk, a database) does so by ``offload``, off the event loop.
    """
    if not callable(call):
        raise not_callable_error(call)
    if tokens is not None:
        tokens.note_first_attempt()
    started_s = clock.monotonic()
    try:
        pending = call()
        if hasattr(type(pending), "__await__"):
            return await pending
    except Exception as error:  # noqa: BLE001  # the policy says which errors count
        failure = error
    else:
        raise not_callable_error(pending)
    return await keep_trying_async(
        call,
        failure,
        create_loop(policy, key, started_s, classifier),
        category=category,
        operation=operation,
        clock=clock,
        sleep=sleep,
        observer=observer() if observer else None,
        offload=offload,
        tokens=tokens,
    )


async def keep_trying_async(
    call: Callable[[], Awaitable[Result]],
    error: Exception,
    loop: RetryLoop,
    *,
    category: str,
    operation: str,
    clock: Clock,
    sleep: AsyncSleep,
    observer: RetryObserver | None,
    offload: Offload | None,
    tokens: RetryTokens | None = None,
) -> Result:
    """Go on after the first attempt, which raised ``error``."""
    try:
        while True:
            attempt = decide_after_failure(loop, error, clock, tokens)
            if observer is not None:
                await _notify(partial(observer.on_attempt_failed, attempt), offload)
            await sleep(get_delay_or_raise(loop, attempt, error, category, operation))
            try:
                result = await call()
            except Exception as failure:  # noqa: BLE001  # as above
                error = failure
            else:
                if observer is not None:
                    await _notify(partial(observer.on_success, loop), offload)
                return result
    finally:
        del error  # it holds this frame, which holds it


def reject_awaitable(result: Result) -> Result:
    """Return a result, unless it is still to be awaited."""
    if hasattr(type(result), "__await__"):
        raise not_callable_error(result)
    return result


async def _notify(tell: Callable[[], None], offload: Offload | None) -> None:
    if offload is None:
        tell()
    else:
        await offload(tell)


def create_loop(
    policy: RetryPolicy, key: JitterKey, started_s: float, classifier: Classifier | None
) -> RetryLoop:
    """Begin to count, after the first failure."""
    made = key if isinstance(key, str) else key()
    return RetryLoop(policy=policy, key=made, started_s=started_s, classifier=classifier)


def decide_after_failure(
    loop: RetryLoop, error: Exception, clock: Clock, tokens: RetryTokens | None = None
) -> FailedAttempt:
    """Have the loop decide, with what the bucket holds, and return the line of its history."""
    now_s = clock.monotonic()
    if tokens is None:
        loop.record_failure(error, now_s=now_s)
    else:
        found = loop.classify(error)
        tokens.charge(
            lambda held: loop.record_failure(
                error, now_s=now_s, budget_tokens=held, error_class=found
            )
        )
    return loop.history[-1]


def get_delay_or_raise(
    loop: RetryLoop,
    attempt: FailedAttempt,
    error: Exception,
    category: str,
    operation: str,
) -> float:
    """Return how long to wait, or end the call as was decided."""
    decision = attempt.decision
    if not isinstance(decision, GiveUp):
        return decision.delay_s
    if decision.is_final:
        raise error
    raise loop.build_error(decision, category=category, operation=operation) from error


def not_callable_error(given: object) -> MisuseError:
    """Refuse what cannot be tried again: an awaitable that exists already, or the wrong driver."""
    close = getattr(given, "close", None)
    if hasattr(type(given), "__await__") and close is not None:
        close()  # so that Python does not complain of it as well
    return MisuseError(
        what="call",
        problem=f"a {type(given).__name__} cannot be called again",
        remedy="pass a function: for call_with_retry_async one that returns a new awaitable each "
        "time, for call_with_retry one that returns a plain result",
    )
