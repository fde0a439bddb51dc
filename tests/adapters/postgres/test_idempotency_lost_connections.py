"""Idempotency over connections that are lost and servers that go away: no answer is guessed."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from attrs import evolve
from sqlalchemy import text
from support.audit_events import create_idempotency_used
from support.managers import ScriptedOperation
from support.postgres_idempotency import (
    CALL,
    LEASE,
    age_records,
    claim_key,
    create_idempotency_manager,
    create_idempotency_store,
    verify_audit_log,
    wait_for_blocked_session,
)
from support.postgres_server import PostgresServerProcess
from support.proxies import Cut, PostgresProxy

from tileferry.adapters.postgres import Database, PostgresIdempotencyStore
from tileferry.domain.errors import (
    DatabaseError,
    IdempotencyInProgressError,
    IdempotencyLostError,
)
from tileferry.domain.idempotency import InProgress

CUTS = [Cut.BEFORE_COMMIT, Cut.AFTER_COMMIT, Cut.UNNOTICED, Cut.DELIVERED]


# Connections that are lost


@pytest.mark.parametrize("cut", CUTS)
def test_invariant_10_claim_with_a_lost_response_is_made_once(
    store: PostgresIdempotencyStore,
    proxied_store: PostgresIdempotencyStore,
    proxy: PostgresProxy,
    cut: Cut,
) -> None:
    proxy.cut_at(b"idempotency_records", cut)
    held = claim_key(proxied_store)
    assert proxy.cuts == 1
    assert (held.owner, held.epoch) == ("me", 1)
    assert store.find("k") == held


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("ending", ["complete", "fail"])
def test_invariants_10_19_result_with_a_lost_response_is_recorded_once(
    store: PostgresIdempotencyStore,
    proxied_store: PostgresIdempotencyStore,
    proxy: PostgresProxy,
    ending: str,
    cut: Cut,
) -> None:
    held = claim_key(proxied_store)
    proxy.cut_at(b"audit_append", cut)
    if ending == "complete":
        record = proxied_store.complete(
            held, b"5", keep=LEASE, event=create_idempotency_used(1, "k")
        )
    else:
        record = proxied_store.fail(
            held, ValueError("no"), keep=LEASE, event=create_idempotency_used(1, "k")
        )
    assert proxy.cuts == 1
    assert store.find("k") == record
    assert verify_audit_log(store) == 1
    with pytest.raises(IdempotencyLostError, match="already finished"):
        proxied_store.complete(held, b"5", keep=LEASE, event=create_idempotency_used(1, "k"))
    assert verify_audit_log(store) == 1


def test_invariants_10_19_retry_while_the_first_attempt_runs_records_once(
    database: Database,
    store: PostgresIdempotencyStore,
    proxied_store: PostgresIdempotencyStore,
    proxy: PostgresProxy,
) -> None:
    held = claim_key(proxied_store)
    proxy.cut_at(b"audit_append", Cut.DELIVERED)
    with ThreadPoolExecutor(1) as pool:
        with database.transaction() as connection:
            connection.execute(text("SELECT 1 FROM audit_head FOR UPDATE"))
            ending = pool.submit(
                proxied_store.complete, held, b"5", keep=None, event=create_idempotency_used(1, "k")
            )
            wait_for_blocked_session(database)
        record = ending.result(timeout=20)
    assert (store.find("k"), verify_audit_log(store)) == (record, 1)


def test_invariant_10_result_of_a_lost_lease_is_rejected(
    database: Database,
    store: PostgresIdempotencyStore,
    proxied_store: PostgresIdempotencyStore,
    proxy: PostgresProxy,
) -> None:
    held = claim_key(proxied_store)
    age_records(database, LEASE)
    theirs = claim_key(store, "you")
    proxy.cut_at(b"audit_append", Cut.BEFORE_COMMIT)
    with pytest.raises(IdempotencyLostError, match="epoch 1 has ended; you holds the key"):
        proxied_store.complete(held, b"5", keep=None, event=create_idempotency_used(1, "k"))
    assert proxy.cuts == 1
    assert (store.find("k"), verify_audit_log(store)) == (theirs, 0)


@pytest.mark.parametrize("cut", CUTS)
def test_renew_and_release_survive_a_lost_response(
    store: PostgresIdempotencyStore,
    proxied_store: PostgresIdempotencyStore,
    proxy: PostgresProxy,
    cut: Cut,
) -> None:
    held = claim_key(proxied_store)
    proxy.cut_at(b"UPDATE idempotency_records", cut)
    proxied_store.renew(held, lease=2 * LEASE)
    age_records(store.database, LEASE)
    with pytest.raises(IdempotencyInProgressError):
        claim_key(store, "you")
    proxy.cut_at(b"UPDATE idempotency_records", cut)
    proxied_store.release(held)
    assert claim_key(store, "you").epoch == 2
    assert proxy.cuts == 2


def test_invariant_10_clear_reports_correctly_after_a_lost_response(
    store: PostgresIdempotencyStore, proxied_store: PostgresIdempotencyStore, proxy: PostgresProxy
) -> None:
    claim_key(store)
    proxy.cut_at_commit(Cut.BEFORE_COMMIT)
    with pytest.raises(DatabaseError, match="the connection was lost"):
        proxied_store.clear("k")
    assert store.find("k") is not None
    proxy.cut_at_commit(Cut.AFTER_COMMIT)
    assert proxied_store.clear("k") is True
    assert store.find("k") is None


# A server that goes away


def test_claim_and_result_survive_server_restarts(
    server: PostgresServerProcess, own: Database
) -> None:
    store = create_idempotency_store(own)
    held = claim_key(store)
    server.restart("immediate")
    done = store.complete(held, b"5", keep=None, event=create_idempotency_used(1, "k"))
    server.restart("immediate")
    assert claim_key(store, "you") == done
    assert verify_audit_log(store) == 1


def test_invariant_11_operation_does_not_run_when_the_store_is_unreachable(
    server: PostgresServerProcess, own: Database
) -> None:
    manager, operation = (
        create_idempotency_manager(create_idempotency_store(own)),
        ScriptedOperation(),
    )
    server.stop()
    try:
        with pytest.raises(DatabaseError, match="cannot connect"):
            manager.run_once(operation, CALL)
    finally:
        server.start()
    assert operation.calls == 0
    assert manager.run_once(operation, CALL) == "done"
    assert operation.calls == 1


def test_invariant_11_operation_does_not_run_when_the_claim_is_unresolved(
    store: PostgresIdempotencyStore, proxied_store: PostgresIdempotencyStore, proxy: PostgresProxy
) -> None:
    hasty = evolve(proxied_store, database=evolve(proxied_store.database, resolve_s=0.3))
    operation = ScriptedOperation()
    proxy.cut_at(b"idempotency_records", Cut.AFTER_COMMIT)
    proxy.refuse()
    with pytest.raises(DatabaseError, match="it is unknown whether it took effect"):
        create_idempotency_manager(hasty).run_once(operation, CALL)
    assert operation.calls == 0
    found = store.find("k")
    assert found is not None
    assert isinstance(found.state, InProgress)


def test_invariant_19_result_is_not_recorded_when_its_event_fails(
    database: Database, store: PostgresIdempotencyStore
) -> None:
    held = claim_key(store)
    with database.transaction() as connection:
        connection.execute(text("ALTER TABLE audit_head DISABLE TRIGGER USER"))
        connection.execute(text("DELETE FROM audit_head"))
    with pytest.raises(DatabaseError, match="the chain cannot be continued"):
        store.complete(held, b"5", keep=None, event=create_idempotency_used(1, "k"))
    assert store.find("k") == held


def test_result_is_recorded_once_when_the_server_dies_while_recording(
    server: PostgresServerProcess, own: Database
) -> None:
    store = create_idempotency_store(own)
    held = claim_key(store)
    with ThreadPoolExecutor(1) as pool, own.engine.connect() as connection:
        connection.execute(text("SELECT 1 FROM audit_head FOR UPDATE"))
        ending = pool.submit(
            store.complete, held, b"5", keep=None, event=create_idempotency_used(1, "k")
        )
        wait_for_blocked_session(own)
        connection.invalidate()
        server.restart("immediate")
        record = ending.result(timeout=30)
    assert (store.find("k"), verify_audit_log(store)) == (record, 1)
