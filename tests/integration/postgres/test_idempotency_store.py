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
from support.audit_events import used
from support.idempotency_rows import (
    CALL,
    LEASE,
    claimed,
    logged,
    make_older,
    manager_of,
    wait_until_one_waits,
)
from support.postgres_proxy import PostgresProxy

from tileferry.adapters.postgres import Database, PostgresIdempotencyStore
from tileferry.adapters.postgres.plain_text import escaped, unescaped
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
class Wire:
    """Counts what goes over it."""

    proxy: PostgresProxy

    @contextmanager
    def counting(self, expected: int) -> Iterator[None]:
        before = self.proxy.round_trips
        yield
        assert self.proxy.round_trips - before == expected


def test_a_first_call_costs_two_round_trips_and_its_event_none(
    store: PostgresIdempotencyStore, far: PostgresIdempotencyStore, proxy: PostgresProxy
) -> None:
    with Wire(proxy).counting(2):
        assert manager_of(far).once(lambda: 5, CALL) == 5
    assert logged(store) == 1


def test_each_step_of_the_store_costs_one_round_trip(
    far: PostgresIdempotencyStore, proxy: PostgresProxy
) -> None:
    wire = Wire(proxy)
    with wire.counting(1):
        held = claimed(far)
    with wire.counting(1), pytest.raises(IdempotencyInProgressError):
        claimed(far, "you")
    with wire.counting(1):
        far.renew(held, lease=LEASE)
    with wire.counting(1):
        far.release(held)
    with wire.counting(1):
        held = claimed(far)
    with wire.counting(1):
        done = far.complete(held, b"5", keep=None, event=used(1, "k"))
    with wire.counting(1):
        assert claimed(far, "you") == done
    other = claimed(far, key="other")
    with wire.counting(1):
        far.fail(other, ValueError("no"), keep=None, event=used(2, "other"))


def test_a_hit_writes_nothing_and_locks_nothing(
    database: Database, store: PostgresIdempotencyStore
) -> None:
    store.complete(claimed(store), b"5", keep=None)

    def version() -> tuple[Any, ...]:
        with database.reading() as connection:
            row = connection.execute(text("SELECT ctid, xmin, xmax FROM idempotency_records")).one()
        return tuple(map(str, row))

    before = version()
    assert before[2] == "0"
    for _ in range(10):  # also once the driver has prepared the statement
        claimed(store, "you")
    assert version() == before


# Races that a test can hold still


@pytest.mark.parametrize("commits", [True, False])
def test_a_claim_waits_for_one_that_nobody_can_see_yet(
    database: Database, store: PostgresIdempotencyStore, *, commits: bool
) -> None:
    with ThreadPoolExecutor(1) as pool, database.engine.connect() as connection:
        put_completed(connection)
        claiming = pool.submit(claimed, store)
        wait_until_one_waits(database)
        if commits:
            connection.commit()
        else:
            connection.rollback()
        record = claiming.result(timeout=20)
    assert isinstance(record.state, Completed if commits else InProgress)
    assert record.epoch == (7 if commits else 1)


def test_a_claim_that_saw_an_ended_lease_finds_that_another_was_faster(
    database: Database, store: PostgresIdempotencyStore
) -> None:
    first = claimed(store)
    make_older(database, LEASE)
    with ThreadPoolExecutor(1) as pool, database.engine.connect() as connection:
        connection.execute(text("UPDATE idempotency_records SET epoch = epoch + 1, owner = 'you'"))
        connection.execute(text("UPDATE idempotency_records SET lease_expires_at = now() + '9 s'"))
        claiming = pool.submit(claimed, store, "them")
        wait_until_one_waits(database)
        connection.commit()
        with pytest.raises(IdempotencyInProgressError) as refusal:
            claiming.result(timeout=20)
    assert refusal.value.owner == "you"
    with pytest.raises(IdempotencyLostError):
        store.complete(first, b"1", keep=None)


def test_a_claim_on_a_record_that_is_just_cleared_makes_a_new_one(
    database: Database, store: PostgresIdempotencyStore
) -> None:
    claimed(store)
    make_older(database, LEASE)
    with ThreadPoolExecutor(1) as pool, database.engine.connect() as connection:
        connection.execute(text("DELETE FROM idempotency_records"))
        claiming = pool.submit(claimed, store, "you")
        wait_until_one_waits(database)
        connection.commit()
        record = claiming.result(timeout=20)
    assert (record.owner, record.epoch) == ("you", 1)


def put_completed(connection: Connection) -> None:
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


def test_a_row_that_makes_no_sense_is_refused_by_name(database: Database) -> None:
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
def test_any_text_comes_back_from_its_escaped_form(odd: str) -> None:
    assert "\x00" not in escaped(odd)
    assert unescaped(escaped(odd)) == odd


def test_sweepers_do_not_wait_for_each_other(
    database: Database, store: PostgresIdempotencyStore
) -> None:
    for number in range(4):
        store.complete(claimed(store, key=f"{number}"), b"1", keep=LEASE)
    make_older(database, LEASE)
    with database.transaction() as connection:
        connection.execute(text("SELECT 1 FROM idempotency_records WHERE key = '2' FOR UPDATE"))
        assert store.forget_expired(limit=10) == 3
    assert store.forget_expired(limit=10) == 1


def test_threads_that_take_turns_on_one_key_do_the_work_once(
    store: PostgresIdempotencyStore,
) -> None:
    effects = threading.Semaphore(0)
    manager = manager_of(store)
    call = evolve(CALL, when_busy=WhenBusy.WAIT)

    def operation() -> str:
        effects.release()
        return "done"

    once: Callable[[int], object] = lambda _: manager.once(operation, call)  # noqa: E731
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(once, range(16))) == ["done"] * 16
    assert effects.acquire(blocking=False)
    assert not effects.acquire(blocking=False)
    assert logged(store) == 16  # one record, and a hit for each of the others
