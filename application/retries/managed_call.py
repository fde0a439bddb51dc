"""One call of the retry manager, from its beginning to its end."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define

from tileferry.application.audit import CallContext
from tileferry.application.retries.idempotent_call import IdempotentCall, WhenBusy
from tileferry.application.retries.observation import CallWatch, TrailObserver
from tileferry.application.retries.retrying import (
    RetryObserver,
    call_with_retry,
    call_with_retry_async,
    keep_trying,
    keep_trying_async,
    new_loop,
    not_a_call,
)
from tileferry.domain.canonical import JsonValue
from tileferry.domain.retry import Classifier, ErrorClass, Final, RetryPolicy, class_of_failure

if TYPE_CHECKING:
    from tileferry.application.retries.retry_manager import RetryManager

Result = TypeVar("Result")
Context = Mapping[str, JsonValue]


@define
class ManagedCall:
    """One call with all that belongs to it; made for those that do not succeed at once.

    Also for every call with a key, or that telemetry looks at.
    """

    manager: "RetryManager"
    category: str
    operation: str
    policy: RetryPolicy
    idempotency_key: str | None
    tenant_id: str | None
    correlation_id: str | None
    trace_id: str | None
    additional_context: Context | None
    classifier: Classifier | None
    watch: CallWatch | None = None
    _final: BaseException | None = None

    def run(self, call: Callable[[], Result]) -> Result:
        """Call until it succeeds."""
        manager = self.manager
        return call_with_retry(
            call,
            policy=self.policy,
            key=self.idempotency_key or manager.new_id,
            category=self.category,
            operation=self.operation,
            clock=manager.clock,
            classifier=self._noting_final,
            observer=self.observer,
            tokens=manager.tokens,
        )

    def run_async(self, call: Callable[[], Awaitable[Result]]) -> Awaitable[Result]:
        """Await until it succeeds."""
        manager = self.manager
        return call_with_retry_async(
            call,
            policy=self.policy,
            key=self.idempotency_key or manager.new_id,
            category=self.category,
            operation=self.operation,
            clock=manager.clock,
            sleep=manager.sleep,
            classifier=self._noting_final,
            observer=self.observer,
            offload=manager.offload,
            tokens=manager.tokens,
        )

    def keep_trying(self, call: Callable[[], Result], error: Exception, started_s: float) -> Result:
        """Go on after a first attempt that raised ``error``."""
        manager = self.manager
        return keep_trying(
            call,
            error,
            new_loop(self.policy, manager.new_id, started_s, self.classifier),
            category=self.category,
            operation=self.operation,
            clock=manager.clock,
            observer=self.observer(),
            tokens=manager.tokens,
        )

    async def keep_trying_async(
        self, call: Callable[[], Awaitable[Result]], error: Exception, started_s: float
    ) -> Result:
        """Go on after a first attempt that raised ``error``."""
        manager = self.manager
        return await keep_trying_async(
            call,
            error,
            new_loop(self.policy, manager.new_id, started_s, self.classifier),
            category=self.category,
            operation=self.operation,
            clock=manager.clock,
            sleep=manager.sleep,
            observer=self.observer(),
            offload=manager.offload,
            tokens=manager.tokens,
        )

    def run_observed(
        self, call: Callable[[], Any], once: Callable[["ManagedCall"], IdempotentCall]
    ) -> Any:
        """Call under the key, if there is one, while telemetry looks on."""
        if not callable(call):
            raise not_a_call(call)
        self.begin_watch()
        try:
            if self.idempotency_key is None:
                result = self.run(call)
            else:
                result = self.manager.idempotency().once(partial(self.run, call), once(self))
        except BaseException as error:
            self.end_watch(error)
            raise
        self.end_watch(None)
        return result

    async def run_observed_async(
        self, call: Callable[[], Awaitable[Any]], once: Callable[["ManagedCall"], IdempotentCall]
    ) -> Any:
        """Await under the key, if there is one, while telemetry looks on."""
        if not callable(call):
            raise not_a_call(call)
        self.begin_watch()
        try:
            if self.idempotency_key is None:
                result = await self.run_async(call)
            else:
                result = await self.manager.idempotency().once_async(
                    partial(self.run_async, call), once(self)
                )
        except BaseException as error:
            self.end_watch(error)
            raise
        self.end_watch(None)
        return result

    def is_final(self, error: Exception) -> bool:
        """Tell whether the operation raised this, and trying it again cannot help.

        What we raise ourselves, for a sink that failed or a classifier that did, is not its end.
        """
        return error is self._final

    def _noting_final(self, error: BaseException) -> ErrorClass:
        self._final = None
        found = class_of_failure(error, self.policy, self.classifier)
        self._final = error if isinstance(found, Final) else None
        return found

    @property
    def context(self) -> CallContext:
        """What its audit events have in common."""
        return CallContext(
            category=self.category,
            operation=self.operation,
            tenant_id=self.tenant_id,
            correlation_id=self.correlation_id,
            trace_id=self.trace_id,
            additional_context=self.additional_context,
        )

    def observer(self) -> RetryObserver:
        """Return what writes its events, once there is one to write."""
        return TrailObserver(
            context=self.context,
            policy=self.policy,
            trail=self.manager.audit,
            clock=self.manager.clock,
            watch=self.watch,
        )

    def begin_watch(self) -> None:
        """Have telemetry look on, if there is any."""
        manager = self.manager
        if manager.telemetry is not None:
            self.watch = CallWatch.begun(manager.telemetry, self.context, manager.audit.logger)

    def end_watch(self, error: BaseException | None) -> None:
        """Tell telemetry how it ended."""
        if self.watch is None:
            return
        if error is None:
            self.watch.succeeded()
        else:
            self.watch.failed(error)


def idempotent(
    call: ManagedCall, *, payload: JsonValue | bytes, when_busy: WhenBusy, result_type: Any
) -> IdempotentCall:
    """Return the call under its key."""
    assert call.idempotency_key is not None  # noqa: S101  # whoever asks has looked
    return IdempotentCall(
        key=call.idempotency_key,
        context=call.context,
        payload=payload,
        when_busy=when_busy,
        result_type=result_type,
        observe=None if call.watch is None else call.watch.idempotency,
        is_final=call.is_final,
    )
