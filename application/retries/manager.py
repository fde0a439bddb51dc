"""The retry manager: policies by category, idempotency, audit and telemetry around one loop."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from attrs import define, evolve, frozen

from tileferry.application.audit import AuditTrail
from tileferry.application.ports.clock import AsyncSleep, Clock, Offload
from tileferry.application.ports.progress import NULL_LISTENER, ProgressListener
from tileferry.application.ports.retries import RetryTokens, Telemetry
from tileferry.application.retries.driver import Attempts, drive, drive_async
from tileferry.application.retries.idempotency import IdempotencyManager
from tileferry.application.retries.idempotent_call import WhenBusy
from tileferry.application.retries.managed_call import Context, ManagedCall, begin_call
from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidValueError, MisuseError
from tileferry.domain.retry import POLICY_MATRIX, Classifier, RetryCategory, RetryPolicy
from tileferry.domain.text import quote_value

_AWAITABLES = (Awaitable, Coroutine)


def check_decorable(function: Any, idempotency_key: Any) -> None:
    """Raise for a function that does its work after it returns: a retry would have no effect."""
    plain = _unwrap(function)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise MisuseError(
            what=f"function {quote_value(getattr(plain, '__qualname__', plain))}",
            problem="is a generator, whose work begins after the call",
            remedy="decorate a function that does the work, or use attempts() inside it",
        )
    for name, value in (("function", function), ("idempotency_key", idempotency_key)):
        if value is not None and not callable(value):
            raise MisuseError(what=name, problem=f"must be a function (got {quote_value(value)})")


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether the function's result must be awaited."""
    return inspect.iscoroutinefunction(_unwrap(function))


def get_return_type(function: Callable[..., Any]) -> Any:
    """Return the declared type of the result, awaited if need be; ``Any`` if it is unknown."""
    plain = _unwrap(function)
    if isinstance(plain, type):
        return plain
    body = plain if inspect.isroutine(plain) or not callable(plain) else type(plain).__call__
    declared = Any
    for read in (get_type_hints, _read_annotations):
        with suppress(NameError, TypeError):  # unresolvable, or not a function
            declared = read(body).get("return", Any)
            break
    return get_args(declared)[-1] if get_origin(declared) in _AWAITABLES else declared


def _read_annotations(function: Any) -> dict[str, Any]:
    """Return the annotations without resolving names inside them: ``JsonValue`` is recursive."""
    return inspect.get_annotations(function, eval_str=True)


def _resolve_result_type(result_type: Any, function: Callable[..., Any]) -> Any:
    return get_return_type(function) if result_type is Any else result_type


def _unwrap(function: Any) -> Any:
    while isinstance(function, partial):
        function = function.func
    return function


Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])


async def _refuse_sleep(_seconds: float) -> None:
    raise MisuseError(
        what="RetryManager.sleep",
        problem="is required for asynchronous calls",
        remedy="pass asyncio.sleep",
    )


@define(kw_only=True)
class RetryManager:
    """Runs operations with their category's retry policy, and audits every retry.

    The asynchronous form is ``execute_with_retry``, the synchronous one
    ``execute_with_retry_sync``; ``retries`` decorates either kind of function, ``attempts`` is for
    loops. All use the same retry loop. A final error is raised unchanged, exhaustion raises
    ``RetryError``; interrupts and cancellations are never retried.
    """

    clock: Clock
    new_id: Callable[[], str]
    """Returns a unique id; the jitter of a call without a key is derived from it."""
    audit: AuditTrail
    sleep: AsyncSleep = _refuse_sleep
    """Used by the asynchronous forms."""
    offload: Offload | None = None
    """Runs audit sinks and idempotency stores off the event loop."""
    policies: Mapping[RetryCategory, RetryPolicy] = POLICY_MATRIX
    idempotency_manager: IdempotencyManager | None = None
    telemetry: Telemetry | None = None
    tokens: RetryTokens | None = None
    """The retry budget, which delays retries so that they do not make an outage worse; ``None``:
    no limit.
    """
    progress: ProgressListener = NULL_LISTENER
    """Receives ``RetryScheduled`` before each wait."""

    def get_policy(
        self, category: RetryCategory | str, policy: RetryPolicy | None = None
    ) -> RetryPolicy:
        """Return ``policy``, or the category's policy; the category is a member, its code or its
        name.
        """
        if policy is None:
            try:
                return self.policies[category]  # type: ignore[index]  # a code equals its member
            except (KeyError, TypeError):
                return self.policies[RetryCategory.parse(category)]
        if not isinstance(policy, RetryPolicy):
            raise InvalidValueError(field="policy", value=policy, problem="must be a RetryPolicy")
        return policy

    def without_waiting(self) -> "RetryManager":
        """Return a manager that makes the same decisions but never waits, for tests."""
        keys = self.idempotency_manager
        clock = _NoWaitClock(self.clock)
        return evolve(
            self,
            clock=clock,
            sleep=_skip_sleep,
            idempotency_manager=None
            if keys is None
            else evolve(keys, clock=clock, sleep=_skip_sleep),
        )

    async def execute_with_retry(  # noqa: PLR0917  # a documented signature
        self,
        category: RetryCategory | str,
        operation: str,
        coro: Callable[[], Awaitable[Result]],
        policy: RetryPolicy | None = None,
        idempotency_key: str | None = None,
        tenant_id: str | None = None,
        correlation_id: str | None = None,
        trace_id: str | None = None,
        additional_context: Context | None = None,
        *,
        classifier: Classifier | None = None,
        payload: JsonValue | bytes = None,
        when_busy: WhenBusy = WhenBusy.WAIT,
        result_type: Any = Any,
    ) -> Result:
        """Call ``coro`` and await the new awaitable that it returns, until one succeeds.

        With a key, the result is recorded and returned to every later caller with the same key.
        ``payload`` is the request behind the key; the same key with another payload is refused.
        ``result_type``, by default the declared return type, is checked before anything runs.
        """
        chosen = self.get_policy(category, policy)
        arguments = (
            self, category, operation, chosen, idempotency_key,
            tenant_id, correlation_id, trace_id, additional_context, classifier,
        )  # fmt: skip
        if idempotency_key is None and self.telemetry is None:  # the common case
            return await drive_async(
                coro, self.clock, self.tokens, self.sleep, self.offload, begin_call, arguments
            )
        result = await ManagedCall(*arguments).run_async(
            coro,
            payload=payload,
            when_busy=when_busy,
            result_type=_resolve_result_type(result_type, coro),
        )
        return cast("Result", result)

    def execute_with_retry_sync(  # noqa: PLR0917  # see above
        self,
        category: RetryCategory | str,
        operation: str,
        call: Callable[[], Result],
        policy: RetryPolicy | None = None,
        idempotency_key: str | None = None,
        tenant_id: str | None = None,
        correlation_id: str | None = None,
        trace_id: str | None = None,
        additional_context: Context | None = None,
        *,
        classifier: Classifier | None = None,
        payload: JsonValue | bytes = None,
        when_busy: WhenBusy = WhenBusy.WAIT,
        result_type: Any = Any,
    ) -> Result:
        """Do what ``execute_with_retry`` does, for a plain function."""
        chosen = self.get_policy(category, policy)
        arguments = (
            self, category, operation, chosen, idempotency_key,
            tenant_id, correlation_id, trace_id, additional_context, classifier,
        )  # fmt: skip
        if idempotency_key is None and self.telemetry is None:
            return drive(call, self.clock, self.tokens, begin_call, arguments)
        result = ManagedCall(*arguments).run(
            call,
            payload=payload,
            when_busy=when_busy,
            result_type=_resolve_result_type(result_type, call),
        )
        return cast("Result", result)

    def retries(
        self,
        category: RetryCategory | str,
        *,
        operation: str | None = None,
        policy: RetryPolicy | None = None,
        classifier: Classifier | None = None,
        idempotency_key: Callable[..., str] | None = None,
    ) -> Callable[[Function], Function]:
        """Decorate a function, plain or ``async``, so that each call is retried.

        ``idempotency_key`` receives the call's arguments and returns the key. With it, the return
        type is checked at decoration: a type whose values cannot be stored is refused.
        """
        chosen = self.get_policy(category, policy)

        def decorate(function: Function) -> Function:
            name = operation or getattr(function, "__qualname__", type(function).__name__)
            check_decorable(function, idempotency_key)
            result_type = Any
            if idempotency_key is not None:
                result_type = get_return_type(function)
                self.get_idempotency_manager().codec.check_type(result_type)

            @functools.wraps(function)
            def retried(*args: Any, **kwargs: Any) -> Any:
                key = None if idempotency_key is None else idempotency_key(*args, **kwargs)
                call = partial(function, *args, **kwargs)
                return execute(
                    category,
                    name,
                    call,
                    chosen,
                    key,
                    classifier=classifier,
                    result_type=result_type,
                )

            if not is_async(function):
                execute: Callable[..., Any] = self.execute_with_retry_sync
                return cast("Function", retried)
            execute = self.execute_with_retry

            @functools.wraps(function)
            async def retried_async(*args: Any, **kwargs: Any) -> Any:
                return await retried(*args, **kwargs)

            return cast("Function", retried_async)

        return decorate

    def attempts(
        self,
        category: RetryCategory | str,
        operation: str,
        policy: RetryPolicy | None = None,
        *,
        tenant_id: str | None = None,
        correlation_id: str | None = None,
        trace_id: str | None = None,
        additional_context: Context | None = None,
        classifier: Classifier | None = None,
    ) -> Attempts:
        """Return attempts to iterate with ``for`` or ``async for``; each is a context manager."""
        call = ManagedCall(
            self, category, operation, self.get_policy(category, policy), None,
            tenant_id, correlation_id, trace_id, additional_context, classifier,
        )  # fmt: skip
        return Attempts(
            clock=self.clock,
            sleep=self.sleep,
            offload=self.offload,
            tokens=self.tokens,
            begin=call.begin,
            on_begin=call.begin_watch,
            on_end=call.end_watch,
        )

    def get_idempotency_manager(self) -> IdempotencyManager:
        """Return the idempotency manager; raise if there is none."""
        if self.idempotency_manager is None:
            raise MisuseError(
                what="RetryManager.idempotency_manager",
                problem="is required for an operation with an idempotency key",
                remedy="pass one, with a store that all callers share",
            )
        return self.idempotency_manager


@frozen
class _NoWaitClock:
    """A clock that tells the time but never waits."""

    _clock: Clock

    def now(self) -> float:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        """Return at once."""


async def _skip_sleep(seconds: float) -> None:
    """Return at once."""
