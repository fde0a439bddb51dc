"""Idempotency records as rows, and the statements that change them.

Each statement takes the step that ``tileferry.domain.idempotency`` describes, by the clock of the
database; the contract suite holds both to it. Each may be run again when its answer was lost.
"""

from datetime import datetime
from hashlib import sha256
from typing import Any

from attrs import frozen
from sqlalchemy import Row

from tileferry.adapters.postgres.audit_log import APPEND
from tileferry.adapters.postgres.database import WITH_XID
from tileferry.adapters.postgres.plain_text import unescaped
from tileferry.domain.idempotency import (
    Completed,
    FailedForGood,
    IdempotencyRecord,
    InProgress,
    RecordState,
)

_COLUMNS = (
    "key, fingerprint, epoch, owner, state, lease_expires_at, result, error_type, error_message,"
    " recorded_at, expires_at, now() AS now"
)
_IS_HELD = (
    "key_sha256 = %(key_sha256)b AND owner = %(owner)s AND epoch = %(epoch)s"
    " AND state = 'in_progress'"
)


@frozen(kw_only=True)
class StoredRecord:
    """A record as it was found, with what its outcome does not tell."""

    record: IdempotencyRecord
    owner: str
    """Whose claim it is, or was when its outcome was recorded."""
    now: datetime
    """The time of the database then."""

    @classmethod
    def from_row(cls, row: Row[Any]) -> "StoredRecord":
        """Read a row."""
        record = IdempotencyRecord(
            key=unescaped(row.key),
            fingerprint=unescaped(row.fingerprint),
            epoch=row.epoch,
            state=_state_from(row),
            expires_at=row.expires_at,
        )
        return cls(record=record, owner=unescaped(row.owner), now=row.now)

    def is_outcome_of(self, held: IdempotencyRecord, outcome: RecordState) -> bool:
        """Tell whether this is what a claim recorded, whatever the time of it."""
        same_claim = (self.owner, self.record.epoch) == (held.owner, held.epoch)
        return same_claim and _content(self.record.state) == _content(outcome)


def _state_from(row: Row[Any]) -> RecordState:
    if row.state == "in_progress":
        return InProgress(owner=unescaped(row.owner), lease_expires_at=row.lease_expires_at)
    if row.state == "completed":
        return Completed(result=bytes(row.result), recorded_at=row.recorded_at)
    return FailedForGood(
        error_type=unescaped(row.error_type),
        error_message=unescaped(row.error_message),
        recorded_at=row.recorded_at,
    )


def _content(state: RecordState) -> object:
    match state:
        case Completed():
            return state.result
        case FailedForGood():
            return state.error_type, state.error_message
        case InProgress():
            return state


def key_sha256(key: str) -> bytes:
    """Return what a key's row is found by."""
    return sha256(key.encode()).digest()


# An outcome that has expired is anybody's; so is a lease that ran out, for the same payload.
_IS_FREE = (
    "(r.expires_at <= now() OR r.state = 'in_progress' AND r.lease_expires_at <= now()"
    " AND r.fingerprint = %(fingerprint)s)"
)
# Returns the claim, or what stands in its way. It returns nothing when the row that it ran into is
# not the one that it had seen: then it is run again. Looking first keeps a hit from writing at all.
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
"""  # noqa: S608  # names of ours, here and below
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
FIND = f"SELECT {_COLUMNS} FROM idempotency_records WHERE key_sha256 = :key_sha256"  # noqa: S608
CLEAR = (
    "DELETE FROM idempotency_records WHERE key_sha256 = :key_sha256"  # noqa: S608
    f" RETURNING coalesce(expires_at > now(), true) AS was_known, {WITH_XID}"
)
FORGET_EXPIRED = f"""
    WITH over AS (
        SELECT key_sha256 FROM idempotency_records
        WHERE expires_at <= now() OR lease_expires_at <= now() - CAST(:abandoned_after AS interval)
        LIMIT :limit FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM idempotency_records USING over
        WHERE idempotency_records.key_sha256 = over.key_sha256 RETURNING 1
    )
    SELECT count(*) AS removed, {WITH_XID} FROM gone
"""  # noqa: S608
