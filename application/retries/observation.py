"""What is told of a call while it goes on: to the audit trail, and to whoever observes."""

from collections.abc import Callable
from logging import Logger

from attrs import define, field

from tileferry.application.audit import AuditTrail, CallContext
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.telemetry import CallInfo, CallObserver, Telemetry
from tileferry.domain.audit import IdempotencyAction
from tileferry.domain.retry import FailedAttempt, RetryAt, RetryLoop, RetryPolicy
from tileferry.domain.text import message_of, printable


@define(kw_only=True)
class CallWatch:
    """An observer of one call whose own failures are logged, and change nothing."""

    logger: Logger
    _observer: CallObserver | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)
    _was_hit: bool = field(default=False, init=False)

    @classmethod
    def begun(cls, telemetry: Telemetry, context: CallContext, logger: Logger) -> "CallWatch":
        """Begin to observe a call."""
        watch = cls(logger=logger)
        watch._guarded(lambda: watch._begin(telemetry, context))
        return watch

    def attempt_failed(self, attempt: FailedAttempt) -> None:
        """Pass a failed attempt on."""
        self._failures += 1
        self._tell(lambda observer: observer.attempt_failed(attempt))

    def idempotency(self, action: IdempotencyAction) -> None:
        """Pass on what the key led to."""
        self._was_hit = action is IdempotencyAction.HIT
        self._tell(lambda observer: observer.idempotency(action))

    def succeeded(self) -> None:
        """Pass the good end on."""
        attempts = 0 if self._was_hit else self._failures + 1
        self._tell(lambda observer: observer.succeeded(attempts))

    def failed(self, error: BaseException) -> None:
        """Pass the bad end on."""
        self._tell(lambda observer: observer.failed(error))

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

    def _tell(self, tell: Callable[[CallObserver], None]) -> None:
        observer = self._observer
        if observer is not None:
            self._guarded(lambda: tell(observer))

    def _guarded(self, tell: Callable[[], None]) -> None:
        try:
            tell()
        except Exception as error:  # noqa: BLE001  # who looks on must not disturb
            self.logger.warning(
                "telemetry failed: %s", message_of(error), extra={"kind": "telemetry.failed"}
            )


@define(kw_only=True)
class TrailObserver:
    """Writes the retry events of one call to the audit trail."""

    context: CallContext
    policy: RetryPolicy
    trail: AuditTrail
    clock: Clock
    watch: CallWatch | None = None

    def attempt_failed(self, attempt: FailedAttempt) -> None:
        """Write the event of a failed attempt, with its decision."""
        if self.watch is not None:
            self.watch.attempt_failed(attempt)
        self._log(attempt)
        self.trail.emit(self.context.attempt_failed(attempt, self.policy, self.clock))

    def succeeded(self, loop: RetryLoop) -> None:
        """Write the event of a success after failures."""
        self.trail.emit(
            self.context.succeeded(
                attempts=len(loop.history) + 1, waited_s=loop.waited_s, clock=self.clock
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
                "%s: attempt %d of %d failed: %s; trying again in %.1f s",
                operation,
                failure.attempt,
                self.policy.max_attempts,
                attempt.summary,
                decision.delay_s,
                extra={"kind": "retry.attempt", "sleep_s": decision.delay_s, **fields},
            )
        else:
            self.trail.logger.error(
                "%s: attempt %d failed: %s; %s",
                operation,
                failure.attempt,
                attempt.summary,
                decision.reason.explanation,
                extra={"kind": "retry.exhausted", **fields},
            )
