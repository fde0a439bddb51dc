"""A store of idempotency records in Postgres, and what its tests do with it."""

import logging
from datetime import timedelta

from sqlalchemy import text

from tileferry.adapters.postgres import Database, PostgresAuditLog, PostgresIdempotencyStore
from tileferry.adapters.system import SystemClock, new_id
from tileferry.application import AuditTrail, IdempotencyManager
from tileferry.application.audit import CallContext
from tileferry.application.retries.idempotent_call import IdempotentCall, WhenBusy
from tileferry.domain.audit import verify_chain
from tileferry.domain.canonical import JsonValue
from tileferry.domain.idempotency import IdempotencyRecord

LEASE = timedelta(seconds=30)
CALL = IdempotentCall(
    key="k",
    context=CallContext(category="RETRY_API_REQUEST", operation="test"),
    when_busy=WhenBusy.REFUSE,
    result_type=JsonValue,
)


def age_records(database: Database, passed: timedelta) -> None:
    """Make all records so much older: nobody moves the clock of a database."""
    older = text(
        "UPDATE idempotency_records SET lease_expires_at = lease_expires_at - :passed,"
        " recorded_at = recorded_at - :passed, expires_at = expires_at - :passed"
    )
    with database.transaction() as connection:
        connection.execute(older, {"passed": passed})


def create_idempotency_store(database: Database) -> PostgresIdempotencyStore:
    log = PostgresAuditLog(database=database)
    return PostgresIdempotencyStore(database=database, audit_sink=log)


def create_idempotency_manager(store: PostgresIdempotencyStore) -> IdempotencyManager:
    assert store.audit_sink is not None
    trail = AuditTrail(logger=logging.getLogger("tests"), sinks=[store.audit_sink])
    return IdempotencyManager(store=store, clock=SystemClock(), new_id=new_id, audit=trail)


def claim_key(
    store: PostgresIdempotencyStore, owner: str = "me", key: str = "k"
) -> IdempotencyRecord:
    return store.claim(key, fingerprint="f", owner=owner, lease=LEASE)


def verify_audit_log(store: PostgresIdempotencyStore) -> int:
    """Check the chain, and return how long it is."""
    assert store.audit_sink is not None
    report = verify_chain(
        store.audit_sink.iter_entries(), expected_head=store.audit_sink.read_head()
    )
    assert report.intact
    return report.checked


def wait_for_blocked_session(database: Database) -> None:
    blocked = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with database.read_connection() as connection:
        while not connection.execute(blocked).scalar_one():
            pass
