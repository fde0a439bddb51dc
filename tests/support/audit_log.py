"""What a test may expect of the audit log in Postgres, and do to it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from sqlalchemy import text

from support.audit_events import create_call_events
from support.operator import CommandResult, run_in_process
from tileferry.adapters.memory import ManualClock
from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.domain.audit import AuditEvent, verify_chain
from tileferry.domain.retry import Retryable


def execute(database: Database, *statements: str) -> None:
    """Run all of them in one transaction."""
    with database.transaction() as connection:
        for statement in statements:
            connection.execute(text(statement))


def assert_log_holds(log: PostgresAuditLog, *groups: Sequence[AuditEvent]) -> None:
    """Check that the log holds these groups and nothing else, and that its chain is sound."""
    entries = list(log.iter_entries())
    expected = [event.canonical_bytes() for group in groups for event in group]
    assert [entry.body for entry in entries] == expected
    report = verify_chain(entries, expected_head=log.read_head())
    assert (report.problem, report.checked) == (None, len(expected))
    assert list(log.find_false_copies()) == []


def create_hour_of_calls() -> list[AuditEvent]:
    """Return 10 calls: 6 that succeed in the end, 4 that do not; 20 retries in one minute."""
    started = (datetime.now(UTC) - timedelta(minutes=30)).replace(second=0, microsecond=0)
    events: list[AuditEvent] = []
    for n in range(10):
        failures = [Retryable()] * (2 if n < 6 else 3)
        clock = ManualClock(started.timestamp())
        events += create_call_events(
            failures, clock=clock, key=f"key-{n}", correlation_id=f"corr-{n}"
        )
    return events


def store_events(database: Database, events: Sequence[AuditEvent]) -> PostgresAuditLog:
    """Write the events into the log of that database."""
    log = PostgresAuditLog(database=database)
    log.emit(events)
    return log


@contextmanager
def tamper_with_audit_log(database: Database, *statements: str) -> Iterator[None]:
    """Change rows as only somebody with all rights can, and put everything back afterwards."""
    tables = ("audit_log", "audit_head")
    for table in tables:
        execute(database, f"CREATE TABLE kept_{table} AS TABLE {table}")
        execute(database, f"ALTER TABLE {table} DISABLE TRIGGER USER")
    execute(database, *statements)
    yield
    for table in tables:
        execute(database, f"TRUNCATE {table}", f"INSERT INTO {table} TABLE kept_{table}")
        execute(database, f"ALTER TABLE {table} ENABLE TRIGGER USER", f"DROP TABLE kept_{table}")


def run_audit_verify() -> CommandResult:
    """Run ``tileferry audit verify`` here."""
    return run_in_process("audit", "verify", "--json")
