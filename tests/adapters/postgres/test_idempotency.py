"""Idempotency records in Postgres: few round trips, and no race."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, insert, text
from support.audit_events import create_idempotency_used
from support.postgres_idempotency import (
    CALL,
    LEASE,
    age_records,
    claim_key,
    create_idempotency_manager,
    verify_audit_log,
    wait_for_blocked_session,
)
from support.proxies import PostgresProxy

from tileferry.adapters.postgres import Database, PostgresIdempotencyStore
from tileferry.adapters.postgres.encoding import escape_text, unescape_text
from tileferry.adapters.postgres.schema import idempotency_records
from tileferry.application.retries.idempotent_call import WhenBusy
from tileferry.domain.errors import (
    DatabaseError,
    IdempotencyInProgressError,
    IdempotencyLostError,
)
from tileferry.domain.idempotency import Completed, InProgress

# Round trips


@frozen
class RoundTripCounter:
    """Counts what goes over it."""

    proxy: PostgresProxy

    @contextmanager
    def counting(self, expected: int) -> Iterator[None]:
        before = self.proxy.round_trips
        yield
        assert self.proxy.round_trips - before == expected


def test_first_call_takes_two_round_trips_including_its_event(
    store: PostgresIdempotencyStore, proxied_store: PostgresIdempotencyStore, proxy: PostgresProxy
) -> None:
    with RoundTripCounter(proxy).counting(2):
        assert create_idempotency_manager(proxied_store).run_once(lambda: 5, CALL) == 5
    assert verify_audit_log(store) == 1


def test_each_store_operation_takes_one_round_trip(
    proxied_store: PostgresIdempotencyStore, proxy: PostgresProxy
) -> None:
    wire = RoundTripCounter(proxy)
    with wire.counting(1):
        held = claim_key(proxied_store)
    with wire.counting(1), pytest.raises(IdempotencyInProgressError):
        claim_key(proxied_store, "you")
    with wire.counting(1):
        proxied_store.renew(held, lease=LEASE)
    with wire.counting(1):
        proxied_store.release(held)
    with wire.counting(1):
        held = claim_key(proxied_store)
    with wire.counting(1):
        done = proxied_store.complete(held, b"5", keep=None, event=create_idempotency_used(1, "k"))
    with wire.counting(1):
        assert claim_key(proxied_store, "you") == done
    other = claim_key(proxied_store, key="other")
    with wire.counting(1):
        proxied_store.fail(
            other, ValueError("no"), keep=None, event=create_idempotency_used(2, "other")
        )


def test_hit_neither_writes_nor_locks(database: Database, store: PostgresIdempotencyStore) -> None:
    store.complete(claim_key(store), b"5", keep=None)

    def version() -> tuple[Any, ...]:
        with database.read_connection() as connection:
            row = connection.execute(text("SELECT ctid, xmin, xmax FROM idempotency_records")).one()
        return tuple(map(str, row))

    before = version()
    assert before[2] == "0"
    for _ in range(10):  # also once the driver has prepared the statement
        claim_key(store, "you")
    assert version() == before


# Races that a test can hold still


@pytest.mark.parametrize("commits", [True, False])
def test_claim_waits_for_an_uncommitted_one(
    database: Database, store: PostgresIdempotencyStore, *, commits: bool
) -> None:
    with ThreadPoolExecutor(1) as pool, database.engine.connect() as connection:
        insert_completed(connection)
        claiming = pool.submit(claim_key, store)
        wait_for_blocked_session(database)
        if commits:
            connection.commit()
        else:
            connection.rollback()
        record = claiming.result(timeout=20)
    assert isinstance(record.state, Completed if commits else InProgress)
    assert record.epoch == (7 if commits else 1)


def test_claim_of_an_expired_lease_loses_to_a_faster_one(
    database: Database, store: PostgresIdempotencyStore
) -> None:
    first = claim_key(store)
    age_records(database, LEASE)
    with ThreadPoolExecutor(1) as pool, database.engine.connect() as connection:
        connection.execute(text("UPDATE idempotency_records SET epoch = epoch + 1, owner = 'you'"))
        connection.execute(text("UPDATE idempotency_records SET lease_expires_at = now() + '9 s'"))
        claiming = pool.submit(claim_key, store, "them")
        wait_for_blocked_session(database)
        connection.commit()
        with pytest.raises(IdempotencyInProgressError) as refusal:
            claiming.result(timeout=20)
    assert refusal.value.owner == "you"
    with pytest.raises(IdempotencyLostError):
        store.complete(first, b"1", keep=None)


def test_claim_of_a_record_being_cleared_creates_a_new_one(
    database: Database, store: PostgresIdempotencyStore
) -> None:
    claim_key(store)
    age_records(database, LEASE)
    with ThreadPoolExecutor(1) as pool, database.engine.connect() as connection:
        connection.execute(text("DELETE FROM idempotency_records"))
        claiming = pool.submit(claim_key, store, "you")
        wait_for_blocked_session(database)
        connection.commit()
        record = claiming.result(timeout=20)
    assert (record.owner, record.epoch) == ("you", 1)


def insert_completed(connection: Connection) -> None:
    connection.execute(
        text(
            "INSERT INTO idempotency_records (key_sha256, key, fingerprint, epoch, owner, state,"
            " result, recorded_at) VALUES (sha256('k'), 'k', 'f', 7, 'you', 'completed', '5',"
            " now())"
        )
    )


# What the database refuses


NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
HELD: dict[str, Any] = {
    "key_sha256": bytes(32),
    "key": "k",
    "fingerprint": "f",
    "epoch": 1,
    "owner": "me",
    "state": "in_progress",
    "lease_expires_at": NOW,
}
DONE = {**HELD, "state": "completed", "lease_expires_at": None, "result": b"", "recorded_at": NOW}
FAILED = {
    **DONE,
    "state": "failed",
    "result": None,
    "error_type": "ValueError",
    "error_message": "",
}
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("key", {**HELD, "key_sha256": bytes(31)}),
    ("epoch", {**HELD, "epoch": 0}),
    ("expiry", {**DONE, "expires_at": NOW}),
    ("state", {**HELD, "state": "lost"}),
    ("state", {**HELD, "lease_expires_at": None}),
    ("state", {**HELD, "result": b""}),
    ("state", {**HELD, "recorded_at": NOW}),
    ("state", {**HELD, "expires_at": NOW}),
    ("state", {**DONE, "result": None}),
    ("state", {**DONE, "recorded_at": None}),
    ("state", {**DONE, "lease_expires_at": NOW}),
    ("state", {**DONE, "error_message": ""}),
    ("state", {**FAILED, "error_type": None}),
    ("state", {**FAILED, "error_message": None}),
    ("state", {**FAILED, "recorded_at": None}),
    ("state", {**FAILED, "result": b""}),
    ("state", {**FAILED, "lease_expires_at": NOW}),
]


def test_invalid_idempotency_row_is_rejected_by_its_constraint(database: Database) -> None:
    def put(row: dict[str, Any]) -> None:
        with database.transaction() as connection:
            connection.execute(insert(idempotency_records).values(row))
            connection.execute(text("DELETE FROM idempotency_records"))

    for row in (HELD, DONE, FAILED, {**DONE, "expires_at": NOW + LEASE}):
        put(row)
    for name, row in REFUSED:
        with pytest.raises(DatabaseError, match=f'"idempotency_records_{name}"'):
            put(row)


@given(st.text(st.sampled_from("\x00\\0a☁")))
def test_escaped_text_round_trips(odd: str) -> None:
    assert "\x00" not in escape_text(odd)
    assert unescape_text(escape_text(odd)) == odd


def test_concurrent_expiry_skips_locked_records(
    database: Database, store: PostgresIdempotencyStore
) -> None:
    for number in range(4):
        store.complete(claim_key(store, key=f"{number}"), b"1", keep=LEASE)
    age_records(database, LEASE)
    with database.transaction() as connection:
        connection.execute(text("SELECT 1 FROM idempotency_records WHERE key = '2' FOR UPDATE"))
        assert store.forget_expired(limit=10) == 3
    assert store.forget_expired(limit=10) == 1


def test_concurrent_calls_with_one_key_run_the_operation_once(
    store: PostgresIdempotencyStore,
) -> None:
    effects = threading.Semaphore(0)
    manager = create_idempotency_manager(store)
    call = evolve(CALL, when_busy=WhenBusy.WAIT)

    def operation() -> str:
        effects.release()
        return "done"

    once: Callable[[int], object] = lambda _: manager.run_once(operation, call)  # noqa: E731
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(once, range(16))) == ["done"] * 16
    assert effects.acquire(blocking=False)
    assert not effects.acquire(blocking=False)
    assert verify_audit_log(store) == 16  # one record, and a hit for each of the others
