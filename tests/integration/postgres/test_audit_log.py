"""The audit log in Postgres: chained by the database, and never written twice."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from support.audit_events import attempted, every_kind, used
from support.postgres_proxy import Cut, PostgresProxy
from support.postgres_server import OwnServer

from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.adapters.postgres.audit_log import _ABOUT, PAGE_ROWS, append
from tileferry.domain.audit import (
    GENESIS,
    AuditEvent,
    ChainEntry,
    ChainProblem,
    next_entry,
    verify_chain,
)
from tileferry.domain.errors import DatabaseError


@pytest.fixture
def log(database: Database) -> PostgresAuditLog:
    return PostgresAuditLog(database=database)


def execute(database: Database, statement: str) -> None:
    with database.transaction() as connection:
        connection.execute(text(statement))


def check_holds(log: PostgresAuditLog, *groups: Sequence[AuditEvent]) -> None:
    """Check that the log holds these groups and nothing else, and that its chain is sound."""
    entries = list(log.entries())
    expected = [event.canonical_bytes() for group in groups for event in group]
    assert [entry.body for entry in entries] == expected
    report = verify_chain(entries, expected_head=log.head())
    assert (report.problem, report.checked) == (None, len(expected))
    assert list(log.false_copies()) == []


# The chain


@given(groups=st.lists(st.lists(st.binary(max_size=60), min_size=1, max_size=5), max_size=4))
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_invariant_21_the_database_chains_as_the_domain_does(
    database: Database, log: PostgresAuditLog, groups: list[list[bytes]]
) -> None:
    head = log.head()
    after, expected = head.sequence, list[ChainEntry]()
    for bodies in groups:
        append_bodies(database, bodies)
        for body in bodies:
            expected.append(next_entry(head, body))
            head = expected[-1].head
    assert list(log.entries(after=after)) == expected
    assert log.head() == head


def append_bodies(database: Database, bodies: list[bytes]) -> None:
    statement = text(
        "SELECT audit_append(NULL, :bodies, array_fill('t'::text, ARRAY[:size]),"
        " array_fill(now(), ARRAY[:size]), array_fill(NULL::text, ARRAY[:size]),"
        " array_fill(NULL::text, ARRAY[:size]))"
    )
    with database.transaction() as connection:
        connection.execute(statement, {"bodies": bodies, "size": len(bodies)})


def test_a_log_of_several_pages_is_read_whole(log: PostgresAuditLog) -> None:
    events = [attempted(number, correlation_id="same") for number in range(2 * PAGE_ROWS + 1)]
    log.emit(events)
    check_holds(log, events)
    assert [entry.sequence for entry in log.entries_about("same")] == list(
        range(1, len(events) + 1)
    )
    full = [entry.sequence for entry in log.entries(after=PAGE_ROWS + 1)]
    assert full == list(range(PAGE_ROWS + 2, 2 * PAGE_ROWS + 2))


def test_what_entries_tell_of_is_found_through_an_index(
    database: Database, log: PostgresAuditLog
) -> None:
    log.emit([attempted(number) for number in range(3_000)])
    log.emit([used(number, f"key-{number}") for number in range(3_000)])
    execute(database, "ANALYZE audit_log")
    assert [entry.sequence for entry in log.entries_about("corr-77")] == [78]
    assert [entry.sequence for entry in log.entries_about("key-77")] == [3_078]
    asked = {"subject": "corr-77", "after": 0, "limit": PAGE_ROWS}
    with database.reading() as connection:
        plan = connection.execute(text(f"EXPLAIN {_ABOUT.text}"), asked).scalars().all()
    for index in ("audit_log_by_correlation", "audit_log_by_subject", "audit_log_pkey"):
        assert index in "\n".join(plan)


def test_the_first_and_the_last_moment_there_is_are_kept(log: PostgresAuditLog) -> None:
    times = [
        datetime.min.replace(tzinfo=UTC),
        datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    ]
    events = [evolve(attempted(1), timestamp=moment) for moment in times]
    log.emit(events)
    check_holds(log, events)


# As part of a transaction


def test_invariant_19_events_of_a_transaction_come_and_go_with_it(
    database: Database, log: PostgresAuditLog
) -> None:
    pin = text("INSERT INTO flight_pins VALUES ('F1', now())")

    def change(events: Sequence[AuditEvent], *, fails: bool) -> None:
        with database.transaction() as connection:
            connection.execute(pin)
            append(connection, events[:1])
            append(connection, [])
            append(connection, events[1:])
            if fails:
                connection.execute(text("SELECT 1 / 0"))

    events = every_kind()
    with pytest.raises(DatabaseError, match="division by zero"):
        change(events, fails=True)
    assert log.head() == GENESIS
    log.emit([attempted(1)])
    change(events, fails=False)
    check_holds(log, [attempted(1)], events)


def test_invariant_19_who_is_ended_while_writing_leaves_no_gap(
    database: Database, log: PostgresAuditLog
) -> None:
    log.emit([attempted(1)])

    def write_and_end() -> None:
        with database.transaction() as connection:
            append(connection, [attempted(2)])
            connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

    with pytest.raises(DatabaseError, match="terminating connection"):
        write_and_end()
    log.emit([attempted(3)])
    check_holds(log, [attempted(1)], [attempted(3)])


def test_a_group_that_cannot_be_written_leaves_nothing(
    database: Database, log: PostgresAuditLog
) -> None:
    log.emit([attempted(1)])
    # Somebody has put an entry where the second one of the group should go.
    execute(
        database,
        "ALTER TABLE audit_log DISABLE TRIGGER USER;"
        "INSERT INTO audit_log SELECT 3, hash, hash, body, event_type, now() FROM audit_log;"
        "ALTER TABLE audit_log ENABLE TRIGGER USER",
    )
    with pytest.raises(DatabaseError, match="audit_log_pkey"):
        log.emit([attempted(2), attempted(3)])
    assert log.head().sequence == 1


# Tampering


CHANGES = [
    "UPDATE audit_log SET body = body WHERE sequence = 2",
    "DELETE FROM audit_log WHERE sequence = 3",
    "DELETE FROM audit_log",
    "TRUNCATE audit_log",
    "DELETE FROM audit_head",
    "TRUNCATE audit_head",
    "INSERT INTO audit_head (one_row, sequence, hash) VALUES (false, 0, '')",
    "INSERT INTO audit_head (sequence, hash) VALUES (0, '')",
    "INSERT INTO audit_log SELECT 0, hash, hash, body, event_type, now() FROM audit_log",
    # What audit_append does, done by hand.
    "INSERT INTO audit_log SELECT 7, hash, hash, body, event_type, now() FROM audit_log LIMIT 1",
    "UPDATE audit_head SET (sequence, hash) = (SELECT sequence, hash FROM audit_log LIMIT 1)",
    "UPDATE audit_head SET sequence = sequence",
]


def test_invariant_21_the_database_refuses_to_change_what_is_written(
    database: Database, log: PostgresAuditLog
) -> None:
    log.emit(every_kind())
    for statement in CHANGES:
        with pytest.raises(DatabaseError, match="only ever appended to"):
            execute(database, statement)
    check_holds(log, every_kind())


def test_invariant_21_nobody_appends_by_hand_in_the_shadow_of_the_function(
    database: Database, log: PostgresAuditLog
) -> None:
    """What lets the function write ends with it, not with the transaction that called it."""

    def write_more(statement: str) -> None:
        with database.transaction() as connection:
            append(connection, [attempted(1)])
            connection.execute(text(statement))

    for statement in CHANGES:
        with pytest.raises(DatabaseError, match="only ever appended to"):
            write_more(statement)
    assert log.head() == GENESIS


ODD_ROWS = {
    "INSERT INTO audit_head VALUES (false, 0, sha256(''))": "audit_head_one_row",
    "INSERT INTO audit_head VALUES (true, 0, sha256(''))": "audit_head_pkey",
    "UPDATE audit_head SET sequence = -1": "audit_head_place",
    "UPDATE audit_head SET hash = ''": "audit_head_place",
    "INSERT INTO audit_log VALUES (0, '', '', '', '', now())": "audit_log_sequence",
}


def test_invariant_21_without_its_triggers_the_log_still_has_its_constraints(
    database: Database, log: PostgresAuditLog
) -> None:
    log.emit(every_kind())
    for table in ("audit_log", "audit_head"):
        execute(database, f"ALTER TABLE {table} DISABLE TRIGGER USER")
    for statement, constraint in ODD_ROWS.items():
        with pytest.raises(DatabaseError, match=constraint):
            execute(database, statement)
    check_holds(log, every_kind())


EDITS = {
    "body = set_byte(body, 5, get_byte(body, 5) # 1)": ChainProblem.EDITED,
    "body = body || ' '": ChainProblem.EDITED,
    "body = (SELECT body FROM audit_log WHERE sequence = 1)": ChainProblem.EDITED,
    "hash = set_byte(hash, 0, get_byte(hash, 0) # 128)": ChainProblem.EDITED,
    "hash = ''": ChainProblem.EDITED,
    "previous_hash = set_byte(previous_hash, 31, get_byte(previous_hash, 31) # 1)": (
        ChainProblem.NOT_LINKED
    ),
    "sequence = 100": ChainProblem.GAP,
    # An edit with a hash to match breaks the chain at the next entry.
    "body = '{}', hash = sha256(convert_to('tileferry-audit-v1' || chr(10) || sequence || chr(10)"
    " || encode(previous_hash, 'hex') || chr(10) || '{}', 'UTF8'))": ChainProblem.NOT_LINKED,
}
DELETIONS = {
    "sequence = 1": (ChainProblem.GAP, 0),
    "sequence = 3": (ChainProblem.GAP, 2),
    "sequence = 6": (ChainProblem.CUT_OFF, 5),
    "sequence > 2": (ChainProblem.CUT_OFF, 2),
    "true": (ChainProblem.CUT_OFF, 0),
}
FALSE_COPIES = [
    "event_type = 'retry_attempt'",
    "occurred_at = occurred_at + interval '1 microsecond'",
    "correlation_id = NULL",
    "correlation_id = 'corr-2'",
    "subject = 'another'",
    "subject = NULL",
    "body = '{}'",
    "body = '['",
]


@contextmanager
def tampered(log: PostgresAuditLog, statement: str) -> Iterator[None]:
    """Let somebody change the log who may drop its triggers; afterwards it is as it was."""
    guard = "ALTER TABLE audit_log {} TRIGGER USER"
    for step in ("CREATE TABLE kept AS TABLE audit_log", guard.format("DISABLE"), statement):
        execute(log.database, step)
    yield
    for step in ("TRUNCATE audit_log", "INSERT INTO audit_log TABLE kept", "DROP TABLE kept"):
        execute(log.database, step)
    execute(log.database, guard.format("ENABLE"))
    check_holds(log, every_kind())


def test_invariant_21_an_edit_behind_the_trigger_is_found(log: PostgresAuditLog) -> None:
    log.emit(every_kind())
    for edit, problem in EDITS.items():
        with tampered(log, f"UPDATE audit_log SET {edit} WHERE sequence = 3"):  # noqa: S608  # ours
            report = verify_chain(log.entries(), expected_head=log.head())
            assert report.problem is problem, edit
            assert report.checked in {2, 3}


def test_invariant_21_a_deletion_behind_the_trigger_is_found(log: PostgresAuditLog) -> None:
    log.emit(every_kind())
    for gone, found in DELETIONS.items():
        with tampered(log, f"DELETE FROM audit_log WHERE {gone}"):  # noqa: S608  # ours
            report = verify_chain(log.entries(), expected_head=log.head())
            assert (report.problem, report.checked) == found, gone


def test_invariant_21_a_copy_that_belies_its_body_is_found(log: PostgresAuditLog) -> None:
    log.emit(every_kind())
    for edit in FALSE_COPIES:
        with tampered(log, f"UPDATE audit_log SET {edit} WHERE sequence = 3"):  # noqa: S608  # ours
            assert list(log.false_copies()) == [3], edit
            assert list(log.false_copies(after=3)) == []


def test_without_its_head_a_log_is_neither_read_nor_continued(
    database: Database, log: PostgresAuditLog
) -> None:
    log.emit([attempted(1)])
    execute(database, "ALTER TABLE audit_head DISABLE TRIGGER USER")
    execute(database, "DELETE FROM audit_head")
    with pytest.raises(DatabaseError, match="the head of the audit log is missing"):
        log.head()
    with pytest.raises(DatabaseError, match="the chain cannot be continued"):
        log.emit([attempted(2)])
    assert len(list(log.entries())) == 1


# Connections that are lost


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
