"""The events of spec 2, to the field, and those of the domain itself."""

import json
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any

import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import failures, moments, policies

from tileferry.domain.audit import (
    EVENT_KINDS,
    GENESIS,
    AlertChanged,
    AlertState,
    AuditEvent,
    ChainEntry,
    EventsLost,
    IdempotencyAction,
    IdempotencyOutcome,
    IdempotencyUsed,
    LossCause,
    NotRetryable,
    RetryAttempted,
    RetryExhausted,
    RetrySucceeded,
    StateChanged,
    TileGivenUp,
    event_from_bytes,
    event_from_json,
    verify_chain,
)
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import (
    POLICY_MATRIX,
    DecisionRecord,
    Failure,
    Final,
    Retryable,
    RetryAt,
    RetryCategory,
    RetryPolicy,
    compute_nominal_delay,
    decide,
    replay_decision,
)
from tileferry.domain.state_machine import Actor, Change

AT = datetime(2026, 1, 25, 21, 15, tzinfo=UTC)
CONTEXT: dict[str, Any] = {
    "timestamp": AT,
    "tenant_id": "tenant-123",
    "correlation_id": "corr-456",
    "trace_id": "trace-789",
}
CONTEXT_JSON = {**CONTEXT, "timestamp": "2026-01-25T21:15:00Z"}


def record(policy: RetryPolicy, attempt: int) -> DecisionRecord:
    failure = Failure(key="k", attempt=attempt, error=Retryable())
    return DecisionRecord(policy=policy, failure=failure, decision=decide(policy, failure))


PUBLISH = record(POLICY_MATRIX[RetryCategory.NATS_PUBLISH], 2)
GET = record(POLICY_MATRIX[RetryCategory.KV_GET], 3)

_FINAL_FAILURE = Failure(key="k", attempt=1, error=Final())
FINAL = DecisionRecord(
    policy=POLICY_MATRIX[RetryCategory.API_REQUEST],
    failure=_FINAL_FAILURE,
    decision=decide(POLICY_MATRIX[RetryCategory.API_REQUEST], _FINAL_FAILURE),
)

assert isinstance(PUBLISH.decision, RetryAt)
DELAY_S = PUBLISH.decision.delay_s

ATTEMPT = RetryAttempted(
    retry_category=RetryCategory.NATS_PUBLISH,
    operation="Publish to exoarmur.audit.append.v1",
    attempt_number=2,
    max_attempts=3,
    delay_seconds=DELAY_S,
    exception_type="TimeoutError",
    exception_message="Connection timeout",
    decision_record=PUBLISH,
    **CONTEXT,
)
EXHAUSTED = RetryExhausted(
    retry_category=RetryCategory.KV_GET,
    operation="Get kill switch status",
    total_attempts=3,
    final_exception_type="TimeoutError",
    final_exception_message="KV operation timeout",
    decision_record=GET,
    **CONTEXT,
)
NOT_RETRYABLE = NotRetryable(
    retry_category=RetryCategory.API_REQUEST,
    operation="GET tile",
    total_attempts=1,
    final_exception_type="SatelliteProviderError",
    final_exception_message="404",
    decision_record=FINAL,
    **CONTEXT,
)
IDEMPOTENCY = IdempotencyUsed(
    retry_category=RetryCategory.KV_PUT,
    operation="Store kill switch state",
    idempotency_key="abc123def456",
    action=IdempotencyAction.HIT,
    **CONTEXT,
)
SUCCEEDED = RetrySucceeded(
    retry_category=RetryCategory.API_REQUEST,
    operation="GET tile",
    total_attempts=3,
    total_delay_seconds=3.0,
    **CONTEXT,
)
CHANGED = StateChanged(
    subject="run r-1",
    transition="claim",
    from_status="discovered",
    to_status="processing",
    actor="worker",
    **CONTEXT,
)
GIVEN_UP = TileGivenUp(
    tile_id="sat/15/1/2", flight_id="F7", attempts=5, last_rejection_reason="truncated", **CONTEXT
)
ALERT = AlertChanged(
    retry_category=RetryCategory.API_REQUEST,
    state=AlertState.RAISED,
    retries=30,
    window_seconds=60.0,
    threshold_per_minute=10.0,
    **CONTEXT,
)
LOST = EventsLost(
    sink="postgres",
    events=3,
    lost_from=AT,
    lost_until=AT + timedelta(minutes=1),
    cause=LossCause.OUTBOX_FULL,
    **CONTEXT,
)
ALL: list[AuditEvent] = [
    ALERT,
    LOST,
    ATTEMPT,
    EXHAUSTED,
    NOT_RETRYABLE,
    IDEMPOTENCY,
    SUCCEEDED,
    CHANGED,
    GIVEN_UP,
]


def test_spec2_retry_attempt_event() -> None:
    assert ATTEMPT.as_json() == {
        "event_type": "retry_attempt",
        "retry_category": "RETRY_NATS_PUBLISH",
        "operation": "Publish to exoarmur.audit.append.v1",
        "attempt_number": 2,
        "max_attempts": 3,
        "delay_seconds": DELAY_S,
        "exception_type": "TimeoutError",
        "exception_message": "Connection timeout",
        "decision_record": PUBLISH.as_json(),
        **CONTEXT_JSON,
    }


def test_spec2_first_failure_that_is_not_retryable_is_not_exhausted() -> None:
    body = NOT_RETRYABLE.as_json()
    assert body["event_type"] == "not_retryable"
    assert body.keys() == EXHAUSTED.as_json().keys()
    assert (NOT_RETRYABLE.is_retryable, EXHAUSTED.is_retryable) == (False, True)
    with pytest.raises(InvalidValueError, match=r"NotRetryable\.decision_record"):
        evolve(NOT_RETRYABLE, decision_record=GET)


def test_old_entry_of_a_final_error_is_still_read_and_replayed() -> None:
    """Earlier versions wrote ``retry_exhausted`` for errors that are not retryable, too."""
    old = json.loads(NOT_RETRYABLE.canonical_bytes()) | {"event_type": "retry_exhausted"}
    event = event_from_json(old)
    assert isinstance(event, RetryExhausted)
    assert not event.is_retryable
    assert replay_decision(event.decision_record) is None


def test_spec2_idempotency_event_tells_a_stored_failure_from_a_stored_success() -> None:
    assert "outcome" not in IDEMPOTENCY.as_json()  # as earlier versions wrote it
    for outcome in IdempotencyOutcome:
        event = evolve(IDEMPOTENCY, outcome=outcome)
        assert event.as_json()["outcome"] == outcome.value
        assert event_from_json(json.loads(event.canonical_bytes())) == event


def test_spec2_example_delay_of_1_05_s_is_within_jitter() -> None:
    policy = POLICY_MATRIX[RetryCategory.NATS_PUBLISH]
    nominal = compute_nominal_delay(policy, ATTEMPT.attempt_number)
    assert nominal == 1.0
    assert abs(1.05 - nominal) <= nominal * policy.jitter_factor
    assert abs(DELAY_S - nominal) <= nominal * policy.jitter_factor


def test_spec2_retry_exhausted_event() -> None:
    assert EXHAUSTED.as_json() == {
        "event_type": "retry_exhausted",
        "retry_category": "RETRY_KV_GET",
        "operation": "Get kill switch status",
        "total_attempts": 3,
        "final_exception_type": "TimeoutError",
        "final_exception_message": "KV operation timeout",
        "decision_record": GET.as_json(),
        **CONTEXT_JSON,
    }


@pytest.mark.parametrize("action", ["hit", "record"])
def test_spec2_idempotency_event(action: str) -> None:
    event = evolve(IDEMPOTENCY, action=IdempotencyAction(action))
    assert event.as_json() == {
        "event_type": "idempotency",
        "retry_category": "RETRY_KV_PUT",
        "operation": "Store kill switch state",
        "idempotency_key": "abc123def456",
        "action": action,
        **CONTEXT_JSON,
    }


def test_success_after_retry_event() -> None:
    assert SUCCEEDED.as_json() == {
        "event_type": "retry_succeeded",
        "retry_category": "RETRY_API_REQUEST",
        "operation": "GET tile",
        "total_attempts": 3,
        "total_delay_seconds": 3.0,
        **CONTEXT_JSON,
    }


def test_state_change_event() -> None:
    assert CHANGED.as_json() == {
        "event_type": "state_change",
        "subject": "run r-1",
        "transition": "claim",
        "from_status": "discovered",
        "to_status": "processing",
        "actor": "worker",
        "reason": None,
        "decision_record": None,
        **CONTEXT_JSON,
    }


class Light(StrEnum):
    """Where a lamp stands."""

    RED = "red"
    GREEN = "green"


@frozen
class Lamp:
    """Something with a status."""

    status: Light
    subject: str = "lamp 1"


@pytest.mark.parametrize(("before", "from_status"), [(None, None), (Lamp(Light.RED), "red")])
def test_state_change_event_matches_change(before: Lamp | None, from_status: str | None) -> None:
    change = Change(
        transition="switch",
        actor=Actor.OPERATOR,
        before=before,
        after=Lamp(Light.GREEN),
        reason="go",
        at=AT,
        record=GET,
    )
    context = {key: value for key, value in CONTEXT.items() if key != "timestamp"}
    assert StateChanged.from_change(change, **context).as_json() == {
        "event_type": "state_change",
        "subject": "lamp 1",
        "transition": "switch",
        "from_status": from_status,
        "to_status": "green",
        "actor": "operator",
        "reason": "go",
        "decision_record": GET.as_json(),
        **CONTEXT_JSON,
    }
    assert StateChanged.from_change(change).tenant_id is None


def test_giveup_event_carries_tile_attempts_and_last_reason() -> None:
    assert GIVEN_UP.as_json() == {
        "event_type": "tile_giveup",
        "tile_id": "sat/15/1/2",
        "flight_id": "F7",
        "attempts": 5,
        "last_rejection_reason": "truncated",
        **CONTEXT_JSON,
    }


def test_losses_are_merged_to_one_gap() -> None:
    earlier = evolve(LOST, events=2, lost_from=AT - timedelta(hours=1), cause=LossCause.DAMAGED)
    merged = earlier.merge(evolve(LOST, timestamp=AT + timedelta(days=1)))
    assert merged == evolve(
        LOST,
        timestamp=AT + timedelta(days=1),
        events=5,
        lost_from=AT - timedelta(hours=1),
        cause=LossCause.DAMAGED,
    )
    assert {cause.explanation for cause in LossCause}.isdisjoint({"", None})


def test_context_is_optional() -> None:
    event = evolve(CHANGED, tenant_id=None, correlation_id=None, trace_id=None)
    body = event.as_json()
    assert (body["tenant_id"], body["correlation_id"], body["trace_id"]) == (None, None, None)


def test_timestamps_are_written_in_utc() -> None:
    there = AT.astimezone(timezone(timedelta(hours=3)))
    assert evolve(CHANGED, timestamp=there).canonical_bytes() == CHANGED.canonical_bytes()
    assert evolve(CHANGED, timestamp=AT.replace(microsecond=7)).as_json()["timestamp"] == (
        "2026-01-25T21:15:00.000007Z"
    )


@pytest.mark.parametrize("event", ALL)
def test_events_round_trip_through_canonical_bytes(event: AuditEvent) -> None:
    stored = event.canonical_bytes()
    back = event_from_json(json.loads(stored))
    assert back == event
    assert back.canonical_bytes() == stored


OLD_ATTEMPT = (
    b'{"attempt_number":2,"correlation_id":"d-1","decision_record":{"decision":{"attempt":3,'
    b'"delay_s":1.9947662972908957,"outcome":"retry","rate_limited":0,"reason":"backoff"},'
    b'"failure":{"attempt":2,"budget_tokens":null,"elapsed_s":1.25,"error":{"class":"retryable"},'
    b'"key":"call-7","rate_limited":0},"policy":{"backoff":"exponential","backoff_multiplier":2,'
    b'"base_delay":1,"deadline_s":null,"jitter_enabled":true,"jitter_factor":0.1,"max_attempts":3,'
    b'"max_delay":30,"max_rate_limited":10,"max_retry_after_s":300}},'
    b'"delay_seconds":1.9947662972908957,"event_type":"retry_attempt",'
    b'"exception_message":"too slow","exception_type":"TimeoutError","max_attempts":3,'
    b'"operation":"GET tile 17/3/5","retry_category":"RETRY_API_REQUEST","tenant_id":null,'
    b'"timestamp":"2026-11-16T18:24:02.880623Z","trace_id":null}'
)
"""As stored by the version before policy names and function versions were recorded."""
OLD_ATTEMPT_HASH = "a4207c1d90a35882f31d3338f3627db3d82ea84b96fee8bc2bb9514880dd4736"
OLD_SUCCESS = (
    b'{"correlation_id":"d-1","event_type":"retry_succeeded","operation":"GET tile 17/3/5",'
    b'"retry_category":"RETRY_API_REQUEST","tenant_id":null,"timestamp":"2026-11-16T18:24:05Z",'
    b'"total_attempts":3,"total_delay_seconds":3,"trace_id":null}'
)
OLD_ENTRIES = [OLD_ATTEMPT, OLD_SUCCESS]


@pytest.mark.parametrize("stored", OLD_ENTRIES)
def test_entries_without_policy_name_and_version_keep_their_bytes(stored: bytes) -> None:
    assert event_from_bytes(stored).canonical_bytes() == stored


def test_entry_of_previous_version_verifies_and_replays() -> None:
    entry = ChainEntry(
        sequence=1, previous_hash=GENESIS.hash, body=OLD_ATTEMPT, hash=OLD_ATTEMPT_HASH
    )
    assert verify_chain([entry]).intact
    event = event_from_bytes(entry.body)
    assert isinstance(event, RetryAttempted)
    record = event.decision_record
    assert (record.policy_name, record.function_version) == (None, 1)
    assert replay_decision(record) is None


def test_new_events_carry_policy_name_and_version() -> None:
    body = json.loads(ATTEMPT.canonical_bytes())["decision_record"]
    assert (body["policy_name"], body["function_version"]) == ("NATS_PUBLISH", 2)


def test_event_kinds_are_indexed_by_type() -> None:
    assert set(EVENT_KINDS) == {event.event_type for event in ALL}
    assert set(EVENT_KINDS.values()) == {type(event) for event in ALL}


@given(policies(), failures, moments, st.text(max_size=30))
def test_event_with_decision_record_round_trips(
    policy: RetryPolicy, failure: Failure, at: datetime, message: str
) -> None:
    record = DecisionRecord(policy=policy, failure=failure, decision=decide(policy, failure))
    event = evolve(CHANGED, timestamp=at, reason=message, decision_record=record)
    assert event_from_json(json.loads(event.canonical_bytes())) == event


@pytest.mark.parametrize(
    "changes",
    [
        {"decision_record": GET},
        {"attempt_number": 1},
        {"max_attempts": 4},
        {"delay_seconds": 99.0},
    ],
)
def test_attempt_contradicting_its_decision_is_rejected(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match="does not match the event's decision"):
        evolve(ATTEMPT, **changes)


def test_exhaustion_contradicting_its_decision_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match=r"RetryExhausted\.decision_record") as refusal:
        evolve(EXHAUSTED, decision_record=PUBLISH)
    assert refusal.value.value == "retry_exhausted"


@pytest.mark.parametrize("data", [None, [], "x", 5, {"event_type": []}, {"event_type": {}}])
def test_json_that_is_not_event_is_rejected(data: Any) -> None:
    with pytest.raises(InvalidValueError, match="event_type: is not an audit event"):
        event_from_json(data)


def test_unknown_field_is_ignored() -> None:
    assert event_from_json({**CHANGED.as_json(), "colour": "red"}) == CHANGED


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"event_type": "party"}, r"event_type: is not an audit event .*known are retry_attempt,"),
        ({"event_type": None}, "event_type: is not an audit event"),
        ({"timestamp": "yesterday"}, "timestamp: cannot be read"),
        ({"timestamp": 7}, "timestamp: cannot be read"),
        ({"timestamp": "2026-01-25T21:15:00"}, r"\.timestamp: must be a time with a time zone"),
        ({"action": "steal"}, "action: cannot be read"),
        ({"timestamp": "0001-01-01T00:00:00+01:00"}, "timestamp: is outside the calendar"),
        ({"tenant_id": []}, r"IdempotencyUsed\.tenant_id: must be text"),
        ({"correlation_id": 5}, r"IdempotencyUsed\.correlation_id: must be text"),
        ({"trace_id": "\ud800"}, r"IdempotencyUsed\.trace_id: must be text"),
        ({"operation": None}, r"IdempotencyUsed\.operation: must be text"),
        ({"idempotency_key": ""}, r"IdempotencyUsed\.idempotency_key: must be non-empty"),
    ],
)
def test_invalid_event_field_is_rejected_by_name(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem):
        event_from_json({**IDEMPOTENCY.as_json(), **changes})


def test_missing_field_is_named() -> None:
    body = IDEMPOTENCY.as_json()
    del body["action"]
    with pytest.raises(InvalidValueError, match=r"idempotency\.action: is missing"):
        event_from_json(body)
    with pytest.raises(InvalidValueError, match="event_type"):
        event_from_json({})


def test_invalid_decision_record_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match="is not a decision record"):
        event_from_json({**ATTEMPT.as_json(), "decision_record": {}})


@pytest.mark.parametrize(
    ("event", "changes"),
    [
        (ATTEMPT, {"attempt_number": 0}),
        (ATTEMPT, {"max_attempts": 0}),
        (ATTEMPT, {"delay_seconds": -1.0}),
        (ATTEMPT, {"retry_category": ""}),
        (EXHAUSTED, {"total_attempts": 0}),
        (SUCCEEDED, {"total_attempts": 1}),
        (SUCCEEDED, {"total_delay_seconds": float("nan")}),
        (GIVEN_UP, {"attempts": 0}),
        (LOST, {"events": 0}),
        (LOST, {"cause": "outbox_full"}),
        (CHANGED, {"actor": ""}),
        (CHANGED, {"timestamp": datetime(2026, 1, 1)}),  # noqa: DTZ001  # the point
    ],
)
def test_invalid_event_values_are_rejected(event: AuditEvent, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match=next(iter(changes))):
        evolve(event, **changes)


@pytest.mark.parametrize("event", ALL, ids=lambda event: event.event_type)
def test_event_from_bytes_returns_stored_event(event: AuditEvent) -> None:
    assert event_from_bytes(event.canonical_bytes()) == event


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
def test_body_that_is_not_json_is_rejected(body: bytes) -> None:
    with pytest.raises(InvalidValueError, match="body: is not JSON"):
        event_from_bytes(body)
