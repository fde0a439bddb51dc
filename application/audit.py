"""The audit trail: writes every event to every sink, counts sink failures, and builds events."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from logging import Logger
from typing import Any

from attrs import define, field, frozen

from tileferry.application.audit_delivery import BufferedSink, read_time
from tileferry.application.ports.audit import AuditSink
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.progress import ProgressEvent, ProgressListener, RetryScheduled
from tileferry.domain.audit import (
    AuditEvent,
    CallFailed,
    IdempotencyAction,
    IdempotencyOutcome,
    IdempotencyUsed,
    NotRetryable,
    RetryAttempted,
    RetryExhausted,
    RetrySucceeded,
    StateChanged,
    TileGivenUp,
)
from tileferry.domain.canonical import JsonValue, canonical_json
from tileferry.domain.errors import AuditError, InvalidValueError
from tileferry.domain.retry import (
    DecisionRecord,
    FailedAttempt,
    GiveUp,
    RateLimited,
    RetryAt,
    RetryPolicy,
)
from tileferry.domain.state_machine import Actor
from tileferry.domain.text import format_error, quote_value
from tileferry.domain.tiles import Flight, FlightStatus, OperatorNote
from tileferry.domain.validation import is_unicode


@define(kw_only=True)
class AuditTrail:
    """Writes events to several sinks.

    A failing sink does not affect the others. Its failure is counted and logged; with
    ``fail_closed`` the caller also gets an ``AuditError`` and stops. A ``BufferedSink`` fails only
    if it can neither pass events on nor keep them.
    """

    logger: Logger
    sinks: Sequence[AuditSink] = ()
    fail_closed: bool = False
    failures: Counter[str] = field(factory=Counter, init=False)
    """The number of failed events by sink name."""

    def emit(self, *events: AuditEvent, written_to: AuditSink | None = None) -> None:
        """Write events; skip ``written_to``, whose transaction has already written them."""
        refusals: list[AuditError] = []
        for sink in self.sinks:
            if written_to is not None and written_to is _unwrap(sink):
                continue
            try:
                sink.emit(events)
            except Exception as error:  # noqa: BLE001  # the other sinks get the event in any case
                refusals.append(self._record_refusal(sink, events, error))
        if refusals and self.fail_closed:
            raise refusals[0]

    def deliver(self, *, at_once: bool = False) -> None:
        """Deliver the events that wait in the outboxes of sinks; never raise."""
        for sink in self.sinks:
            if isinstance(sink, BufferedSink):
                sink.deliver(at_once=at_once)

    def _record_refusal(
        self, sink: AuditSink, events: Sequence[AuditEvent], error: Exception
    ) -> AuditError:
        self.failures[sink.name] += len(events)
        self.logger.error(
            "audit sink %s took none of %d events: %s",
            sink.name,
            len(events),
            format_error(error),
            extra={"kind": "audit.sink_failed", "sink": sink.name, "events": len(events)},
        )
        refusal = AuditError(
            sink=sink.name, problem=f"{type(error).__name__}: {format_error(error)}"
        )
        refusal.__cause__ = error
        return refusal


def _unwrap(sink: AuditSink) -> AuditSink:
    return sink.sink if isinstance(sink, BufferedSink) else sink


def _to_label(value: Any) -> Any:
    """Convert a label to a form that can be written, so that it cannot block the work."""
    return value if value is None or is_unicode(value) else quote_value(value)


def _to_name(value: Any) -> str:
    return str(_to_label(value) or "unnamed")


def _to_context(value: Any) -> Any:
    """Replace a value that cannot be written by a quoted form, for the same reason."""
    if value is None:
        return None
    try:
        canonical_json(value, field="additional_context")
    except InvalidValueError as error:
        return {"not_json": quote_value(value), "problem": str(error)}
    return value if isinstance(value, Mapping) else {"value": value}


@frozen(kw_only=True)
class CallContext:
    """The common fields of all events of one call.

    The caller's values are for later inspection. None of them may prevent an event: the work is
    done when the event is written, and an error would hide its result.
    """

    category: str = field(converter=_to_name)
    operation: str = field(converter=_to_name)
    tenant_id: str | None = field(default=None, converter=_to_label)
    correlation_id: str | None = field(default=None, converter=_to_label)
    trace_id: str | None = field(default=None, converter=_to_label)
    additional_context: Mapping[str, JsonValue] | None = field(default=None, converter=_to_context)

    def build_attempt_event(
        self, attempt: FailedAttempt, policy: RetryPolicy, clock: Clock
    ) -> RetryAttempted | CallFailed:
        """Return the event of a failed attempt, with the decision that followed it."""
        decision = attempt.decision
        record = DecisionRecord(policy=policy, failure=attempt.failure, decision=decision)
        if isinstance(decision, GiveUp):
            kind = NotRetryable if decision.is_final else RetryExhausted
            return kind(
                **self._common_fields(clock),
                total_attempts=decision.attempts,
                final_exception_type=attempt.error_type,
                final_exception_message=attempt.error_message,
                decision_record=record,
            )
        return RetryAttempted(
            **self._common_fields(clock),
            attempt_number=attempt.failure.attempt,
            max_attempts=policy.max_attempts,
            delay_seconds=decision.delay_s,
            exception_type=attempt.error_type,
            exception_message=attempt.error_message,
            decision_record=record,
        )

    def build_success_event(
        self, *, attempts: int, waited_s: float, policy: RetryPolicy, clock: Clock
    ) -> RetrySucceeded:
        """Return the event of a success that took more than one attempt."""
        return RetrySucceeded(
            **self._common_fields(clock),
            total_attempts=attempts,
            total_delay_seconds=waited_s,
            policy_name=policy.name,
        )

    def build_idempotency_event(
        self,
        key: str,
        action: IdempotencyAction,
        clock: Clock,
        outcome: IdempotencyOutcome | None = None,
    ) -> IdempotencyUsed:
        """Return the event of a stored outcome that was returned, or of a new one."""
        return IdempotencyUsed(
            **self._common_fields(clock), idempotency_key=key, action=action, outcome=outcome
        )

    def _common_fields(self, clock: Clock) -> dict[str, Any]:
        return {
            "timestamp": read_time(clock),
            "retry_category": self.category,
            "operation": self.operation,
            "tenant_id": self.tenant_id,
            "correlation_id": self.correlation_id,
            "trace_id": self.trace_id,
            "additional_context": self.additional_context,
        }


def report_retry(
    event: RetryAttempted | CallFailed, progress: ProgressListener, logger: Logger
) -> None:
    """Report a wait to a listener; may be called from any thread."""
    if isinstance(event, CallFailed):
        return
    record = event.decision_record
    assert isinstance(record.decision, RetryAt)  # noqa: S101  # a giveup has no wait
    scheduled = RetryScheduled(
        operation=event.operation,
        reason=event.exception_message,
        category=event.retry_category,
        rule=record.decision.reason,
        is_rate_limited=isinstance(record.failure.error, RateLimited),
        attempt=event.attempt_number,
        max_attempts=event.max_attempts,
        delay_s=event.delay_seconds,
    )
    notify_listener(scheduled, progress, logger)


def notify_listener(event: ProgressEvent, progress: ProgressListener, logger: Logger) -> None:
    """Send an event from any thread. An error of the listener is logged and ignored."""
    try:
        progress(event)
    except Exception as error:  # noqa: BLE001  # it must not change the outcome of a call
        logger.error(  # noqa: TRY400  # the message is complete
            "progress listener failed: %s",
            format_error(error),
            extra={"kind": "progress.listener_failed"},
        )


def build_giveup_event(
    tile_id: str, flight_id: str, attempts: int, reason: str | None, *, clock: Clock
) -> TileGivenUp:
    """Return the event of a tile that was given up."""
    return TileGivenUp(
        timestamp=read_time(clock),
        correlation_id=flight_id,
        tile_id=tile_id,
        flight_id=flight_id,
        attempts=attempts,
        last_rejection_reason=reason,
    )


def build_flight_event(
    before: Flight | None,
    after: Flight | None,
    transition: str,
    note: OperatorNote,
    *,
    now: datetime,
) -> StateChanged | None:
    """Return the event of an operator's change of a flight; ``None`` if nothing changed."""
    known = after or before
    if known is None or before == after:
        return None
    return StateChanged(
        timestamp=now,
        correlation_id=known.flight_id,
        subject=f"flight {known.flight_id}",
        transition=transition,
        from_status=None if before is None else before.get_status(now),
        to_status=FlightStatus.REMOVED if after is None else after.get_status(now),
        actor=Actor.OPERATOR,
        reason=note.reason,
        additional_context={"by": note.by},
    )
