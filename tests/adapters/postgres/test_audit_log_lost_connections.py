"""The audit log over connections that are lost: never written twice."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from sqlalchemy import text
from support.audit_events import create_one_event_of_each_type, create_retry_attempted
from support.audit_log import assert_log_holds
from support.postgres_server import PostgresServerProcess
from support.proxies import Cut, PostgresProxy

from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.adapters.postgres.audit_log import append_events
from tileferry.domain.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable


def open_log(cut_off: Database) -> PostgresAuditLog:
    """A log behind the proxy, with a connection that is made already."""
    cut_off.engine.connect().close()  # the pool has a connection now
    return PostgresAuditLog(database=cut_off)


def test_batch_takes_one_round_trip(
    log: PostgresAuditLog, proxied_database: Database, proxy: PostgresProxy
) -> None:
    far = open_log(proxied_database)
    before = proxy.round_trips
    far.emit([create_retry_attempted(number) for number in range(200)])
    assert proxy.round_trips - before == 1
    assert log.read_head().sequence == 200


@pytest.mark.parametrize("cut", [Cut.BEFORE_COMMIT, Cut.AFTER_COMMIT, Cut.UNNOTICED, Cut.DELIVERED])
def test_invariant_10_batch_is_written_once_wherever_the_connection_breaks(
    log: PostgresAuditLog, proxied_database: Database, proxy: PostgresProxy, cut: Cut
) -> None:
    far = open_log(proxied_database)
    proxy.cut_at(b"audit_append", cut)
    far.emit(create_one_event_of_each_type())
    far.emit(create_one_event_of_each_type())
    assert proxy.cuts == 1
    assert_log_holds(log, create_one_event_of_each_type(), create_one_event_of_each_type())


def test_invariant_10_retry_while_the_first_attempt_still_waits_writes_once(
    database: Database, log: PostgresAuditLog, proxied_database: Database, proxy: PostgresProxy
) -> None:
    far = open_log(proxied_database)
    log.emit([create_retry_attempted(1)])
    proxy.cut_at(b"audit_append", Cut.DELIVERED)
    with ThreadPoolExecutor(1) as pool:
        with database.transaction() as connection:
            append_events(connection, [create_retry_attempted(2)])
            emitting = pool.submit(far.emit, create_one_event_of_each_type())
            wait_for_blocked_sessions(database, waiting=2)
        emitting.result(timeout=20)
    assert_log_holds(
        log,
        [create_retry_attempted(1)],
        [create_retry_attempted(2)],
        create_one_event_of_each_type(),
    )


def wait_for_blocked_sessions(database: Database, *, waiting: int) -> None:
    """Wait until so many sessions wait for a lock."""
    blocked = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with database.read_connection() as connection:
        while connection.execute(blocked).scalar_one() != waiting:
            pass


def test_invariant_10_unresolvable_batch_raises_an_unknown_outcome(
    log: PostgresAuditLog, proxy: PostgresProxy, proxied_database: Database
) -> None:
    far = open_log(evolve(proxied_database, resolve_s=0.3))
    proxy.cut_at(b"audit_append", Cut.AFTER_COMMIT)
    proxy.refuse()
    with pytest.raises(DatabaseError, match="it is unknown whether it took effect") as caught:
        far.emit(create_one_event_of_each_type())
    assert "once the server is back" in str(caught.value)
    proxy.refuse(refusing=False)
    assert_log_holds(log, create_one_event_of_each_type())


def test_batch_is_written_once_the_server_is_back(
    log: PostgresAuditLog, proxy: PostgresProxy, proxied_database: Database
) -> None:
    far = open_log(proxied_database)
    proxy.cut_at(b"audit_append", Cut.BEFORE_COMMIT)
    proxy.refuse()
    back = threading.Timer(0.4, lambda: proxy.refuse(refusing=False))
    back.start()
    far.emit(create_one_event_of_each_type())
    back.join()
    assert_log_holds(log, create_one_event_of_each_type())


def test_chain_continues_after_a_restart_and_raises_while_the_server_is_down(
    server: PostgresServerProcess, own: Database
) -> None:
    log = PostgresAuditLog(database=own)
    log.emit(create_one_event_of_each_type())
    server.restart("immediate")
    log.emit([create_retry_attempted(7)])
    server.stop()
    try:
        calls: list[Callable[[], object]] = [
            lambda: log.emit([create_retry_attempted(8)]),
            log.read_head,
        ]
        for call in calls:
            with pytest.raises(DatabaseError, match=r"cannot connect: .*; start the server"):
                call()
    finally:
        server.start()
    log.emit([create_retry_attempted(9)])
    assert_log_holds(
        log,
        create_one_event_of_each_type(),
        [create_retry_attempted(7)],
        [create_retry_attempted(9)],
    )
