"""The two drivers of the retry loop: they call and wait, the loop decides.

Nothing but the call and one look at the clock happens until an attempt fails: the success path is
what nearly every call takes.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tileferry.application.ports.clock import AsyncSleep, Clock
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import GiveUp, GiveUpReason, RetryCategory, RetryLoop, RetryPolicy
from tileferry.domain.retry.loop import Classifier

Result = TypeVar("Result")


def call_with_retry(
    call: Callable[[], Result],
    *,
    policy: RetryPolicy,
    key: str,
    category: RetryCategory,
    operation: str,
    clock: Clock,
    classifier: Classifier | None = None,
) -> Result:
    """Return what ``call`` returns, trying again as ``policy`` says.

    A final error is raised as it is; when the tries are used up, ``RetryError`` is raised from the
    last one. What is not an ``Exception`` (an interrupt, a cancellation) passes straight through.
    """
    if not callable(call):
        raise _not_a_call(call)
    started_s = clock.monotonic()
    loop: RetryLoop | None = None
    while True:
        try:
            result = call()
        except Exception as error:  # noqa: BLE001  # the policy says which errors count
            loop = loop or _new_loop(policy, key, started_s, classifier)
            delay_s = _delay_or_raise(loop, error, clock, category, operation)
        else:
            if hasattr(type(result), "__await__"):
                raise _not_a_call(result)
            return result
        clock.sleep(delay_s)


async def call_with_retry_async(
    call: Callable[[], Awaitable[Result]],
    *,
    policy: RetryPolicy,
    key: str,
    category: RetryCategory,
    operation: str,
    clock: Clock,
    sleep: AsyncSleep,
    classifier: Classifier | None = None,
) -> Result:
    """Do what ``call_with_retry`` does, for a ``call`` that returns an awaitable each time."""
    if not callable(call):
        raise _not_a_call(call)
    started_s = clock.monotonic()
    loop: RetryLoop | None = None
    while True:
        try:
            result = call()
            if hasattr(type(result), "__await__"):
                return await result
        except Exception as error:  # noqa: BLE001  # the policy says which errors count
            loop = loop or _new_loop(policy, key, started_s, classifier)
            delay_s = _delay_or_raise(loop, error, clock, category, operation)
        else:
            raise _not_a_call(result)
        await sleep(delay_s)


def _new_loop(
    policy: RetryPolicy, key: str, started_s: float, classifier: Classifier | None
) -> RetryLoop:
    return RetryLoop(policy=policy, key=key, started_s=started_s, classifier=classifier)


def _delay_or_raise(
    loop: RetryLoop, error: Exception, clock: Clock, category: RetryCategory, operation: str
) -> float:
    decision = loop.after_failure(error, now_s=clock.monotonic())
    if not isinstance(decision, GiveUp):
        return decision.delay_s
    if decision.reason is GiveUpReason.FINAL:
        raise error
    raise loop.exhausted(decision, category=category, operation=operation) from error


def _not_a_call(given: object) -> InvalidValueError:
    """Refuse what cannot be tried again: an awaitable that exists already, or the wrong driver."""
    close = getattr(given, "close", None)
    if hasattr(type(given), "__await__") and close is not None:
        close()  # so that Python does not complain of it as well
    return InvalidValueError(
        field="call",
        value=type(given).__name__,
        problem="cannot be tried again",
        remedy="give a function: for call_with_retry_async one that returns a new awaitable each "
        "time, for call_with_retry one that returns a plain result",
    )
