"""Idempotency: the key of an operation, and the state machine of its record.

A record is in progress under a lease, completed with a result, or permanently failed. The state,
not the value, says whether there is a result: a stored ``None`` is a result.
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

# If key generation changed, finished work would look new. A new algorithm needs a new prefix.
_KEY_PREFIX = b"tileferry-idempotency-key-v1\n"
_FINGERPRINT_PREFIX = b"tileferry-payload-v1\n"

ABANDONED_AFTER = timedelta(days=30)
"""How long after the end of its lease an unfinished claim is kept.

Until then another payload is rejected for the key, and the owner can still record a late result.
"""


def compute_idempotency_key(
    operation: str,
    tenant_id: str | None = None,
    correlation_id: str | None = None,
    additional_params: Mapping[str, JsonValue] | None = None,
) -> str:
    """Return the key of an operation: 64 hex digits that depend only on the values of the
    arguments.
    """
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
    """Return a hash that distinguishes payloads under one key: 64 hex digits."""
    form, body = (
        (b"bytes\n", payload)
        if isinstance(payload, bytes)
        else (b"json\n", canonical_json(payload, field="payload"))
    )
    return sha256(_FINGERPRINT_PREFIX + form + body).hexdigest()


@frozen(kw_only=True)
class InProgress:
    """An owner is working on the operation until the lease ends."""

    owner: str = field(validator=text)
    lease_expires_at: datetime = field(validator=aware)


@frozen(kw_only=True)
class Completed:
    """The operation is done. ``result`` is the return value, encoded by the codec."""

    result: bytes = field(validator=instance(bytes))
    recorded_at: datetime = field(validator=aware)


@frozen(kw_only=True)
class PermanentFailure:
    """The operation can never succeed. Later callers get the same failure."""

    error_type: str = field(validator=text)
    error_message: str = field(validator=unicode)
    recorded_at: datetime = field(validator=aware)


RecordState: TypeAlias = InProgress | Completed | PermanentFailure


@frozen(kw_only=True)
class IdempotencyRecord:
    """The stored record of one key."""

    key: str = field(validator=text)
    fingerprint: str = field(validator=text)
    epoch: int = field(default=1, validator=integer(1))
    """Incremented by each claim. A write with an older epoch is rejected."""
    state: RecordState = field(validator=instance(InProgress, Completed, PermanentFailure))
    expires_at: datetime | None = field(default=None, validator=validators.optional(aware))
    """When an outcome may be removed; ``None`` for never."""

    def __attrs_post_init__(self) -> None:
        if isinstance(self.state, InProgress) and self.expires_at is not None:
            raise InvalidValueError(
                field="IdempotencyRecord.expires_at",
                value=self.expires_at,
                problem="is for outcomes only; work in progress ends with its lease",
            )

    @property
    def owner(self) -> str:
        """The holder of the claim; ``"nobody"`` for an outcome."""
        return self.state.owner if isinstance(self.state, InProgress) else "nobody"

    def is_expired(self, now: datetime) -> bool:
        """Return whether the record can be treated as absent."""
        check_aware(now)
        return self.expires_at is not None and self.expires_at <= now

    @property
    def removable_at(self) -> datetime | None:
        """When a store may remove the record: an outcome when it expires, a claim when it is
        abandoned.
        """
        if isinstance(self.state, InProgress):
            return self.state.lease_expires_at + ABANDONED_AFTER
        return self.expires_at

    def is_removable(self, now: datetime) -> bool:
        """Return whether a store may remove the record now."""
        check_aware(now)
        return self.removable_at is not None and self.removable_at <= now

    def renew(
        self, owner: str, epoch: int, *, now: datetime, lease: timedelta
    ) -> "IdempotencyRecord":
        """Return the record with an extended lease. An expired lease cannot be renewed."""
        held = self._check_holder(owner, epoch)
        if held.lease_expires_at <= now:
            raise self._build_lost_error(owner, f"the lease expired at {held.lease_expires_at}")
        return evolve(self, state=_build_lease(owner, now, lease))

    def complete(
        self, owner: str, epoch: int, result: bytes, *, now: datetime, keep: timedelta | None
    ) -> "IdempotencyRecord":
        """Return the record with the result of a claim, kept for ``keep`` or forever.

        An expired lease is accepted unless another owner has claimed the key: finished work counts.
        """
        self._check_holder(owner, epoch)
        return self._with_outcome(Completed(result=result, recorded_at=now), now, keep)

    def fail(
        self, owner: str, epoch: int, error: Exception, *, now: datetime, keep: timedelta | None
    ) -> "IdempotencyRecord":
        """Return the record with the failure that every later caller gets."""
        self._check_holder(owner, epoch)
        failure = PermanentFailure(
            error_type=type(error).__name__, error_message=format_error(error), recorded_at=now
        )
        return self._with_outcome(failure, now, keep)

    def release(self, owner: str, epoch: int, *, now: datetime) -> "IdempotencyRecord":
        """Return the record with the claim released, so that the next caller need not wait."""
        self._check_holder(owner, epoch)
        return evolve(self, state=InProgress(owner=owner, lease_expires_at=now))

    def _check_holder(self, owner: str, epoch: int) -> InProgress:
        state = self.state
        if not isinstance(state, InProgress):
            raise self._build_lost_error(owner, "the work is already finished")
        if (state.owner, self.epoch) != (owner, epoch):
            raise self._build_lost_error(
                owner, f"epoch {epoch} has ended; {state.owner} holds the key"
            )
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
    """Return the record that results from a claim by ``owner``.

    The result is a new claim if there is no record, or if its lease or lifetime has ended. It is
    the ``existing`` record, unchanged, if that has an outcome to return, or is a claim of the same
    owner that did not receive the first response. A key held by another owner and a key with
    another payload are rejected.
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
    """Return the record that a claim is about to change; raise if it was cleared."""
    if existing is None:
        raise IdempotencyLostError(key=held.key, owner=held.owner, problem="the key was cleared")
    return existing


def _build_lease(owner: str, now: datetime, lease: timedelta) -> InProgress:
    check_aware(now)
    check_duration(lease, field="lease")
    return InProgress(owner=owner, lease_expires_at=now + lease)
