"""The audit log over connections that are lost: never written twice."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from sqlalchemy import text
from support.audit_events import attempted, every_kind
from support.audit_log import check_holds
from support.postgres_proxy import Cut, PostgresProxy
from support.postgres_server import OwnServer

from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.adapters.postgres.audit_log import append
from tileferry.domain.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable


def through(cut_off: Database) -> PostgresAuditLog:
    """A log behind the proxy, with a connection that is made already."""
    log = PostgresAuditLog(database=cut_off)
    log.head()
    return log


def test_a_group_costs_one_round_trip(
    log: PostgresAuditLog, cut_off: Database, proxy: PostgresProxy
) -> None:
    far = through(cut_off)
    before = proxy.round_trips
    far.emit([attempted(number) for number in range(200)])
    assert proxy.round_trips - before == 1
    assert log.head().sequence == 200


@pytest.mark.parametrize("cut", [Cut.BEFORE_COMMIT, Cut.AFTER_COMMIT, Cut.UNNOTICED, Cut.DELIVERED])
def test_invariant_10_a_group_is_written_once_wherever_its_connection_ends(
    log: PostgresAuditLog, cut_off: Database, proxy: PostgresProxy, cut: Cut
) -> None:
    far = through(cut_off)
    proxy.cut_at(b"audit_append", cut)
    far.emit(every_kind())
    far.emit(every_kind())
    assert proxy.cuts == 1
    check_holds(log, every_kind(), every_kind())


def test_invariant_10_the_first_try_may_still_be_waiting_when_the_second_comes(
    database: Database, log: PostgresAuditLog, cut_off: Database, proxy: PostgresProxy
) -> None:
    far = through(cut_off)
    log.emit([attempted(1)])
    proxy.cut_at(b"audit_append", Cut.DELIVERED)
    with ThreadPoolExecutor(1) as pool:
        with database.transaction() as connection:
            append(connection, [attempted(2)])
            emitting = pool.submit(far.emit, every_kind())
            wait_until(database, waiting=2)
        emitting.result(timeout=20)
    check_holds(log, [attempted(1)], [attempted(2)], every_kind())


def wait_until(database: Database, *, waiting: int) -> None:
    """Wait until so many sessions wait for a lock."""
    blocked = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with database.reading() as connection:
        while connection.execute(blocked).scalar_one() != waiting:
            pass


def test_invariant_10_a_group_of_which_nobody_can_tell_is_neither_success_nor_failure(
    log: PostgresAuditLog, proxy: PostgresProxy, cut_off: Database
) -> None:
    far = through(evolve(cut_off, resolve_s=0.3))
    proxy.cut_at(b"audit_append", Cut.AFTER_COMMIT)
    proxy.refuse()
    with pytest.raises(DatabaseError, match="does not say whether it counted") as caught:
        far.emit(every_kind())
    assert "once the server is back" in str(caught.value)
    proxy.refuse(refusing=False)
    check_holds(log, every_kind())


def test_a_group_waits_for_a_server_that_comes_back(
    log: PostgresAuditLog, proxy: PostgresProxy, cut_off: Database
) -> None:
    far = through(cut_off)
    proxy.cut_at(b"audit_append", Cut.BEFORE_COMMIT)
    proxy.refuse()
    back = threading.Timer(0.4, lambda: proxy.refuse(refusing=False))
    back.start()
    far.emit(every_kind())
    back.join()
    check_holds(log, every_kind())


def test_the_chain_goes_on_after_a_restart_and_says_so_when_there_is_no_server(
    server: OwnServer, own: Database
) -> None:
    log = PostgresAuditLog(database=own)
    log.emit(every_kind())
    server.restart("immediate")
    log.emit([attempted(7)])
    server.stop()
    try:
        calls: list[Callable[[], object]] = [lambda: log.emit([attempted(8)]), log.head]
        for call in calls:
            with pytest.raises(DatabaseError, match=r"cannot be reached: .*; start the server"):
                call()
    finally:
        server.start()
    log.emit([attempted(9)])
    check_holds(log, every_kind(), [attempted(7)], [attempted(9)])
