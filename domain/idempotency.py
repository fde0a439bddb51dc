"""Idempotency: the key of an operation, and what its record says to a caller who brings it.

A record is in progress under a lease, or completed with a result, or failed for good. The record,
not its value, says whether there is a result: a cached ``None`` is one.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TypeAlias

from attrs import evolve, field, frozen, validators

from tileferry.domain.canonical import JsonValue, canonical_json
from tileferry.domain.errors import (
    IdempotencyConflictError,
    IdempotencyInProgressError,
    IdempotencyLostError,
    InvalidValueError,
    MisuseError,
)
from tileferry.domain.text import format_error
from tileferry.domain.validation import (
    aware,
    check_aware,
    check_duration,
    instance,
    integer,
    is_unicode,
    text,
    unicode,
)

# Changing how keys are made would make finished work look new: a new form gets a new prefix.
_KEY_PREFIX = b"tileferry-idempotency-key-v1\n"
_FINGERPRINT_PREFIX = b"tileferry-payload-v1\n"

ABANDONED_AFTER = timedelta(days=30)
"""So long after the end of its lease a claim that led to nothing may be forgotten.

Until then it keeps another payload from its key, and lets its owner record what was done late.
"""


def compute_idempotency_key(
    operation: str,
    tenant_id: str | None = None,
    correlation_id: str | None = None,
    additional_params: Mapping[str, JsonValue] | None = None,
) -> str:
    """Return the key of an operation: 64 hex digits that depend on the arguments' values alone."""
    for name, value in (("tenant_id", tenant_id), ("correlation_id", correlation_id)):
        if value is not None and not is_unicode(value):
            raise InvalidValueError(field=name, value=value, problem="must be text, or not given")
    if not (operation and is_unicode(operation)):
        raise InvalidValueError(
            field="operation", value=operation, problem="must be non-empty text"
        )
    if additional_params is not None and not isinstance(additional_params, Mapping):
        raise InvalidValueError(
            field="additional_params", value=additional_params, problem="must be a mapping"
        )
    identity: JsonValue = {
        "operation": operation,
        "tenant_id": tenant_id or "",
        "correlation_id": correlation_id or "",
        "additional_params": additional_params or {},
    }
    return sha256(_KEY_PREFIX + canonical_json(identity, field="key")).hexdigest()


def compute_payload_fingerprint(payload: JsonValue | bytes) -> str:
    """Return what tells two payloads under one key apart: 64 hex digits."""
    form, body = (
        (b"bytes\n", payload)
        if isinstance(payload, bytes)
        else (b"json\n", canonical_json(payload, field="payload"))
    )
    return sha256(_FINGERPRINT_PREFIX + form + body).hexdigest()


@frozen(kw_only=True)
class InProgress:
    """Somebody is at it, until the lease ends."""

    owner: str = field(validator=text)
    lease_expires_at: datetime = field(validator=aware)


@frozen(kw_only=True)
class Completed:
    """It was done; ``result`` is what the codec made of the return value."""

    result: bytes = field(validator=instance(bytes))
    recorded_at: datetime = field(validator=aware)


@frozen(kw_only=True)
class PermanentFailure:
    """It was tried and can never succeed; callers get the same failure again."""

    error_type: str = field(validator=text)
    error_message: str = field(validator=unicode)
    recorded_at: datetime = field(validator=aware)


RecordState: TypeAlias = InProgress | Completed | PermanentFailure


@frozen(kw_only=True)
class IdempotencyRecord:
    """What a store holds under one key."""

    key: str = field(validator=text)
    fingerprint: str = field(validator=text)
    epoch: int = field(default=1, validator=integer(1))
    """Rises with each claim; a write from an older claim changes nothing."""
    state: RecordState = field(validator=instance(InProgress, Completed, PermanentFailure))
    expires_at: datetime | None = field(default=None, validator=validators.optional(aware))
    """When an outcome may be forgotten; ``None`` for never."""

    def __attrs_post_init__(self) -> None:
        if isinstance(self.state, InProgress) and self.expires_at is not None:
            raise InvalidValueError(
                field="IdempotencyRecord.expires_at",
                value=self.expires_at,
                problem="is for outcomes; work in progress ends with its lease",
            )

    @property
    def owner(self) -> str:
        """Who holds the claim; an outcome is nobody's."""
        return self.state.owner if isinstance(self.state, InProgress) else "nobody"

    def is_expired(self, now: datetime) -> bool:
        """Tell whether the record may be treated as absent."""
        check_aware(now)
        return self.expires_at is not None and self.expires_at <= now

    @property
    def removable_at(self) -> datetime | None:
        """When a store may remove it: an outcome at its end, a claim once it is abandoned."""
        if isinstance(self.state, InProgress):
            return self.state.lease_expires_at + ABANDONED_AFTER
        return self.expires_at

    def is_removable(self, now: datetime) -> bool:
        """Tell whether a store may remove it by now."""
        check_aware(now)
        return self.removable_at is not None and self.removable_at <= now

    def renew(
        self, owner: str, epoch: int, *, now: datetime, lease: timedelta
    ) -> "IdempotencyRecord":
        """Return the record with a claim's lease extended; a lease that ran out stays lost."""
        held = self._check_holder(owner, epoch)
        if held.lease_expires_at <= now:
            raise self._build_lost_error(owner, f"the lease ran out at {held.lease_expires_at}")
        return evolve(self, state=_build_lease(owner, now, lease))

    def complete(
        self, owner: str, epoch: int, result: bytes, *, now: datetime, keep: timedelta | None
    ) -> "IdempotencyRecord":
        """Return the record with a claim's result, to be kept for ``keep``, or for ever.

        A lease that ran out does not matter while nobody has taken the key: what was done counts.
        """
        self._check_holder(owner, epoch)
        return self._with_outcome(Completed(result=result, recorded_at=now), now, keep)

    def fail(
        self, owner: str, epoch: int, error: Exception, *, now: datetime, keep: timedelta | None
    ) -> "IdempotencyRecord":
        """Return the record with the failure that every later caller will get."""
        self._check_holder(owner, epoch)
        failure = PermanentFailure(
            error_type=type(error).__name__, error_message=format_error(error), recorded_at=now
        )
        return self._with_outcome(failure, now, keep)

    def release(self, owner: str, epoch: int, *, now: datetime) -> "IdempotencyRecord":
        """Return the record with a claim given back: the next caller need not wait."""
        self._check_holder(owner, epoch)
        return evolve(self, state=InProgress(owner=owner, lease_expires_at=now))

    def _check_holder(self, owner: str, epoch: int) -> InProgress:
        state = self.state
        if not isinstance(state, InProgress):
            raise self._build_lost_error(owner, "the work was finished before")
        if (state.owner, self.epoch) != (owner, epoch):
            raise self._build_lost_error(owner, f"epoch {epoch} is over, {state.owner} has it")
        return state

    def _build_lost_error(self, owner: str, problem: str) -> IdempotencyLostError:
        return IdempotencyLostError(key=self.key, owner=owner, problem=problem)

    def _with_outcome(
        self, state: RecordState, now: datetime, keep: timedelta | None
    ) -> "IdempotencyRecord":
        if keep is None:
            return evolve(self, state=state)
        check_duration(keep, field="keep")
        return evolve(self, state=state, expires_at=now + keep)


def claim(
    existing: IdempotencyRecord | None,
    *,
    key: str,
    fingerprint: str,
    owner: str,
    now: datetime,
    lease: timedelta,
) -> IdempotencyRecord:
    """Return the record that ``owner``'s request leads to.

    It is a fresh claim when there is no record, or its lease or its life has ended; it is the
    ``existing`` one, unchanged, when that holds an outcome to give back, or is a claim of the same
    owner, who did not hear that it was granted. A key in somebody else's hands and a key with
    another payload are refused.
    """
    taken = _build_lease(owner, now, lease)
    if existing is not None and existing.key != key:
        raise MisuseError(
            what="idempotency store",
            problem=f"returned the record of key {existing.key} for key {key}",
        )
    if existing is None or existing.is_expired(now):
        epoch = 1 if existing is None else existing.epoch + 1
        return IdempotencyRecord(key=key, fingerprint=fingerprint, epoch=epoch, state=taken)
    if existing.fingerprint != fingerprint:
        raise IdempotencyConflictError(
            key=key, recorded_fingerprint=existing.fingerprint, offered_fingerprint=fingerprint
        )
    state = existing.state
    if not isinstance(state, InProgress):
        return existing
    if state.lease_expires_at > now:
        if state.owner == owner:
            return existing
        raise IdempotencyInProgressError(
            key=key, owner=state.owner, lease_expires_at=state.lease_expires_at
        )
    return evolve(existing, epoch=existing.epoch + 1, state=taken)


def require_record(
    existing: IdempotencyRecord | None, held: IdempotencyRecord
) -> IdempotencyRecord:
    """Return the record that a claim wants to change; one that was cleared has taken it along."""
    if existing is None:
        raise IdempotencyLostError(key=held.key, owner=held.owner, problem="the key was cleared")
    return existing


def _build_lease(owner: str, now: datetime, lease: timedelta) -> InProgress:
    check_aware(now)
    check_duration(lease, field="lease")
    return InProgress(owner=owner, lease_expires_at=now + lease)
