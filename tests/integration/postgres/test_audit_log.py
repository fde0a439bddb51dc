"""The audit log in Postgres: chained by the database, as part of any transaction."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from support.audit_events import attempted, every_kind, used
from support.audit_log import check_holds, execute

from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.adapters.postgres.audit_log import _ABOUT, PAGE_ROWS, append
from tileferry.domain.audit import GENESIS, AuditEvent, ChainEntry, next_entry
from tileferry.domain.errors import DatabaseError

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
