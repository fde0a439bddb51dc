"""Audit events while the server restarts: kept, delivered later, in order, once."""

from pathlib import Path
from uuid import uuid4

from attrs import evolve
from support.audit_events import create_retry_attempted
from support.audit_log import assert_log_holds
from support.disk_faults import UNSYNCED
from support.nats_server import LOGGER
from support.postgres_server import PostgresServerProcess
from support.proxies import Cut, PostgresProxy

from tileferry.adapters.filesystem import FileAuditOutbox, find_waiting
from tileferry.adapters.memory import ManualClock
from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.application.audit_delivery import BufferedSink


def buffer(log: PostgresAuditLog, root: Path, clock: ManualClock) -> BufferedSink:
    return BufferedSink(
        sink=log,
        outbox=FileAuditOutbox(root=root, name="postgres-1", sink="postgres", calls=UNSYNCED),
        clock=clock,
        new_id=lambda: uuid4().hex,
        logger=LOGGER,
    )


def test_invariant_19_events_of_a_restart_are_delivered_in_order_and_once(
    server: PostgresServerProcess, own: Database, tmp_path: Path
) -> None:
    log, clock = PostgresAuditLog(database=own), ManualClock()
    sink = buffer(log, tmp_path, clock)
    events = [create_retry_attempted(number) for number in range(20)]
    for number, event in enumerate(events):
        if number in {5, 12}:
            server.stop("immediate")
        if number in {9, 15}:
            assert find_waiting(tmp_path)[0].events > 0
            server.start()
            clock.advance(30)
        sink.emit([event])
    assert find_waiting(tmp_path) == []
    assert_log_holds(log, events)


def test_invariant_10_group_with_unknown_outcome_is_delivered_once(
    log: PostgresAuditLog, proxy: PostgresProxy, proxied_database: Database, tmp_path: Path
) -> None:
    far = PostgresAuditLog(database=evolve(proxied_database, resolve_s=0.2))
    far.database.engine.connect().close()  # the pool has a connection now
    sink = buffer(far, tmp_path, ManualClock())
    events = [create_retry_attempted(number) for number in range(3)]
    proxy.cut_at(b"audit_append", Cut.AFTER_COMMIT)
    proxy.refuse()
    sink.emit(events[:1])  # written, but the answer is lost
    sink.emit(events[1:2])
    assert log.read_head().sequence == 1
    assert find_waiting(tmp_path)[0].events == 2
    # Another process, whose connection works, delivers them.
    later = buffer(log, tmp_path, ManualClock())
    later.emit(events[2:])
    assert_log_holds(log, events)
