"""One call of the retry manager: key, retries, audit and telemetry."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from logging import Logger
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define, field

from tileferry.application.audit import AuditTrail, CallContext, report_retry
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.progress import ProgressListener
from tileferry.application.ports.retries import CallInfo, CallObserver, Telemetry
from tileferry.application.retries.driver import (
    RetryState,
    drive,
    drive_async,
    not_callable_error,
)
from tileferry.application.retries.idempotent_call import IdempotentCall, WhenBusy
from tileferry.domain.audit import IdempotencyAction
from tileferry.domain.canonical import JsonValue
from tileferry.domain.retry import (
    Classifier,
    ErrorClass,
    FailedAttempt,
    Final,
    RetryAt,
    RetryLoop,
    RetryPolicy,
    classify_failure,
)
from tileferry.domain.text import format_error, printable

if TYPE_CHECKING:
    from tileferry.application.retries.manager import RetryManager


@define(kw_only=True)
class SafeCallObserver:
    """Wraps the observer of one call; its errors are logged and do not affect the call."""

    logger: Logger
    _observer: CallObserver | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)
    _was_hit: bool = field(default=False, init=False)

    @classmethod
    def start(
        cls, telemetry: Telemetry, context: CallContext, logger: Logger
    ) -> "SafeCallObserver":
        """Start observing a call."""
        watch = cls(logger=logger)
        watch._run_guarded(lambda: watch._begin(telemetry, context))
        return watch

    def on_attempt_failed(self, attempt: FailedAttempt) -> None:
        self._failures += 1
        self._notify(lambda observer: observer.on_attempt_failed(attempt))

    def on_idempotency(self, action: IdempotencyAction) -> None:
        self._was_hit = action is IdempotencyAction.HIT
        self._notify(lambda observer: observer.on_idempotency(action))

    def on_success(self) -> None:
        attempts = 0 if self._was_hit else self._failures + 1
        self._notify(lambda observer: observer.on_success(attempts))

    def on_failure(self, error: BaseException) -> None:
        self._notify(lambda observer: observer.on_failure(error))

    def _begin(self, telemetry: Telemetry, context: CallContext) -> None:
        self._observer = telemetry.begin(
            CallInfo(
                category=context.category,
                operation=context.operation,
                tenant_id=context.tenant_id,
                correlation_id=context.correlation_id,
                trace_id=context.trace_id,
            )
        )

    def _notify(self, tell: Callable[[CallObserver], None]) -> None:
        observer = self._observer
        if observer is not None:
            self._run_guarded(lambda: tell(observer))

    def _run_guarded(self, tell: Callable[[], None]) -> None:
        try:
            tell()
        except Exception as error:  # noqa: BLE001  # an observer must not affect the call
            self.logger.warning(
                "telemetry failed: %s", format_error(error), extra={"kind": "telemetry.failed"}
            )


@define(kw_only=True)
class AuditRetryObserver:
    """Writes the retry events of one call to the audit trail."""

    context: CallContext
    policy: RetryPolicy
    trail: AuditTrail
    clock: Clock
    progress: ProgressListener
    watch: SafeCallObserver | None = None

    def on_attempt_failed(self, attempt: FailedAttempt) -> None:
        """Write the event of a failed attempt with its decision, then report the wait."""
        if self.watch is not None:
            self.watch.on_attempt_failed(attempt)
        self._log(attempt)
        event = self.context.build_attempt_event(attempt, self.policy, self.clock)
        self.trail.emit(event)
        report_retry(event, self.progress, self.trail.logger)

    def on_success(self, loop: RetryLoop) -> None:
        """Write the event of a success after failures."""
        self.trail.emit(
            self.context.build_success_event(
                attempts=len(loop.history) + 1,
                waited_s=loop.waited_s,
                policy=self.policy,
                clock=self.clock,
            )
        )

    def _log(self, attempt: FailedAttempt) -> None:
        decision, failure = attempt.decision, attempt.failure
        operation = printable(self.context.operation)
        fields = {
            "category": printable(self.context.category),
            "operation": operation,
            "attempt": failure.attempt,
            "error": attempt.summary,
            "reason": decision.reason.value,
        }
        if isinstance(decision, RetryAt):
            self.trail.logger.warning(
                "%s: attempt %d of %d failed: %s; trying again in %.1f s (%s)",
                operation,
                failure.attempt,
                self.policy.max_attempts,
                attempt.summary,
                decision.delay_s,
                decision.reason.label,
                extra={"kind": "retry.attempt", "sleep_s": decision.delay_s, **fields},
            )
        else:
            self.trail.logger.error(
                "%s: attempt %d failed: %s; %s",
                operation,
                failure.attempt,
                attempt.summary,
                decision.reason.explanation,
                extra={"kind": f"retry.{'not_retryable' if decision.is_final else 'exhausted'}"}
                | fields,
            )


Result = TypeVar("Result")
Context = Mapping[str, JsonValue]


@define
class ManagedCall:
    """One call of the manager: created for calls that fail, have a key, or are observed."""

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
    watch: SafeCallObserver | None = None
    _final: BaseException | None = None
    _renew_claim: Callable[[], Any] = field(default=lambda: None)
    _was_called: bool = False
    _claim_error: BaseException | None = None
    """The claim was lost, or the store cannot answer: the operation must not run again."""

    def run(
        self,
        call: Callable[[], Any],
        *,
        payload: JsonValue | bytes,
        when_busy: WhenBusy,
        result_type: Any,
    ) -> Any:
        """Call with retries, under the key if there is one, observed by telemetry."""
        if not callable(call):
            raise not_callable_error(call)
        self.begin_watch()
        try:
            if self.idempotency_key is None:
                result = self._drive(call)
            else:
                result = self.manager.get_idempotency_manager().run_once(
                    partial(self._drive, partial(self._call_under_claim, call)),
                    self._to_idempotent_call(payload, when_busy, result_type),
                )
        except BaseException as error:
            self.end_watch(error)
            raise
        self.end_watch(None)
        return result

    async def run_async(
        self,
        call: Callable[[], Awaitable[Any]],
        *,
        payload: JsonValue | bytes,
        when_busy: WhenBusy,
        result_type: Any,
    ) -> Any:
        """Do what ``run`` does, for a ``call`` that returns a new awaitable each time."""
        if not callable(call):
            raise not_callable_error(call)
        self.begin_watch()
        try:
            if self.idempotency_key is None:
                result = await self._drive_async(call)
            else:
                result = await self.manager.get_idempotency_manager().run_once_async(
                    partial(self._drive_async, partial(self._call_under_claim_async, call)),
                    self._to_idempotent_call(payload, when_busy, result_type),
                )
        except BaseException as error:
            self.end_watch(error)
            raise
        self.end_watch(None)
        return result

    def _drive(self, call: Callable[[], Result]) -> Result:
        manager = self.manager
        return drive(call, manager.clock, manager.tokens, self.begin)

    def _drive_async(self, call: Callable[[], Awaitable[Result]]) -> Awaitable[Result]:
        manager = self.manager
        return drive_async(
            call, manager.clock, manager.tokens, manager.sleep, manager.offload, self.begin
        )

    def _call_under_claim(self, call: Callable[[], Result]) -> Result:
        """Call; before a retry, renew the claim, so that no other caller has run the operation."""
        if self._was_called:
            with self._note_claim_error():
                self._renew_claim()
        self._was_called = True
        return call()

    def _call_under_claim_async(self, call: Callable[[], Awaitable[Result]]) -> Awaitable[Result]:
        if self._was_called:
            return self._call_again_async(call)
        self._was_called = True
        return call()

    async def _call_again_async(self, call: Callable[[], Awaitable[Result]]) -> Result:
        with self._note_claim_error():
            await self._renew_claim()
        return await call()

    @contextmanager
    def _note_claim_error(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._claim_error = error
            error.add_note("the operation had failed before, and was not tried again")
            raise

    def begin(self, started_s: float) -> RetryState:
        """Return the state that its first failure creates."""
        manager = self.manager
        loop = RetryLoop(
            policy=self.policy,
            key=self.idempotency_key or manager.new_id(),
            started_s=started_s,
            classifier=self._classify,
            category=self.category,
            operation=self.operation,
        )
        observer = AuditRetryObserver(
            context=self.context,
            policy=self.policy,
            trail=manager.audit,
            clock=manager.clock,
            progress=manager.progress,
            watch=self.watch,
        )
        return RetryState(loop, manager.clock, manager.tokens, observer)

    def _to_idempotent_call(
        self, payload: JsonValue | bytes, when_busy: WhenBusy, result_type: Any
    ) -> IdempotentCall:
        assert self.idempotency_key is not None  # noqa: S101  # checked by the caller
        return IdempotentCall(
            key=self.idempotency_key,
            context=self.context,
            payload=payload,
            when_busy=when_busy,
            result_type=result_type,
            observe=None if self.watch is None else self.watch.on_idempotency,
            is_final=self._is_final,
            on_claimed=self._keep_renewal,
        )

    def _keep_renewal(self, renew: Callable[[], Any]) -> None:
        self._renew_claim = renew

    def _is_final(self, error: Exception) -> bool:
        """Return whether the operation raised this error and it was classified as final.

        Errors of an audit sink or a classifier are not a result of the operation.
        """
        return error is self._final

    def _classify(self, error: BaseException) -> ErrorClass:
        self._final = None
        if error is self._claim_error:
            return Final()  # not an error of the operation: it is not recorded
        found = classify_failure(error, self.policy, self.classifier)
        self._final = error if isinstance(found, Final) else None
        return found

    @property
    def context(self) -> CallContext:
        """The common fields of its audit events."""
        return CallContext(
            category=self.category,
            operation=self.operation,
            tenant_id=self.tenant_id,
            correlation_id=self.correlation_id,
            trace_id=self.trace_id,
            additional_context=self.additional_context,
        )

    def begin_watch(self) -> None:
        """Start observing, if the manager has telemetry."""
        manager = self.manager
        if manager.telemetry is not None:
            self.watch = SafeCallObserver.start(
                manager.telemetry, self.context, manager.audit.logger
            )

    def end_watch(self, error: BaseException | None) -> None:
        """Report the end of the call to telemetry."""
        if self.watch is None:
            return
        if error is None:
            self.watch.on_success()
        else:
            self.watch.on_failure(error)


def begin_call(started_s: float, *arguments: Any) -> RetryState:
    """Return the state of a call that had no ``ManagedCall`` before its first failure."""
    return ManagedCall(*arguments).begin(started_s)
