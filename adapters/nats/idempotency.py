"""Idempotency store in a JetStream bucket, and the JSON format of its records."""

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from logging import Logger
from threading import Lock
from typing import Any, assert_never

from attrs import define, field
from nats.errors import MaxPayloadError

from tileferry.adapters.nats.bucket import Bucket
from tileferry.adapters.nats.connection import NatsConnection
from tileferry.adapters.nats.streams import CONFLICTS_MAX, too_many_conflicts
from tileferry.application.ports.clock import Clock
from tileferry.domain.audit import AuditEvent
from tileferry.domain.canonical import JsonValue, canonical_json
from tileferry.domain.errors import InvalidValueError, MessagingError, ResultNotStorableError
from tileferry.domain.idempotency import (
    Completed,
    IdempotencyRecord,
    InProgress,
    PermanentFailure,
    RecordState,
    claim,
    require_record,
)
from tileferry.domain.validation import is_unicode

RECORD_VERSION = 1


def encode_record(record: IdempotencyRecord) -> bytes:
    """Return a record as canonical JSON."""
    return canonical_json(
        {
            "version": RECORD_VERSION,
            "key": record.key,
            "fingerprint": record.fingerprint,
            "epoch": record.epoch,
            "state": _state_to_json(record.state),
            "expires_at": None if record.expires_at is None else record.expires_at.isoformat(),
        },
        field="record",
    )


def decode_record(content: bytes, *, key: str | None = None) -> IdempotencyRecord:
    """Parse a record; raise if it is invalid or belongs to a key other than ``key``."""
    try:
        data = json.loads(content)
        if data["version"] != RECORD_VERSION:
            raise _unreadable_error(
                key, f"has version {data['version']!r}; supported is {RECORD_VERSION}"
            )
        expires_at = data["expires_at"]
        record = IdempotencyRecord(
            key=data["key"],
            fingerprint=data["fingerprint"],
            epoch=data["epoch"],
            state=_state_from_json(data["state"]),
            expires_at=None if expires_at is None else datetime.fromisoformat(expires_at),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise _unreadable_error(key, "cannot be read") from error
    if key is not None and record.key != key:
        raise _unreadable_error(key, f"belongs to key {record.key}")
    return record


def _state_to_json(state: RecordState) -> JsonValue:
    match state:
        case InProgress():
            return {
                "kind": "in_progress",
                "owner": state.owner,
                "lease_expires_at": state.lease_expires_at.isoformat(),
            }
        case Completed():
            return {
                "kind": "completed",
                "result": b64encode(state.result).decode("ascii"),
                "recorded_at": state.recorded_at.isoformat(),
            }
        case PermanentFailure():
            return {
                "kind": "failed_for_good",
                "error_type": state.error_type,
                "error_message": state.error_message,
                "recorded_at": state.recorded_at.isoformat(),
            }
        case _:
            assert_never(state)


def _state_from_json(data: Mapping[str, Any]) -> RecordState:
    match data["kind"]:
        case "in_progress":
            return InProgress(
                owner=data["owner"],
                lease_expires_at=datetime.fromisoformat(data["lease_expires_at"]),
            )
        case "completed":
            return Completed(
                result=b64decode(data["result"], validate=True),
                recorded_at=datetime.fromisoformat(data["recorded_at"]),
            )
        case "failed_for_good":
            return PermanentFailure(
                error_type=data["error_type"],
                error_message=data["error_message"],
                recorded_at=datetime.fromisoformat(data["recorded_at"]),
            )
        case kind:
            raise InvalidValueError(field="state.kind", value=kind, problem="is unknown")


def _unreadable_error(key: str | None, problem: str) -> MessagingError:
    whose = "" if key is None else f" of idempotency key {key}"
    return MessagingError(
        problem=f"the record{whose} {problem}",
        remedy="check what else writes to the bucket; clear the key if its work may be repeated",
    )


BUCKET = "tileferry_idempotency"
_TTL_MARGIN_S = 3_600
"""The server drops a record this long after it expires, in case a clock is changed."""
_Rule = Callable[[IdempotencyRecord | None, datetime], IdempotencyRecord]


@define(kw_only=True, eq=False)
class JetStreamIdempotencyStore:
    """Reads a record, applies the domain rule, and writes it unless another writer was first."""

    open_bucket: Callable[[], Bucket] = field(repr=False)
    clock: Clock
    """Decides when leases end: the clocks of all hosts that share a bucket must agree."""
    audit_sink: None = None
    """JetStream cannot store a record and an event in one transaction."""
    _guard: Lock = field(factory=Lock, init=False, repr=False)
    _bucket: Bucket | None = field(default=None, init=False, repr=False)

    @classmethod
    def open(
        cls,
        connection: NatsConnection,
        *,
        clock: Clock,
        logger: Logger,
        bucket: str = BUCKET,
        replicas: int = 1,
        accept_weak_durability: bool = False,
    ) -> "JetStreamIdempotencyStore":
        """Open the bucket, creating it with ``replicas`` if needed."""
        store = cls.open_later(
            connection,
            clock=clock,
            logger=logger,
            bucket=bucket,
            replicas=replicas,
            accept_weak_durability=accept_weak_durability,
        )
        _opened = store.bucket
        return store

    @classmethod
    def open_later(
        cls,
        connection: NatsConnection,
        *,
        clock: Clock,
        logger: Logger,
        bucket: str = BUCKET,
        replicas: int = 1,
        accept_weak_durability: bool = False,
    ) -> "JetStreamIdempotencyStore":
        """Return a store that opens its bucket at the first call."""
        return cls(
            open_bucket=partial(
                Bucket.open,
                connection,
                bucket,
                replicas=replicas,
                accept_weak_durability=accept_weak_durability,
                logger=logger,
            ),
            clock=clock,
        )

    @property
    def bucket(self) -> Bucket:
        """The bucket, opened at first use."""
        with self._guard:
            if self._bucket is None:
                self._bucket = self.open_bucket()
            return self._bucket

    def claim(
        self, key: str, *, fingerprint: str, owner: str, lease: timedelta
    ) -> IdempotencyRecord:
        """Claim a key, or return the recorded outcome."""
        return self._change(
            key,
            lambda existing, now: claim(
                existing, key=key, fingerprint=fingerprint, owner=owner, now=now, lease=lease
            ),
        )

    def renew(self, held: IdempotencyRecord, *, lease: timedelta) -> IdempotencyRecord:
        """Extend a claim's lease."""
        return self._change(
            held.key,
            lambda existing, now: require_record(existing, held).renew(
                held.owner, held.epoch, now=now, lease=lease
            ),
        )

    def complete(
        self,
        held: IdempotencyRecord,
        result: bytes,
        *,
        keep: timedelta | None,
        event: AuditEvent | None = None,
    ) -> IdempotencyRecord:
        """Record a result; ``event`` is ignored, since this store has no audit sink."""
        del event
        return self._change(
            held.key,
            lambda existing, now: require_record(existing, held).complete(
                held.owner, held.epoch, result, now=now, keep=keep
            ),
        )

    def fail(
        self,
        held: IdempotencyRecord,
        error: Exception,
        *,
        keep: timedelta | None,
        event: AuditEvent | None = None,
    ) -> IdempotencyRecord:
        """Record a permanent failure; ``event`` is ignored, since this store has no audit sink."""
        del event
        return self._change(
            held.key,
            lambda existing, now: require_record(existing, held).fail(
                held.owner, held.epoch, error, now=now, keep=keep
            ),
        )

    def release(self, held: IdempotencyRecord) -> None:
        """Release a claim, so that it can be claimed at once."""
        self._change(
            held.key,
            lambda existing, now: require_record(existing, held).release(
                held.owner, held.epoch, now=now
            ),
        )

    def find(self, key: str) -> IdempotencyRecord | None:
        """Return the record of a key, or ``None`` if it does not exist or has expired."""
        record = _decode_value(self.bucket.get(_bucket_key(key)).content, key)
        return None if record is None or record.is_expired(self._now()) else record

    def clear(self, key: str) -> bool:
        """Delete a key's record; return whether there was an unexpired one."""
        place = _bucket_key(key)
        for _ in range(CONFLICTS_MAX):
            found = self.bucket.get(place)
            if found.content is None:
                return False
            # Parse only after deleting, so that an unreadable record can be cleared.
            if self.bucket.delete(place, revision=found.revision):
                return not self._is_expired(found.content)
        raise too_many_conflicts(f"idempotency key {key}")

    def forget_expired(self, *, limit: int) -> int:
        """Delete expired and abandoned records that the server still has; return how many."""
        removed = 0
        if limit <= 0:
            return removed
        for place, value in self.bucket.values():
            if value.content is not None and self._may_be_forgotten(value.content):
                # A record that was claimed again has a new revision and is not deleted.
                removed += self.bucket.delete(place, revision=value.revision)
                if removed == limit:
                    break
        return removed

    def _change(self, key: str, rule: _Rule) -> IdempotencyRecord:
        place = _bucket_key(key)
        for _ in range(CONFLICTS_MAX):
            found = self.bucket.get(place)
            existing = _decode_value(found.content, key)
            changed = rule(existing, self._now())
            if changed == existing or self._put(place, changed, found.revision):
                return changed
        raise too_many_conflicts(f"idempotency key {key}")

    def _put(self, place: str, record: IdempotencyRecord, revision: int) -> bool:
        content = encode_record(record)
        try:
            return self.bucket.put(place, content, revision=revision, ttl_s=self._ttl_s(record))
        except MessagingError as error:
            if not isinstance(error.__cause__, MaxPayloadError):
                raise
            raise ResultNotStorableError(
                key=record.key,
                problem=f"its record has {len(content)} bytes, more than the server accepts",
                remedy="return less, such as a reference to the result, or raise max_payload on "
                "the server",
            ) from error

    def _ttl_s(self, record: IdempotencyRecord) -> int | None:
        end = record.removable_at
        if end is None:
            return None
        keep_s = (end - self._now()).total_seconds()
        return math.ceil(max(keep_s, 0)) + _TTL_MARGIN_S

    def _is_expired(self, content: bytes) -> bool:
        record = _try_decode(content)
        return record is not None and record.is_expired(self._now())

    def _may_be_forgotten(self, content: bytes) -> bool:
        record = _try_decode(content)
        return record is not None and record.is_removable(self._now())

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now(), UTC)


def _bucket_key(key: str) -> str:
    """Return the bucket key for an idempotency key: a hash, since few characters are allowed."""
    if not (key and is_unicode(key)):
        raise InvalidValueError(
            field="key", value=key, problem="must be non-empty text in valid Unicode"
        )
    return sha256(key.encode()).hexdigest()


def _try_decode(content: bytes) -> IdempotencyRecord | None:
    try:
        return decode_record(content)
    except MessagingError:  # an unreadable record has no known expiry
        return None


def _decode_value(content: bytes | None, key: str) -> IdempotencyRecord | None:
    return None if content is None else decode_record(content, key=key)
