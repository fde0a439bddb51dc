"""The audit events and their JSON form.

The first three kinds have the fields that consumers of the audit stream already read. They also
contain the decision with its inputs, so that it can be replayed.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar

import attrs
from attrs import field, frozen, validators

from tileferry.domain.canonical import JsonValue, canonical_json
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import DecisionRecord, GiveUp, RetryAt
from tileferry.domain.state_machine import Change
from tileferry.domain.validation import aware, instance, integer, number, text, unicode


class IdempotencyAction(StrEnum):
    """The effect of a caller's idempotency key."""

    HIT = "hit"
    RECORD = "record"
    CLEAR = "clear"


class IdempotencyOutcome(StrEnum):
    """What is stored under an idempotency key."""

    SUCCESS = "success"
    FAILURE = "failure"


_OPTIONAL = ("additional_context", "policy_name", "outcome")
"""Fields that are left out of the JSON if empty."""
_optional_text = validators.optional(unicode)


def _to_utc(moment: Any) -> Any:
    """Convert a time to UTC. Any other value is returned unchanged, for the validator to reject."""
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        return moment
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:  # the first or last day of the calendar in another time zone
        raise InvalidValueError(
            field="timestamp", value=moment, problem="is outside the calendar"
        ) from error


def _build_contradiction_error(event: "AuditEvent") -> InvalidValueError:
    return InvalidValueError(
        field=f"{type(event).__name__}.decision_record",
        value=event.event_type,
        problem="does not match the event's decision",
    )


@frozen(kw_only=True)
class AuditEvent:
    """The common fields of all events."""

    event_type: ClassVar[str]

    timestamp: datetime = field(converter=_to_utc, validator=aware)
    tenant_id: str | None = field(default=None, validator=_optional_text)
    correlation_id: str | None = field(default=None, validator=_optional_text)
    trace_id: str | None = field(default=None, validator=_optional_text)
    additional_context: Mapping[str, JsonValue] | None = field(
        default=None, validator=validators.optional(instance(Mapping))
    )
    """Additional data of the caller. It is kept permanently, so it must not contain secrets."""

    def as_json(self) -> dict[str, JsonValue]:
        """Return the event as JSON, including its type."""
        body = {item.name: _to_json(getattr(self, item.name)) for item in attrs.fields(type(self))}
        for name in _OPTIONAL:
            if body.get(name, name) is None:
                del body[name]
        return {"event_type": self.event_type, **body}

    def canonical_bytes(self) -> bytes:
        """Return the bytes that are hashed and stored."""
        return canonical_json(self.as_json(), field=self.event_type)


@frozen(kw_only=True)
class RetryAttempted(AuditEvent):
    """An attempt failed and will be retried."""

    event_type: ClassVar[str] = "retry_attempt"

    retry_category: str = field(validator=text)
    operation: str = field(validator=unicode)
    attempt_number: int = field(validator=integer(1))
    max_attempts: int = field(validator=integer(1))
    delay_seconds: float = field(validator=number(0))
    exception_type: str = field(validator=unicode)
    exception_message: str = field(validator=unicode)
    decision_record: DecisionRecord = field(validator=instance(DecisionRecord))

    def __attrs_post_init__(self) -> None:
        record = self.decision_record
        told = (self.attempt_number, self.max_attempts, self.delay_seconds)
        decision = record.decision
        if not isinstance(decision, RetryAt) or told != (
            record.failure.attempt,
            record.policy.max_attempts,
            decision.delay_s,
        ):
            raise _build_contradiction_error(self)


@frozen(kw_only=True)
class CallFailed(AuditEvent):
    """The common fields of a call's last failure."""

    retry_category: str = field(validator=text)
    operation: str = field(validator=unicode)
    total_attempts: int = field(validator=integer(1))
    final_exception_type: str = field(validator=unicode)
    final_exception_message: str = field(validator=unicode)
    decision_record: DecisionRecord = field(validator=instance(DecisionRecord))

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.decision_record.decision, GiveUp):
            raise _build_contradiction_error(self)

    @property
    def is_retryable(self) -> bool:
        """Whether the error could have been retried, had the policy allowed it."""
        decision = self.decision_record.decision
        return isinstance(decision, GiveUp) and not decision.is_final


@frozen(kw_only=True)
class RetryExhausted(CallFailed):
    """An attempt failed, and the policy allows no further one.

    Entries of earlier versions also have this type for errors that are not retryable.
    """

    event_type: ClassVar[str] = "retry_exhausted"


@frozen(kw_only=True)
class NotRetryable(CallFailed):
    """An attempt failed with an error that is not retryable."""

    event_type: ClassVar[str] = "not_retryable"

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.is_retryable:
            raise _build_contradiction_error(self)


@frozen(kw_only=True)
class IdempotencyUsed(AuditEvent):
    """A stored outcome was returned, a new one was stored, or a key was cleared."""

    event_type: ClassVar[str] = "idempotency"

    retry_category: str = field(validator=text)
    operation: str = field(validator=unicode)
    idempotency_key: str = field(validator=text)
    action: IdempotencyAction = field(validator=instance(IdempotencyAction))
    outcome: IdempotencyOutcome | None = field(
        default=None, validator=validators.optional(instance(IdempotencyOutcome))
    )
    """What was returned or stored; ``None`` for a cleared key, and in older entries."""


@frozen(kw_only=True)
class RetrySucceeded(AuditEvent):
    """An operation succeeded after at least one failure."""

    event_type: ClassVar[str] = "retry_succeeded"

    retry_category: str = field(validator=text)
    operation: str = field(validator=unicode)
    total_attempts: int = field(validator=integer(2))
    total_delay_seconds: float = field(validator=number(0))
    policy_name: str | None = field(default=None, validator=_optional_text)
    """The policy of its failures; ``None`` in entries from before names were recorded."""


class AlertState(StrEnum):
    """The states of an alert."""

    RAISED = "raised"
    CLEARED = "cleared"


@frozen(kw_only=True)
class AlertChanged(AuditEvent):
    """An alert on the retry rate of a category was raised or cleared."""

    event_type: ClassVar[str] = "retry_alert"

    retry_category: str = field(validator=text)
    state: AlertState = field(validator=instance(AlertState))
    retries: int = field(validator=integer(0))
    """The retries of the category within the window."""
    window_seconds: float = field(validator=number(0))
    threshold_per_minute: float | None = field(validator=validators.optional(number(0)))
    """``None`` for an alert that is cleared because its limit was removed."""


@frozen(kw_only=True)
class StateChanged(AuditEvent):
    """A run, a partition or a tile made a transition."""

    event_type: ClassVar[str] = "state_change"

    subject: str = field(validator=text)
    transition: str = field(validator=text)
    from_status: str | None = field(validator=_optional_text)
    to_status: str = field(validator=text)
    actor: str = field(validator=text)
    reason: str | None = field(default=None, validator=_optional_text)
    decision_record: DecisionRecord | None = field(
        default=None, validator=validators.optional(instance(DecisionRecord))
    )
    """The retry decision behind the change, if there was one."""

    @classmethod
    def from_change(
        cls,
        change: Change[Any],
        *,
        tenant_id: str | None = None,
        correlation_id: str | None = None,
        trace_id: str | None = None,
        additional_context: Mapping[str, JsonValue] | None = None,
    ) -> "StateChanged":
        """Build the event of a transition."""
        return cls(
            additional_context=additional_context,
            timestamp=change.at,
            tenant_id=tenant_id,
            correlation_id=correlation_id,
            trace_id=trace_id,
            subject=change.after.subject,
            transition=change.transition,
            from_status=None if change.before is None else change.before.status,
            to_status=change.after.status,
            actor=change.actor,
            reason=change.reason,
            decision_record=change.record,
        )


@frozen(kw_only=True)
class TileGivenUp(AuditEvent):
    """A tile reached its limit of upload attempts; an operator decides."""

    event_type: ClassVar[str] = "tile_giveup"

    tile_id: str = field(validator=text)
    flight_id: str = field(validator=text)
    attempts: int = field(validator=integer(1))
    last_rejection_reason: str | None = field(validator=_optional_text)


class LossCause(StrEnum):
    """Why events did not reach a sink."""

    OUTBOX_FULL = "outbox_full"
    OUTBOX_FAILED = "outbox_failed"
    DAMAGED = "damaged"
    REFUSED = "refused"

    @property
    def explanation(self) -> str:
        """The cause as text."""
        return _LOSS_EXPLANATIONS[self]


_LOSS_EXPLANATIONS = {
    LossCause.OUTBOX_FULL: "the sink was unavailable and the outbox was full",
    LossCause.OUTBOX_FAILED: "the sink was unavailable and the outbox could not be written",
    LossCause.DAMAGED: "records of the outbox were damaged",
    LossCause.REFUSED: "the sink refused them for good",
}


@frozen(kw_only=True)
class EventsLost(AuditEvent):
    """A gap: events that did not reach a sink."""

    event_type: ClassVar[str] = "events_lost"

    sink: str = field(validator=text)
    events: int = field(validator=integer(1))
    """How many; of damaged records, at least."""
    lost_from: datetime = field(converter=_to_utc, validator=aware)
    lost_until: datetime = field(converter=_to_utc, validator=aware)
    cause: LossCause = field(validator=instance(LossCause))
    """The cause of the first loss."""

    def merge(self, later: "EventsLost") -> "EventsLost":
        """Return one event for both losses."""
        return attrs.evolve(
            later,
            events=self.events + later.events,
            lost_from=min(self.lost_from, later.lost_from),
            lost_until=max(self.lost_until, later.lost_until),
            cause=self.cause,
        )


EVENT_KINDS: Mapping[str, type[AuditEvent]] = {
    kind.event_type: kind
    for kind in (
        RetryAttempted,
        RetryExhausted,
        NotRetryable,
        IdempotencyUsed,
        RetrySucceeded,
        StateChanged,
        TileGivenUp,
        AlertChanged,
        EventsLost,
    )
}


def event_from_json(data: Any) -> AuditEvent:
    """Parse the output of ``as_json``. Unknown fields are ignored."""
    told = data.get("event_type") if isinstance(data, Mapping) else data
    kind = EVENT_KINDS.get(told) if isinstance(told, str) else None
    if kind is None:
        raise InvalidValueError(
            field="event_type",
            value=told,
            problem="is not an audit event of this version",
            remedy=f"known are {', '.join(EVENT_KINDS)}",
        )
    names = [item.name for item in attrs.fields(kind)]
    missing = [name for name in names if name not in data and name not in _OPTIONAL]
    if missing:
        raise InvalidValueError(
            field=f"{kind.event_type}.{missing[0]}", value=None, problem="is missing"
        )
    return kind(**{name: _from_json(name, data) for name in names if name in data})


def event_from_bytes(body: bytes) -> AuditEvent:
    """Parse the output of ``canonical_bytes``."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(
            field="body",
            value=body,
            problem="is not JSON",
            remedy="the entry is not an audit event",
        ) from error
    return event_from_json(data)


def _to_json(value: object) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.as_json() if isinstance(value, DecisionRecord) else value


_ENUMS: Mapping[str, type[StrEnum]] = {
    "action": IdempotencyAction,
    "state": AlertState,
    "cause": LossCause,
}


def _from_json(name: str, data: Mapping[str, Any]) -> Any:
    value = data[name]
    try:
        match name:
            case "timestamp" | "lost_from" | "lost_until":
                return datetime.fromisoformat(value)
            case "action" | "state" | "cause":
                return _ENUMS[name](value)
            case "outcome" if value is not None:
                return IdempotencyOutcome(value)
            case "decision_record" if value is not None:
                return DecisionRecord.from_json(value)
            case _:
                return value
    except InvalidValueError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidValueError(field=name, value=value, problem="cannot be read") from error
