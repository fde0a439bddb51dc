"""Idempotency records in Postgres."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from attrs import frozen
from sqlalchemy import text

from tileferry.adapters.postgres.audit_log import PostgresAuditLog, append_parameters
from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.idempotency_rows import (
    CLAIM,
    CLEAR,
    END,
    END_AND_LOG,
    FIND,
    FORGET_EXPIRED,
    RELEASE,
    RENEW,
    StoredRecord,
    key_sha256,
)
from tileferry.adapters.postgres.plain_text import escaped
from tileferry.adapters.postgres.settle import settle
from tileferry.domain.audit import AuditEvent
from tileferry.domain.errors import DatabaseError
from tileferry.domain.idempotency import (
    ABANDONED_AFTER,
    Completed,
    FailedForGood,
    IdempotencyRecord,
    claim,
    still_known,
)

CLAIM_ROUNDS_MAX = 20
# The domain's functions check a request by any time at all; those that count are the database's.
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
_FIND, _CLEAR, _FORGET_EXPIRED = text(FIND), text(CLEAR), text(FORGET_EXPIRED)


@frozen(kw_only=True)
class PostgresIdempotencyStore:
    """Takes each step by one statement: one round trip, and time by the database's clock."""

    database: Database
    audit_sink: PostgresAuditLog | None = None
    """Of the same database: an outcome and its event are one transaction."""

    def claim(
        self, key: str, *, fingerprint: str, owner: str, lease: timedelta
    ) -> IdempotencyRecord:
        """Take a key, or return the outcome that is there."""
        claim(None, key=key, fingerprint=fingerprint, owner=owner, now=_LONG_AGO, lease=lease)
        request = {
            "key_sha256": key_sha256(key),
            "key": escaped(key),
            "fingerprint": escaped(fingerprint),
            "owner": escaped(owner),
            "lease": lease,
        }
        for _ in range(CLAIM_ROUNDS_MAX):
            row = settle(self.database, CLAIM, request).row
            if row is None:  # it changed under the statement's eyes
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
            problem=f"the record of idempotency key {key} changes faster than it can be read",
            remedy="see who else uses this key",
        )

    def renew(self, held: IdempotencyRecord, *, lease: timedelta) -> IdempotencyRecord:
        """Extend a lease."""
        held.renewed(held.owner, held.epoch, now=_LONG_AGO, lease=lease)
        row = settle(self.database, RENEW, {**_claim_of(held), "lease": lease}).row
        if row is not None:
            return StoredRecord.from_row(row).record
        return self._refused(
            held, lambda record, now: record.renewed(held.owner, held.epoch, now=now, lease=lease)
        )

    def complete(
        self,
        held: IdempotencyRecord,
        result: bytes,
        *,
        keep: timedelta | None,
        event: AuditEvent | None = None,
    ) -> IdempotencyRecord:
        """Record a result, and its event with it."""
        return self._end(
            held,
            lambda record, now: record.completed(
                held.owner, held.epoch, result, now=now, keep=keep
            ),
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
        """Record a failure, and its event with it."""
        return self._end(
            held,
            lambda record, now: record.failed_for_good(
                held.owner, held.epoch, error, now=now, keep=keep
            ),
            keep,
            event,
        )

    def release(self, held: IdempotencyRecord) -> None:
        """Give a claim back."""
        settled = settle(self.database, RELEASE, _claim_of(held))
        # Whoever has it after a statement that was repeated may have got it from us.
        if settled.row is None and not settled.repeated:
            self._refused(
                held, lambda record, now: record.released(held.owner, held.epoch, now=now)
            )

    def find(self, key: str) -> IdempotencyRecord | None:
        """Look a key up."""
        found = self._stored(key)
        return None if found is None or found.record.is_expired(found.now) else found.record

    def clear(self, key: str) -> bool:
        """Forget a key."""
        row = self.database.change(_CLEAR, {"key_sha256": key_sha256(key)})
        return row is not None and row.was_known

    def forget_expired(self, *, limit: int) -> int:
        """Remove what has expired or was abandoned, unless somebody is just claiming it."""
        row = self.database.change(
            _FORGET_EXPIRED, {"limit": limit, "abandoned_after": ABANDONED_AFTER}
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
        assert isinstance(outcome, Completed | FailedForGood)  # noqa: S101  # what endings are
        statement, parameters = END, {**_claim_of(held), **_columns_of(outcome), "keep": keep}
        if event is not None and self.audit_sink is not None:
            statement, parameters = END_AND_LOG, {**parameters, **append_parameters([event])}
        settled = settle(self.database, statement, parameters)
        if settled.row is not None:
            return StoredRecord.from_row(settled.row).record
        found = self._stored(held.key)
        if settled.repeated and found is not None and found.is_outcome_of(held, outcome):
            return found.record
        return self._refused(held, ending)

    def _refused(
        self,
        held: IdempotencyRecord,
        change: Callable[[IdempotencyRecord, datetime], IdempotencyRecord],
    ) -> IdempotencyRecord:
        """Let the domain say why a change was not made."""
        found = self._stored(held.key)
        existing = still_known(None if found is None else found.record, held)
        change(existing, _LONG_AGO if found is None else found.now)
        raise DatabaseError(
            problem=f"the claim on idempotency key {held.key} was refused and is there",
            remedy="this is a defect; please report it",
        )

    def _stored(self, key: str) -> StoredRecord | None:
        with self.database.reading() as connection:
            row = connection.execute(_FIND, {"key_sha256": key_sha256(key)}).first()
        return None if row is None else StoredRecord.from_row(row)


def _claim_of(held: IdempotencyRecord) -> dict[str, object]:
    return {
        "key_sha256": key_sha256(held.key),
        "owner": escaped(held.owner),
        "epoch": held.epoch,
    }


def _columns_of(outcome: Completed | FailedForGood) -> Mapping[str, object]:
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
        "error_type": escaped(outcome.error_type),
        "error_message": escaped(outcome.error_message),
    }
