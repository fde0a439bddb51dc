"""``tileferry audit verify``: whatever somebody with all rights changes is found."""

import pytest
from support.audit_log import (
    create_hour_of_calls,
    run_audit_verify,
    store_events,
    tamper_with_audit_log,
)
from support.operator import Operator, run_in_process

from tileferry.adapters.postgres import Database


def test_invariant_21_intact_log_is_verified(auditor: Operator, database: Database) -> None:
    log = store_events(database, create_hour_of_calls())
    head = f"{log.read_head().sequence}:{log.read_head().hash}"
    ran = auditor.run("audit", "verify")
    assert (ran.code, ran.err) == (0, "")
    assert f"head {head}\n" in ran.out
    assert "intact" in ran.out
    body = run_in_process("audit", "verify", "--expect-head", head, "--json").json
    assert body["schema"] == "tileferry.audit.verify.v1"
    assert (body["intact"], body["checked"], body["head"]) == (True, log.read_head().sequence, head)


@pytest.mark.parametrize("column", ["body", "hash", "previous_hash"])
@pytest.mark.usefixtures("auditor")
def test_invariant_21_flipped_byte_is_detected(database: Database, column: str) -> None:
    log = store_events(database, create_hour_of_calls())
    size = len(next(iter(log.iter_entries())).body) if column == "body" else 32
    for sequence, byte in [(1, 0), (1, size - 1), (7, size // 2), (log.read_head().sequence, 3)]:
        flip = (
            f"UPDATE audit_log SET {column} = set_byte({column}, {byte},"  # noqa: S608  # ours
            f" get_byte({column}, {byte}) # 1) WHERE sequence = {sequence}"
        )
        with tamper_with_audit_log(database, flip):
            ran = run_audit_verify()
        assert ran.code == 3
        assert (ran.json["intact"], ran.json["broken_at"]) == (False, sequence)
        assert ran.json["checked"] == sequence - 1
        assert ran.json["problem"] == ("not_linked" if column == "previous_hash" else "edited")
    assert run_audit_verify().code == 0


@pytest.mark.parametrize(
    ("statement", "problem", "broken_at", "checked"),
    [
        ("DELETE FROM audit_log WHERE sequence = 5", "gap", 6, 4),
        ("DELETE FROM audit_log WHERE sequence = 1", "gap", 2, 0),
        ("UPDATE audit_log SET sequence = sequence + 1000 WHERE sequence = 5", "gap", 6, 4),
        ("DELETE FROM audit_log WHERE sequence > 20", "cut_off", None, 20),
        ("DELETE FROM audit_log", "cut_off", None, 0),
    ],
)
@pytest.mark.usefixtures("auditor")
def test_invariant_21_missing_entries_are_detected(
    database: Database,
    statement: str,
    problem: str,
    broken_at: int | None,
    checked: int,
) -> None:
    store_events(database, create_hour_of_calls())
    with tamper_with_audit_log(database, statement):
        ran = run_audit_verify()
        shown = run_in_process("audit", "verify")
    body = ran.json
    assert (ran.code, body["problem"]) == (3, problem)
    assert (body["broken_at"], body["checked"]) == (broken_at, checked)
    assert shown.code == 3
    assert body["explanation"] in " ".join(shown.out.split())


@pytest.mark.usefixtures("auditor")
def test_invariant_21_truncation_with_moved_head_is_detected_by_noted_head(
    database: Database,
) -> None:
    log = store_events(database, create_hour_of_calls())
    noted = f"{log.read_head().sequence}:{log.read_head().hash}"
    cut = "DELETE FROM audit_log WHERE sequence > 20"
    move = (
        "UPDATE audit_head SET (sequence, hash) ="
        " (SELECT sequence, hash FROM audit_log WHERE sequence = 20)"
    )
    with tamper_with_audit_log(database, cut, move):
        assert run_audit_verify().code == 0
        ran = run_in_process("audit", "verify", "--expect-head", noted)
    assert ran.code == 3
    assert "does not contain the expected head" in " ".join(ran.out.split())


FORGED = (
    "INSERT INTO audit_log SELECT sequence + 1, hash, sha256(convert_to('tileferry-audit-v1'"
    " || chr(10) || sequence + 1 || chr(10) || encode(hash, 'hex') || chr(10), 'UTF8') || body),"
    " body, event_type, occurred_at, correlation_id, subject FROM audit_log"
    " ORDER BY sequence DESC LIMIT 1"
)
MOVED = (
    "UPDATE audit_head SET (sequence, hash) ="
    " (SELECT sequence, hash FROM audit_log WHERE sequence = 10)"
)


@pytest.mark.parametrize(
    "statement",
    [
        FORGED,
        MOVED,
        "UPDATE audit_head SET sequence = 0",
        "UPDATE audit_head SET sequence = 0, hash = decode(repeat('00', 32), 'hex')",
        "UPDATE audit_head SET hash = sha256('')",
    ],
)
@pytest.mark.usefixtures("auditor")
def test_invariant_21_forged_entry_and_moved_head_are_detected(
    database: Database, statement: str
) -> None:
    log = store_events(database, create_hour_of_calls())
    sound = log.read_head().sequence + (statement is FORGED)
    with tamper_with_audit_log(database, statement):
        ran = run_audit_verify()
        shown = run_in_process("audit", "verify")
    assert (ran.code, ran.json["problem"], ran.json["checked"]) == (3, "head_moved", sound)
    assert "the stored head does not match the last entry" in " ".join(shown.out.split())
    assert run_audit_verify().code == 0


@pytest.mark.usefixtures("auditor")
def test_index_column_not_matching_entry_is_detected(database: Database) -> None:
    store_events(database, create_hour_of_calls())
    hide = "UPDATE audit_log SET correlation_id = 'x' WHERE sequence = 4"
    with tamper_with_audit_log(database, hide):
        ran = run_audit_verify()
    assert (ran.code, ran.json["problem"], ran.json["misfiled_entries"]) == (3, None, [4])


@pytest.mark.usefixtures("auditor")
def test_invalid_expected_head_is_rejected() -> None:
    ran = run_in_process("audit", "verify", "--expect-head", "12")
    assert (ran.code, ran.out) == (2, "")
    assert "--expect-head: is not a valid head (got '12')" in ran.err
