"""OpenTelemetry spans and metrics for retried calls."""

from attrs import define, field, frozen
from opentelemetry.metrics import Counter, Histogram, Meter
from opentelemetry.trace import Span, Status, StatusCode, Tracer

from tileferry.application.ports.retries import CallInfo
from tileferry.domain.audit import IdempotencyAction
from tileferry.domain.retry import FailedAttempt, RetryAt
from tileferry.domain.text import format_error


@define
class OpenTelemetry:
    """Observes calls with the tracer and meter of the embedding program."""

    _tracer: Tracer
    _meter: Meter
    _attempts: Counter = field(init=False)
    _waits: Histogram = field(init=False)
    _calls: Counter = field(init=False)

    @_attempts.default
    def _make_attempts(self) -> Counter:
        return self._meter.create_counter(
            "tileferry.retry.failed_attempts", description="Failed attempts"
        )

    @_waits.default
    def _make_waits(self) -> Histogram:
        return self._meter.create_histogram(
            "tileferry.retry.wait", unit="s", description="Waits between attempts"
        )

    @_calls.default
    def _make_calls(self) -> Counter:
        return self._meter.create_counter("tileferry.retry.calls", description="Calls by outcome")

    def begin(self, call: CallInfo) -> "_SpanObserver":
        """Start a span as a child of the current one; return its observer."""
        attributes = {
            "tileferry.retry.category": call.category,
            "tileferry.tenant_id": call.tenant_id,
            "tileferry.correlation_id": call.correlation_id,
            "tileferry.trace_id": call.trace_id,
        }
        span = self._tracer.start_span(
            call.operation,
            attributes={name: value for name, value in attributes.items() if value is not None},
        )
        return _SpanObserver(
            span, {"category": call.category}, self._attempts, self._waits, self._calls
        )


@frozen
class _SpanObserver:
    """Records the events of one call."""

    _span: Span
    _labels: dict[str, str]
    _attempts: Counter
    _waits: Histogram
    _calls: Counter

    def on_attempt_failed(self, attempt: FailedAttempt) -> None:
        decision = attempt.decision
        self._span.add_event(
            "attempt failed",
            {
                "attempt": attempt.failure.attempt,
                "exception.type": attempt.error_type,
                "exception.message": attempt.error_message,
                "reason": decision.reason.value,
            },
        )
        self._attempts.add(1, self._labels)
        if isinstance(decision, RetryAt):
            self._waits.record(decision.delay_s, self._labels)

    def on_idempotency(self, action: IdempotencyAction) -> None:
        self._span.add_event("idempotency", {"action": action.value})

    def on_success(self, attempts: int) -> None:
        self._span.set_attribute("tileferry.retry.attempts", attempts)
        self._calls.add(1, self._labels | {"outcome": "succeeded"})
        self._span.end()

    def on_failure(self, error: BaseException) -> None:
        self._span.set_status(Status(StatusCode.ERROR, format_error(error)))
        self._calls.add(1, self._labels | {"outcome": "failed"})
        self._span.end()
