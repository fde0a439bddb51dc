"""Audit events of every kind, made from a number."""

from datetime import UTC, datetime, timedelta

from tileferry.domain.audit import (
    AuditEvent,
    IdempotencyAction,
    IdempotencyUsed,
    RetryAttempted,
    RetryExhausted,
    RetrySucceeded,
    StateChanged,
    TileGivenUp,
)
from tileferry.domain.retry import (
    POLICY_MATRIX,
    DecisionRecord,
    Failure,
    Retryable,
    RetryAt,
    RetryCategory,
    decide,
)

AT = datetime(2026, 11, 1, 12, tzinfo=UTC)
_POLICY = POLICY_MATRIX[RetryCategory.API_REQUEST]


def moment(number: int) -> datetime:
    """Return a time of its own for each number."""
    return AT + timedelta(microseconds=number)


def _decided(number: int, attempt: int) -> DecisionRecord:
    failure = Failure(key=f"k{number}", attempt=attempt, error=Retryable())
    return DecisionRecord(policy=_POLICY, failure=failure, decision=decide(_POLICY, failure))


def attempted(number: int, *, correlation_id: str | None = None) -> RetryAttempted:
    """Return the event of a first attempt that failed."""
    record = _decided(number, 1)
    assert isinstance(record.decision, RetryAt)
    return RetryAttempted(
        timestamp=moment(number),
        tenant_id="tenant-123",
        correlation_id=f"corr-{number}" if correlation_id is None else correlation_id,
        trace_id=f"trace-{number}",
        retry_category=RetryCategory.API_REQUEST,
        operation="GET tile ☁",
        attempt_number=1,
        max_attempts=_POLICY.max_attempts,
        delay_seconds=record.decision.delay_s,
        exception_type="TimeoutError",
        exception_message="Connection timeout",
        decision_record=record,
    )


def used(number: int, key: str, *, correlation_id: str | None = None) -> IdempotencyUsed:
    """Return the event of a result that was recorded."""
    return IdempotencyUsed(
        timestamp=moment(number),
        correlation_id=correlation_id,
        retry_category=RetryCategory.KV_PUT,
        operation="Store state",
        idempotency_key=key,
        action=IdempotencyAction.RECORD,
    )


def every_kind() -> list[AuditEvent]:
    """Return one event of each kind."""
    return [
        attempted(1),
        RetryExhausted(
            timestamp=moment(2),
            retry_category=RetryCategory.API_REQUEST,
            operation="GET tile",
            total_attempts=_POLICY.max_attempts,
            final_exception_type="TimeoutError",
            final_exception_message='a "quote", a \\ and a \x00',
            decision_record=_decided(2, _POLICY.max_attempts),
        ),
        used(3, "key-3", correlation_id="corr-1"),
        RetrySucceeded(
            timestamp=moment(4),
            correlation_id="corr-1",
            retry_category=RetryCategory.API_REQUEST,
            operation="GET tile",
            total_attempts=2,
            total_delay_seconds=1.5,
            additional_context={"zero": "\x00", "deep": [{"a": None}]},
        ),
        StateChanged(
            timestamp=moment(5),
            subject="run 7",
            transition="claim",
            from_status="discovered",
            to_status="processing",
            actor="scheduler",
        ),
        TileGivenUp(
            timestamp=moment(6),
            tile_id="sat/15/1/2",
            flight_id="F1",
            attempts=5,
            last_rejection_reason="blurred",
        ),
    ]
