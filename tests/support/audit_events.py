"""Audit events of every kind, made from a number."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random

from tileferry.adapters.memory import ManualClock
from tileferry.application.audit import CallContext
from tileferry.domain.audit import (
    AlertChanged,
    AlertState,
    AuditEvent,
    EventsLost,
    IdempotencyAction,
    IdempotencyUsed,
    LossCause,
    NotRetryable,
    RetryAttempted,
    RetryExhausted,
    RetrySucceeded,
    StateChanged,
    TileGivenUp,
)
from tileferry.domain.retry import (
    POLICY_MATRIX,
    BackoffKind,
    DecisionRecord,
    ErrorClass,
    Failure,
    Final,
    GiveUp,
    RateLimited,
    Retryable,
    RetryAt,
    RetryCategory,
    RetryLoop,
    RetryPolicy,
    decide,
)

AT = datetime(2026, 11, 1, 12, tzinfo=UTC)
_POLICY = POLICY_MATRIX[RetryCategory.API_REQUEST]


def event_time(number: int) -> datetime:
    """Return a time of its own for each number."""
    return AT + timedelta(microseconds=number)


def _create_decision_record(number: int, attempt: int) -> DecisionRecord:
    failure = Failure(key=f"k{number}", attempt=attempt, error=Retryable())
    return DecisionRecord(policy=_POLICY, failure=failure, decision=decide(_POLICY, failure))


def create_retry_attempted(number: int, *, correlation_id: str | None = None) -> RetryAttempted:
    """Return the event of a first attempt that failed."""
    record = _create_decision_record(number, 1)
    assert isinstance(record.decision, RetryAt)
    return RetryAttempted(
        timestamp=event_time(number),
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


def create_idempotency_used(
    number: int, key: str, *, correlation_id: str | None = None
) -> IdempotencyUsed:
    """Return the event of a result that was recorded."""
    return IdempotencyUsed(
        timestamp=event_time(number),
        correlation_id=correlation_id,
        retry_category=RetryCategory.KV_PUT,
        operation="Store state",
        idempotency_key=key,
        action=IdempotencyAction.RECORD,
    )


def create_events_lost(number: int, *, events: int = 1) -> EventsLost:
    """Return a gap."""
    return EventsLost(
        timestamp=event_time(number),
        sink="postgres",
        events=events,
        lost_from=event_time(number),
        lost_until=event_time(number),
        cause=LossCause.OUTBOX_FULL,
    )


def create_one_event_of_each_type() -> list[AuditEvent]:
    """Return one event of each kind."""
    final = Failure(key="k7", attempt=1, error=Final())
    return [
        create_retry_attempted(1),
        RetryExhausted(
            timestamp=event_time(2),
            retry_category=RetryCategory.API_REQUEST,
            operation="GET tile",
            total_attempts=_POLICY.max_attempts,
            final_exception_type="TimeoutError",
            final_exception_message='a "quote", a \\ and a \x00',
            decision_record=_create_decision_record(2, _POLICY.max_attempts),
        ),
        create_idempotency_used(3, "key-3", correlation_id="corr-1"),
        RetrySucceeded(
            timestamp=event_time(4),
            correlation_id="corr-1",
            retry_category=RetryCategory.API_REQUEST,
            operation="GET tile",
            total_attempts=2,
            total_delay_seconds=1.5,
            additional_context={"zero": "\x00", "deep": [{"a": None}]},
        ),
        StateChanged(
            timestamp=event_time(5),
            subject="run 7",
            transition="claim",
            from_status="discovered",
            to_status="processing",
            actor="scheduler",
        ),
        TileGivenUp(
            timestamp=event_time(6),
            tile_id="sat/15/1/2",
            flight_id="F1",
            attempts=5,
            last_rejection_reason="blurred",
        ),
        NotRetryable(
            timestamp=event_time(7),
            retry_category=RetryCategory.API_REQUEST,
            operation="GET tile",
            total_attempts=1,
            final_exception_type="SatelliteProviderError",
            final_exception_message="404",
            decision_record=DecisionRecord(
                policy=_POLICY, failure=final, decision=decide(_POLICY, final)
            ),
        ),
        AlertChanged(
            timestamp=event_time(8),
            retry_category=RetryCategory.API_REQUEST,
            state=AlertState.RAISED,
            retries=30,
            window_seconds=60.0,
            threshold_per_minute=10.0,
        ),
        create_events_lost(9, events=3),
    ]


API = RetryCategory.API_REQUEST


def create_call_events(
    errors: Sequence[ErrorClass],
    *,
    clock: ManualClock,
    key: str = "k",
    category: RetryCategory = API,
    policy: RetryPolicy | None = None,
    operation: str = "GET tile",
    correlation_id: str | None = None,
    call_s: float = 0.0,
) -> list[AuditEvent]:
    """Return the events of a call that fails with ``errors`` and then succeeds, if it may."""
    chosen = policy or POLICY_MATRIX[category]
    context = CallContext(category=category, operation=operation, correlation_id=correlation_id)
    told = iter(errors)
    loop = RetryLoop(
        policy=chosen,
        key=key,
        started_s=clock.monotonic(),
        classifier=lambda _: next(told),
    )
    events: list[AuditEvent] = []
    for _ in errors:
        clock.advance(call_s)
        decision = loop.record_failure(TimeoutError("too slow"), now_s=clock.monotonic())
        events.append(context.build_attempt_event(loop.history[-1], chosen, clock))
        if isinstance(decision, GiveUp):
            return events
        clock.advance(decision.delay_s)
    if not errors:
        return events
    attempts = len(loop.history) + 1
    success = context.build_success_event(
        attempts=attempts, waited_s=loop.waited_s, policy=chosen, clock=clock
    )
    return [*events, success]


def create_random_history(chance: Random) -> Iterable[AuditEvent]:
    """Return the events of one call with a policy and errors of any kind."""
    base_delay = chance.choice([0.0, 1.0, 2, chance.uniform(0, 100), chance.expovariate(0.01)])
    policy = RetryPolicy(
        max_attempts=chance.randint(1, 8),
        base_delay=base_delay,
        max_delay=base_delay + chance.choice([0, 1, chance.expovariate(0.001)]),
        backoff_multiplier=chance.choice([1, 2, 1.5, chance.uniform(1, 100)]),
        jitter_enabled=chance.random() < 0.8,
        jitter_factor=chance.choice([0, 0.1, 1, chance.random()]),
        backoff=chance.choice(list(BackoffKind)),
        deadline_s=chance.choice([None, None, chance.expovariate(0.001)]),
        max_rate_limited=chance.randint(0, 4),
        max_retry_after_s=chance.choice([0, 300, chance.uniform(0, 600)]),
    )
    kinds: list[ErrorClass] = [
        Retryable(),
        Retryable(),
        RateLimited(),
        RateLimited(retry_after_s=chance.expovariate(0.01)),
        Final(),
    ]
    errors = chance.choices(kinds, k=chance.randint(1, 5))
    return create_call_events(
        errors,
        clock=ManualClock(chance.uniform(0, 4e9)),
        key="".join(chance.choices("kKé☁0:\n", k=chance.randint(0, 12))),
        category=chance.choice(list(RetryCategory)),
        policy=policy,
        call_s=chance.expovariate(1.0),
    )
