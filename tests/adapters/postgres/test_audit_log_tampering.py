"""Changes to the audit log: the database refuses them, and those behind its back are found."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import text
from support.audit_events import create_one_event_of_each_type, create_retry_attempted
from support.audit_log import assert_log_holds, execute

from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.adapters.postgres.audit_log import append_events
from tileferry.domain.audit import GENESIS, ChainProblem, verify_chain
from tileferry.domain.errors import DatabaseError

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


def test_invariant_21_database_refuses_to_change_written_entries(
    database: Database, log: PostgresAuditLog
) -> None:
    log.emit(create_one_event_of_each_type())
    for statement in CHANGES:
        with pytest.raises(DatabaseError, match="only ever appended to"):
            execute(database, statement)
    assert_log_holds(log, create_one_event_of_each_type())


def test_invariant_21_manual_append_after_audit_append_is_refused(
    database: Database, log: PostgresAuditLog
) -> None:
    """What lets the function write ends with it, not with the transaction that called it."""

    def write_more(statement: str) -> None:
        with database.transaction() as connection:
            append_events(connection, [create_retry_attempted(1)])
            connection.execute(text(statement))

    for statement in CHANGES:
        with pytest.raises(DatabaseError, match="only ever appended to"):
            write_more(statement)
    assert log.read_head() == GENESIS


ODD_ROWS = {
    "INSERT INTO audit_head VALUES (false, 0, sha256(''))": "audit_head_one_row",
    "INSERT INTO audit_head VALUES (true, 0, sha256(''))": "audit_head_pkey",
    "UPDATE audit_head SET sequence = -1": "audit_head_place",
    "UPDATE audit_head SET hash = ''": "audit_head_place",
    "INSERT INTO audit_log VALUES (0, '', '', '', '', now())": "audit_log_sequence",
}


def test_invariant_21_constraints_hold_without_triggers(
    database: Database, log: PostgresAuditLog
) -> None:
    log.emit(create_one_event_of_each_type())
    for table in ("audit_log", "audit_head"):
        execute(database, f"ALTER TABLE {table} DISABLE TRIGGER USER")
    for statement, constraint in ODD_ROWS.items():
        with pytest.raises(DatabaseError, match=constraint):
            execute(database, statement)
    assert_log_holds(log, create_one_event_of_each_type())


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
LAST = len(create_one_event_of_each_type())
DELETIONS = {
    "sequence = 1": (ChainProblem.GAP, 0),
    "sequence = 3": (ChainProblem.GAP, 2),
    "sequence = (SELECT max(sequence) FROM kept)": (ChainProblem.CUT_OFF, LAST - 1),
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
def tamper(log: PostgresAuditLog, statement: str) -> Iterator[None]:
    """Let somebody change the log who may drop its triggers; afterwards it is as it was."""
    guard = "ALTER TABLE audit_log {} TRIGGER USER"
    for step in ("CREATE TABLE kept AS TABLE audit_log", guard.format("DISABLE"), statement):
        execute(log.database, step)
    yield
    for step in ("TRUNCATE audit_log", "INSERT INTO audit_log TABLE kept", "DROP TABLE kept"):
        execute(log.database, step)
    execute(log.database, guard.format("ENABLE"))
    assert_log_holds(log, create_one_event_of_each_type())


def test_invariant_21_edit_with_disabled_triggers_is_detected(log: PostgresAuditLog) -> None:
    log.emit(create_one_event_of_each_type())
    for edit, problem in EDITS.items():
        with tamper(log, f"UPDATE audit_log SET {edit} WHERE sequence = 3"):  # noqa: S608  # ours
            report = verify_chain(log.iter_entries(), expected_head=log.read_head())
            assert report.problem is problem, edit
            assert report.checked in {2, 3}


def test_invariant_21_deletion_with_disabled_triggers_is_detected(log: PostgresAuditLog) -> None:
    log.emit(create_one_event_of_each_type())
    for gone, found in DELETIONS.items():
        with tamper(log, f"DELETE FROM audit_log WHERE {gone}"):  # noqa: S608  # ours
            report = verify_chain(log.iter_entries(), expected_head=log.read_head())
            assert (report.problem, report.checked) == found, gone


def test_invariant_21_column_that_contradicts_the_body_is_detected(log: PostgresAuditLog) -> None:
    log.emit(create_one_event_of_each_type())
    for edit in FALSE_COPIES:
        with tamper(log, f"UPDATE audit_log SET {edit} WHERE sequence = 3"):  # noqa: S608  # ours
            assert list(log.find_false_copies()) == [3], edit
            assert list(log.find_false_copies(after=3)) == []


def test_log_without_its_head_cannot_be_read_or_continued(
    database: Database, log: PostgresAuditLog
) -> None:
    log.emit([create_retry_attempted(1)])
    execute(database, "ALTER TABLE audit_head DISABLE TRIGGER USER")
    execute(database, "DELETE FROM audit_head")
    with pytest.raises(DatabaseError, match="the head of the audit log is missing"):
        log.read_head()
    with pytest.raises(DatabaseError, match="the chain cannot be continued"):
        log.emit([create_retry_attempted(2)])
    assert len(list(log.iter_entries())) == 1
