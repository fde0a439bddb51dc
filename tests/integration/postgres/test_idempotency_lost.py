"""Idempotency over connections that are lost and servers that go away: no answer is guessed."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from attrs import evolve
from sqlalchemy import text
from support.audit_events import used
from support.idempotency_rows import (
    CALL,
    LEASE,
    claimed,
    logged,
    make_older,
    manager_of,
    store_in,
    wait_until_one_waits,
)
from support.managers import Script
from support.postgres_proxy import Cut, PostgresProxy
from support.postgres_server import OwnServer

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
def test_invariant_10_a_claim_whose_answer_is_lost_finds_itself(
    store: PostgresIdempotencyStore, far: PostgresIdempotencyStore, proxy: PostgresProxy, cut: Cut
) -> None:
    proxy.cut_at(b"idempotency_records", cut)
    held = claimed(far)
    assert proxy.cuts == 1
    assert (held.owner, held.epoch) == ("me", 1)
    assert store.find("k") == held


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("ending", ["complete", "fail"])
def test_invariants_10_19_an_ending_whose_answer_is_lost_counts_once_with_its_event(
    store: PostgresIdempotencyStore,
    far: PostgresIdempotencyStore,
    proxy: PostgresProxy,
    ending: str,
    cut: Cut,
) -> None:
    held = claimed(far)
    proxy.cut_at(b"audit_append", cut)
    if ending == "complete":
        record = far.complete(held, b"5", keep=LEASE, event=used(1, "k"))
    else:
        record = far.fail(held, ValueError("no"), keep=LEASE, event=used(1, "k"))
    assert proxy.cuts == 1
    assert store.find("k") == record
    assert logged(store) == 1
    with pytest.raises(IdempotencyLostError, match="finished before"):
        far.complete(held, b"5", keep=LEASE, event=used(1, "k"))
    assert logged(store) == 1


def test_invariants_10_19_the_first_try_may_still_be_at_work_when_the_second_comes(
    database: Database,
    store: PostgresIdempotencyStore,
    far: PostgresIdempotencyStore,
    proxy: PostgresProxy,
) -> None:
    held = claimed(far)
    proxy.cut_at(b"audit_append", Cut.DELIVERED)
    with ThreadPoolExecutor(1) as pool:
        with database.transaction() as connection:
            connection.execute(text("SELECT 1 FROM audit_head FOR UPDATE"))
            ending = pool.submit(far.complete, held, b"5", keep=None, event=used(1, "k"))
            wait_until_one_waits(database)
        record = ending.result(timeout=20)
    assert (store.find("k"), logged(store)) == (record, 1)


def test_invariant_10_an_ending_that_was_lost_meanwhile_is_refused(
    database: Database,
    store: PostgresIdempotencyStore,
    far: PostgresIdempotencyStore,
    proxy: PostgresProxy,
) -> None:
    held = claimed(far)
    make_older(database, LEASE)
    theirs = claimed(store, "you")
    proxy.cut_at(b"audit_append", Cut.BEFORE_COMMIT)
    with pytest.raises(IdempotencyLostError, match="epoch 1 is over, you has it"):
        far.complete(held, b"5", keep=None, event=used(1, "k"))
    assert proxy.cuts == 1
    assert (store.find("k"), logged(store)) == (theirs, 0)


@pytest.mark.parametrize("cut", CUTS)
def test_a_lost_answer_does_not_matter_to_the_other_steps(
    store: PostgresIdempotencyStore, far: PostgresIdempotencyStore, proxy: PostgresProxy, cut: Cut
) -> None:
    held = claimed(far)
    proxy.cut_at(b"UPDATE idempotency_records", cut)
    far.renew(held, lease=2 * LEASE)
    make_older(store.database, LEASE)
    with pytest.raises(IdempotencyInProgressError):
        claimed(store, "you")
    proxy.cut_at(b"UPDATE idempotency_records", cut)
    far.release(held)
    assert claimed(store, "you").epoch == 2
    assert proxy.cuts == 2


def test_invariant_10_clearing_tells_the_truth_though_its_answer_was_lost(
    store: PostgresIdempotencyStore, far: PostgresIdempotencyStore, proxy: PostgresProxy
) -> None:
    claimed(store)
    proxy.cut_at_commit(Cut.BEFORE_COMMIT)
    with pytest.raises(DatabaseError, match="the connection was lost"):
        far.clear("k")
    assert store.find("k") is not None
    proxy.cut_at_commit(Cut.AFTER_COMMIT)
    assert far.clear("k") is True
    assert store.find("k") is None


# A server that goes away


def test_a_claim_and_a_result_outlive_restarts_of_the_server(
    server: OwnServer, own: Database
) -> None:
    store = store_in(own)
    held = claimed(store)
    server.restart("immediate")
    done = store.complete(held, b"5", keep=None, event=used(1, "k"))
    server.restart("immediate")
    assert claimed(store, "you") == done
    assert logged(store) == 1


def test_invariant_11_without_an_answer_from_the_store_the_operation_does_not_run(
    server: OwnServer, own: Database
) -> None:
    manager, operation = manager_of(store_in(own)), Script()
    server.stop()
    try:
        with pytest.raises(DatabaseError, match="cannot be reached"):
            manager.once(operation, CALL)
    finally:
        server.start()
    assert operation.calls == 0
    assert manager.once(operation, CALL) == "done"
    assert operation.calls == 1


def test_invariant_11_nor_does_it_run_when_nobody_can_tell_who_has_the_key(
    store: PostgresIdempotencyStore, far: PostgresIdempotencyStore, proxy: PostgresProxy
) -> None:
    hasty = evolve(far, database=evolve(far.database, resolve_s=0.3))
    operation = Script()
    proxy.cut_at(b"idempotency_records", Cut.AFTER_COMMIT)
    proxy.refuse()
    with pytest.raises(DatabaseError, match="does not say whether it counted"):
        manager_of(hasty).once(operation, CALL)
    assert operation.calls == 0
    found = store.find("k")
    assert found is not None
    assert isinstance(found.state, InProgress)


def test_invariant_19_a_result_whose_event_the_log_refuses_is_not_recorded(
    database: Database, store: PostgresIdempotencyStore
) -> None:
    held = claimed(store)
    with database.transaction() as connection:
        connection.execute(text("ALTER TABLE audit_head DISABLE TRIGGER USER"))
        connection.execute(text("DELETE FROM audit_head"))
    with pytest.raises(DatabaseError, match="the chain cannot be continued"):
        store.complete(held, b"5", keep=None, event=used(1, "k"))
    assert store.find("k") == held


def test_a_server_that_dies_while_it_records_gives_the_answer_when_it_is_back(
    server: OwnServer, own: Database
) -> None:
    store = store_in(own)
    held = claimed(store)
    with ThreadPoolExecutor(1) as pool, own.engine.connect() as connection:
        connection.execute(text("SELECT 1 FROM audit_head FOR UPDATE"))
        ending = pool.submit(store.complete, held, b"5", keep=None, event=used(1, "k"))
        wait_until_one_waits(own)
        connection.invalidate()
        server.restart("immediate")
        record = ending.result(timeout=30)
    assert (store.find("k"), logged(store)) == (record, 1)
