"""A history in the audit log, and somebody with all rights who changes it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from support.audit_log import execute
from support.operator import Ran, run_here
from support.retry_histories import call_events
from tileferry.adapters.memory import ManualClock
from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.domain.audit import AuditEvent
from tileferry.domain.retry import Retryable


def an_hour_of_calls() -> list[AuditEvent]:
    """Return 10 calls: 6 that succeed in the end, 4 that do not; 20 retries in one minute."""
    started = (datetime.now(UTC) - timedelta(minutes=30)).replace(second=0, microsecond=0)
    events: list[AuditEvent] = []
    for n in range(10):
        failures = [Retryable()] * (2 if n < 6 else 3)
        clock = ManualClock(started.timestamp())
        events += call_events(failures, clock=clock, key=f"key-{n}", correlation_id=f"corr-{n}")
    return events


def stored(database: Database, events: Sequence[AuditEvent]) -> PostgresAuditLog:
    """Write the events into the log of that database."""
    log = PostgresAuditLog(database=database)
    log.emit(events)
    return log


@contextmanager
def behind_the_trigger(database: Database, *statements: str) -> Iterator[None]:
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


def verified() -> Ran:
    """Run ``tileferry audit verify`` here."""
    return run_here("audit", "verify", "--json")
