"""The audit log in Postgres: chained by the database, as part of any transaction."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from support.audit_events import (
    create_idempotency_used,
    create_one_event_of_each_type,
    create_retry_attempted,
)
from support.audit_log import assert_log_holds, execute

from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.adapters.postgres.audit_log import _ABOUT, PAGE_ROWS, append_events
from tileferry.domain.audit import GENESIS, AuditEvent, ChainEntry, build_next_entry
from tileferry.domain.errors import DatabaseError

# The chain


@given(groups=st.lists(st.lists(st.binary(max_size=60), min_size=1, max_size=5), max_size=4))
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_invariant_21_database_and_domain_compute_the_same_chain(
    database: Database, log: PostgresAuditLog, groups: list[list[bytes]]
) -> None:
    head = log.read_head()
    after, expected = head.sequence, list[ChainEntry]()
    for bodies in groups:
        append_bodies(database, bodies)
        for body in bodies:
            expected.append(build_next_entry(head, body))
            head = expected[-1].head
    assert list(log.iter_entries(after=after)) == expected
    assert log.read_head() == head


def append_bodies(database: Database, bodies: list[bytes]) -> None:
    statement = text(
        "SELECT audit_append(NULL, :bodies, array_fill('t'::text, ARRAY[:size]),"
        " array_fill(now(), ARRAY[:size]), array_fill(NULL::text, ARRAY[:size]),"
        " array_fill(NULL::text, ARRAY[:size]))"
    )
    with database.transaction() as connection:
        connection.execute(statement, {"bodies": bodies, "size": len(bodies)})


def test_log_of_several_pages_is_read_completely(log: PostgresAuditLog) -> None:
    events = [
        create_retry_attempted(number, correlation_id="same") for number in range(2 * PAGE_ROWS + 1)
    ]
    log.emit(events)
    assert_log_holds(log, events)
    assert [entry.sequence for entry in log.find_entries("same")] == list(range(1, len(events) + 1))
    full = [entry.sequence for entry in log.iter_entries(after=PAGE_ROWS + 1)]
    assert full == list(range(PAGE_ROWS + 2, 2 * PAGE_ROWS + 2))


def test_entries_about_a_subject_use_an_index(database: Database, log: PostgresAuditLog) -> None:
    log.emit([create_retry_attempted(number) for number in range(3_000)])
    log.emit([create_idempotency_used(number, f"key-{number}") for number in range(3_000)])
    execute(database, "ANALYZE audit_log")
    assert [entry.sequence for entry in log.find_entries("corr-77")] == [78]
    assert [entry.sequence for entry in log.find_entries("key-77")] == [3_078]
    asked = {"subject": "corr-77", "after": 0, "limit": PAGE_ROWS}
    with database.read_connection() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN {_ABOUT}", asked).scalars().all()
    for index in ("audit_log_by_correlation", "audit_log_by_subject", "audit_log_pkey"):
        assert index in "\n".join(plan)


def test_minimum_and_maximum_timestamps_are_stored(log: PostgresAuditLog) -> None:
    times = [
        datetime.min.replace(tzinfo=UTC),
        datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    ]
    events = [evolve(create_retry_attempted(1), timestamp=moment) for moment in times]
    log.emit(events)
    assert_log_holds(log, events)


# As part of a transaction


def test_invariant_19_events_commit_and_roll_back_with_their_transaction(
    database: Database, log: PostgresAuditLog
) -> None:
    pin = text("INSERT INTO flight_pins VALUES ('F1', now())")

    def change(events: Sequence[AuditEvent], *, fails: bool) -> None:
        with database.transaction() as connection:
            connection.execute(pin)
            append_events(connection, events[:1])
            append_events(connection, [])
            append_events(connection, events[1:])
            if fails:
                connection.execute(text("SELECT 1 / 0"))

    events = create_one_event_of_each_type()
    with pytest.raises(DatabaseError, match="division by zero"):
        change(events, fails=True)
    assert log.read_head() == GENESIS
    log.emit([create_retry_attempted(1)])
    change(events, fails=False)
    assert_log_holds(log, [create_retry_attempted(1)], events)


def test_invariant_19_terminated_writer_leaves_no_gap(
    database: Database, log: PostgresAuditLog
) -> None:
    log.emit([create_retry_attempted(1)])

    def write_and_end() -> None:
        with database.transaction() as connection:
            append_events(connection, [create_retry_attempted(2)])
            connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

    with pytest.raises(DatabaseError, match="terminating connection"):
        write_and_end()
    log.emit([create_retry_attempted(3)])
    assert_log_holds(log, [create_retry_attempted(1)], [create_retry_attempted(3)])


def test_failed_batch_writes_nothing(database: Database, log: PostgresAuditLog) -> None:
    log.emit([create_retry_attempted(1)])
    # Somebody has put an entry where the second one of the group should go.
    execute(
        database,
        "ALTER TABLE audit_log DISABLE TRIGGER USER;"
        "INSERT INTO audit_log SELECT 3, hash, hash, body, event_type, now() FROM audit_log;"
        "ALTER TABLE audit_log ENABLE TRIGGER USER",
    )
    with pytest.raises(DatabaseError, match="audit_log_pkey"):
        log.emit([create_retry_attempted(2), create_retry_attempted(3)])
    assert log.read_head().sequence == 1
