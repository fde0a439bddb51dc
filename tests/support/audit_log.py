"""What a test may expect of the audit log in Postgres, and do to it."""

from collections.abc import Sequence

from sqlalchemy import text

from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.domain.audit import AuditEvent, verify_chain


def execute(database: Database, *statements: str) -> None:
    """Run all of them in one transaction."""
    with database.transaction() as connection:
        for statement in statements:
            connection.execute(text(statement))


def check_holds(log: PostgresAuditLog, *groups: Sequence[AuditEvent]) -> None:
    """Check that the log holds these groups and nothing else, and that its chain is sound."""
    entries = list(log.entries())
    expected = [event.canonical_bytes() for group in groups for event in group]
    assert [entry.body for entry in entries] == expected
    report = verify_chain(entries, expected_head=log.head())
    assert (report.problem, report.checked) == (None, len(expected))
    assert list(log.false_copies()) == []
