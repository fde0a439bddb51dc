"""Postgres idempotency store: rows, statements, and the store that runs them.

Each statement performs one transition of ``tileferry.domain.idempotency``, using the database's
clock; a contract suite checks that both agree. Each statement can be run again if its result was
lost.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from attrs import frozen

from tileferry.adapters.postgres.audit_log import APPEND, PostgresAuditLog, append_parameters
from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.encoding import escape_text, unescape_text
from tileferry.adapters.postgres.session import DURABLE
from tileferry.domain.audit import AuditEvent
from tileferry.domain.errors import DatabaseError
from tileferry.domain.idempotency import (
    ABANDONED_AFTER,
    Completed,
    IdempotencyRecord,
    InProgress,
    PermanentFailure,
    RecordState,
    claim,
    require_record,
)
from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):  # commands that only read do not need it
    from tileferry.adapters.postgres.idempotent_statement import execute_idempotent

_COLUMNS = (
    "key, fingerprint, epoch, owner, state, lease_expires_at, result, error_type, error_message,"
    f" recorded_at, expires_at, now() AS now, {DURABLE}"
)
_IS_HELD = (
    "key_sha256 = %(key_sha256)b AND owner = %(owner)s AND epoch = %(epoch)s"
    " AND state = 'in_progress'"
)


@frozen(kw_only=True)
class StoredRecord:
    """A record as read from its row, with the owner and the database's time."""

    record: IdempotencyRecord
    owner: str
    """The current owner of the claim, or the owner that recorded the outcome."""
    now: datetime
    """The database's time of the read."""

    @classmethod
    def from_row(cls, row: Any) -> "StoredRecord":
        record = IdempotencyRecord(
            key=unescape_text(row.key),
            fingerprint=unescape_text(row.fingerprint),
            epoch=row.epoch,
            state=_state_from_row(row),
            expires_at=row.expires_at,
        )
        return cls(record=record, owner=unescape_text(row.owner), now=row.now)

    def matches_outcome(self, held: IdempotencyRecord, outcome: RecordState) -> bool:
        """Return whether the claim ``held`` recorded this outcome; times are ignored."""
        same_claim = (self.owner, self.record.epoch) == (held.owner, held.epoch)
        return same_claim and _comparable_state(self.record.state) == _comparable_state(outcome)


def _state_from_row(row: Any) -> RecordState:
    if row.state == "in_progress":
        return InProgress(owner=unescape_text(row.owner), lease_expires_at=row.lease_expires_at)
    if row.state == "completed":
        return Completed(result=bytes(row.result), recorded_at=row.recorded_at)
    return PermanentFailure(
        error_type=unescape_text(row.error_type),
        error_message=unescape_text(row.error_message),
        recorded_at=row.recorded_at,
    )


def _comparable_state(state: RecordState) -> object:
    match state:
        case Completed():
            return state.result
        case PermanentFailure():
            return state.error_type, state.error_message
        case InProgress():
            return state


def key_sha256(key: str) -> bytes:
    """Return the primary key of a key's row."""
    return sha256(key.encode()).digest()


# Anyone can claim an expired outcome. An expired lease can be claimed with the same payload.
_IS_FREE = (
    "(r.expires_at <= now() OR r.state = 'in_progress' AND r.lease_expires_at <= now()"
    " AND r.fingerprint = %(fingerprint)s)"
)
# Returns the claim, or the record that prevents it. Returns no row when another transaction
# changed the row after it was read; then the statement is run again. Reading first means that a
# hit writes nothing.
CLAIM = f"""
    WITH found AS (
        SELECT {_COLUMNS}, coalesce({_IS_FREE}, false) AS is_free
        FROM idempotency_records AS r WHERE key_sha256 = %(key_sha256)b
    ), taken AS (
        INSERT INTO idempotency_records AS r
            (key_sha256, key, fingerprint, epoch, owner, state, lease_expires_at)
        SELECT %(key_sha256)b, %(key)s, %(fingerprint)s, 1, %(owner)s, 'in_progress',
            now() + %(lease)s::interval
        WHERE NOT EXISTS (SELECT FROM found WHERE NOT is_free)
        ON CONFLICT (key_sha256) DO UPDATE SET
            fingerprint = excluded.fingerprint, epoch = r.epoch + 1, owner = excluded.owner,
            state = excluded.state, lease_expires_at = excluded.lease_expires_at, result = NULL,
            error_type = NULL, error_message = NULL, recorded_at = NULL, expires_at = NULL
        WHERE {_IS_FREE}
        RETURNING {_COLUMNS}, true AS is_free
    )
    TABLE taken UNION ALL SELECT * FROM found WHERE NOT is_free
"""  # noqa: S608  # interpolates constants only, here and below
RENEW = (
    "UPDATE idempotency_records SET lease_expires_at = now() + %(lease)s::interval"  # noqa: S608
    f" WHERE {_IS_HELD} AND lease_expires_at > now() RETURNING {_COLUMNS}"
)
RELEASE = (
    "UPDATE idempotency_records SET lease_expires_at = now()"  # noqa: S608
    f" WHERE {_IS_HELD} RETURNING {_COLUMNS}"
)
_END = f"""
    UPDATE idempotency_records SET state = %(state)s, lease_expires_at = NULL,
        result = %(result)b, error_type = %(error_type)s, error_message = %(error_message)s,
        recorded_at = now(), expires_at = now() + %(keep)s::interval
    WHERE {_IS_HELD} RETURNING {_COLUMNS}
"""  # noqa: S608
END = _END
END_AND_LOG = f"""
    WITH ended AS ({_END}), logged AS (SELECT {APPEND} FROM ended)
    SELECT ended.* FROM ended, logged
"""  # noqa: S608
FIND = f"SELECT {_COLUMNS} FROM idempotency_records WHERE key_sha256 = %(key_sha256)s"  # noqa: S608
CLEAR = (
    "DELETE FROM idempotency_records WHERE key_sha256 = %(key_sha256)s"
    " RETURNING coalesce(expires_at > now(), true) AS was_known"
)
FORGET_EXPIRED = """
    WITH over AS (
        SELECT key_sha256 FROM idempotency_records
        WHERE expires_at <= now()
            OR lease_expires_at <= now() - CAST(%(abandoned_after)s AS interval)
        LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM idempotency_records USING over
        WHERE idempotency_records.key_sha256 = over.key_sha256 RETURNING 1
    )
    SELECT count(*) AS removed FROM gone
"""


CLAIM_ROUNDS_MAX = 20
# Placeholder for domain functions that validate arguments; the database's clock decides.
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@frozen(kw_only=True)
class PostgresIdempotencyStore:
    """Idempotency store with one statement, and one round trip, per transition."""

    database: Database
    audit_sink: PostgresAuditLog | None = None
    """Must use the same database: an outcome and its event are committed in one transaction."""

    def claim(
        self, key: str, *, fingerprint: str, owner: str, lease: timedelta
    ) -> IdempotencyRecord:
        """Claim a key, or return the recorded outcome."""
        claim(None, key=key, fingerprint=fingerprint, owner=owner, now=_LONG_AGO, lease=lease)
        request = {
            "key_sha256": key_sha256(key),
            "key": escape_text(key),
            "fingerprint": escape_text(fingerprint),
            "owner": escape_text(owner),
            "lease": lease,
        }
        for _ in range(CLAIM_ROUNDS_MAX):
            row = execute_idempotent(self.database, CLAIM, request).row
            if row is None:  # another transaction changed the row after it was read
                continue
            found = StoredRecord.from_row(row)
            if row.is_free:
                return found.record
            return claim(
                found.record,
                key=key,
                fingerprint=fingerprint,
                owner=owner,
                now=found.now,
                lease=lease,
            )
        raise DatabaseError(
            problem=f"the record of idempotency key {key} keeps changing while it is read",
            remedy="check what else uses this key",
        )

    def renew(self, held: IdempotencyRecord, *, lease: timedelta) -> IdempotencyRecord:
        """Extend a claim's lease."""
        held.renew(held.owner, held.epoch, now=_LONG_AGO, lease=lease)
        row = execute_idempotent(
            self.database, RENEW, {**_claim_parameters(held), "lease": lease}
        ).row
        if row is not None:
            return StoredRecord.from_row(row).record
        return self._raise_refusal(
            held, lambda record, now: record.renew(held.owner, held.epoch, now=now, lease=lease)
        )

    def complete(
        self,
        held: IdempotencyRecord,
        result: bytes,
        *,
        keep: timedelta | None,
        event: AuditEvent | None = None,
    ) -> IdempotencyRecord:
        """Record a result and its event."""
        return self._end(
            held,
            lambda record, now: record.complete(held.owner, held.epoch, result, now=now, keep=keep),
            keep,
            event,
        )

    def fail(
        self,
        held: IdempotencyRecord,
        error: Exception,
        *,
        keep: timedelta | None,
        event: AuditEvent | None = None,
    ) -> IdempotencyRecord:
        """Record a permanent failure and its event."""
        return self._end(
            held,
            lambda record, now: record.fail(held.owner, held.epoch, error, now=now, keep=keep),
            keep,
            event,
        )

    def release(self, held: IdempotencyRecord) -> None:
        """Release a claim, so that it can be claimed at once."""
        settled = execute_idempotent(self.database, RELEASE, _claim_parameters(held))
        # If the statement was repeated, the first execution may have released the claim.
        if settled.row is None and not settled.repeated:
            self._raise_refusal(
                held, lambda record, now: record.release(held.owner, held.epoch, now=now)
            )

    def find(self, key: str) -> IdempotencyRecord | None:
        """Return the record of a key, or ``None`` if it does not exist or has expired."""
        found = self._find_stored(key)
        return None if found is None or found.record.is_expired(found.now) else found.record

    def clear(self, key: str) -> bool:
        """Delete a key's record; return whether there was an unexpired one."""
        row = self.database.change(CLEAR, {"key_sha256": key_sha256(key)})
        return row is not None and row.was_known

    def forget_expired(self, *, limit: int) -> int:
        """Delete expired and abandoned records, except locked ones; return how many."""
        row = self.database.change(
            FORGET_EXPIRED, {"limit": limit, "abandoned_after": ABANDONED_AFTER}
        )
        return 0 if row is None else int(row.removed)

    def _end(
        self,
        held: IdempotencyRecord,
        ending: Callable[[IdempotencyRecord, datetime], IdempotencyRecord],
        keep: timedelta | None,
        event: AuditEvent | None,
    ) -> IdempotencyRecord:
        outcome = ending(held, _LONG_AGO).state
        assert isinstance(outcome, Completed | PermanentFailure)  # noqa: S101  # the only possible outcomes
        statement, parameters = (
            END,
            {**_claim_parameters(held), **_outcome_columns(outcome), "keep": keep},
        )
        if event is not None and self.audit_sink is not None:
            statement, parameters = END_AND_LOG, {**parameters, **append_parameters([event])}
        settled = execute_idempotent(self.database, statement, parameters)
        if settled.row is not None:
            return StoredRecord.from_row(settled.row).record
        found = self._find_stored(held.key)
        if settled.repeated and found is not None and found.matches_outcome(held, outcome):
            return found.record
        return self._raise_refusal(held, ending)

    def _raise_refusal(
        self,
        held: IdempotencyRecord,
        change: Callable[[IdempotencyRecord, datetime], IdempotencyRecord],
    ) -> IdempotencyRecord:
        """Raise the domain's error for a change that matched no row."""
        found = self._find_stored(held.key)
        existing = require_record(None if found is None else found.record, held)
        change(existing, _LONG_AGO if found is None else found.now)
        raise DatabaseError(
            problem=f"the change of idempotency key {held.key} was refused, but its claim is valid",
            remedy="this is a defect; please report it",
        )

    def _find_stored(self, key: str) -> StoredRecord | None:
        rows = self.database.fetch_rows(FIND, {"key_sha256": key_sha256(key)})
        return StoredRecord.from_row(rows[0]) if rows else None


def _claim_parameters(held: IdempotencyRecord) -> dict[str, object]:
    return {
        "key_sha256": key_sha256(held.key),
        "owner": escape_text(held.owner),
        "epoch": held.epoch,
    }


def _outcome_columns(outcome: Completed | PermanentFailure) -> Mapping[str, object]:
    if isinstance(outcome, Completed):
        return {
            "state": "completed",
            "result": outcome.result,
            "error_type": None,
            "error_message": None,
        }
    return {
        "state": "failed",
        "result": None,
        "error_type": escape_text(outcome.error_type),
        "error_message": escape_text(outcome.error_message),
    }
