"""``tileferry audit``, run as an operator runs it, against a real database."""

import json
import re
import signal
import subprocess
from datetime import UTC, datetime

import pytest
from attrs import evolve
from support import contracts
from support.audit_events import create_call_events
from support.audit_log import create_hour_of_calls, execute, run_audit_verify, store_events
from support.operator import CommandResult, Operator, run_in_process

from tileferry.adapters.memory import ManualClock
from tileferry.adapters.postgres import Database
from tileferry.domain.audit import IdempotencyAction, IdempotencyUsed, RetryAttempted, StateChanged
from tileferry.domain.retry import Final, RetryAt, RetryCategory

HOSTILE = "\x1b[31m[bold]red\nnext\u202egpj"


# tail


@pytest.mark.usefixtures("auditor")
def test_tail_shows_one_line_per_entry(database: Database) -> None:
    store_events(database, create_hour_of_calls())
    ran = run_in_process("audit", "tail", "-n", "2")
    assert (ran.code, ran.err) == (0, "")
    retry, gave_up = ran.out.splitlines()
    assert "retry" in retry
    assert "2/3" in retry
    assert "API_REQUEST GET tile: TimeoutError: too slow" in retry
    assert "gave up" in gave_up
    assert "3/3" in gave_up


@pytest.mark.usefixtures("auditor")
def test_tail_filters_by_category_and_event_type(database: Database) -> None:
    now = datetime.now(UTC)
    use = IdempotencyUsed(
        timestamp=now,
        retry_category=RetryCategory.KV_PUT,
        operation="Store state",
        idempotency_key="key-1",
        action=IdempotencyAction.HIT,
    )
    store_events(database, [use, *create_hour_of_calls()])
    assert run_in_process("audit", "tail", "--category", "kv_put").out.count("\n") == 1
    body = run_in_process("audit", "tail", "--event-type", "retry_exhausted", "--json").json
    assert body["schema"] == "tileferry.audit.tail.v1"
    assert [entry["event"]["event_type"] for entry in body["entries"]] == ["retry_exhausted"] * 4
    none = run_in_process("audit", "tail", "--category", "KV_PUT", "--event-type", "retry_attempt")
    assert (none.code, none.out) == (0, "")


@pytest.mark.usefixtures("auditor")
def test_tail_and_replay_escape_control_characters(database: Database) -> None:
    change = StateChanged(
        timestamp=datetime.now(UTC),
        subject=HOSTILE,
        transition="claim",
        from_status="discovered",
        to_status="processing",
        actor="worker",
        reason=HOSTILE,
    )
    store_events(database, [change])
    for command in ("tail", "replay"):
        ran = run_in_process("audit", command, *(["1"] if command == "replay" else []))
        assert "\\x1b[31m[bold]red\\nnext\\u202egpj" in ran.out
        assert not set("\x1b\u202e") & set(ran.out)


def test_tail_follow_prints_new_entries_until_interrupted(
    auditor: Operator, database: Database
) -> None:
    events = create_hour_of_calls()
    log = store_events(database, events[:1])
    following = subprocess.Popen(  # noqa: S603  # our own command
        [*auditor.command, "audit", "tail", "--follow", "--json"],
        env=auditor.environment(PYTHONUNBUFFERED="1"),
        cwd=auditor.home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None
    try:
        assert contracts.parse_output(following.stdout.readline())["sequence"] == 1
        log.emit(events[1:3])
        assert contracts.parse_output(following.stdout.readline())["sequence"] == 2
        third = contracts.parse_output(following.stdout.readline())
        assert (third["schema"], third["sequence"]) == ("tileferry.audit.entry.v1", 3)
        following.send_signal(signal.SIGINT)
        out, err = following.communicate(timeout=30)
    finally:
        following.kill()
        following.wait()
    assert (following.returncode, out) == (130, "")
    assert "Traceback" not in err


# stats


def test_stats_prints_totals_and_chart(auditor: Operator, database: Database) -> None:
    store_events(database, create_hour_of_calls())
    ran = auditor.run("audit", "stats")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    (row,) = (line for line in lines if line.startswith("API_REQUEST") and "%" in line)
    assert row.split()[:6] == ["API_REQUEST", "10", "30", "60%", "3.0", "4"]
    assert "█" in ran.out
    assert max(map(len, lines)) <= 80


@pytest.mark.usefixtures("auditor")
def test_stats_json(database: Database) -> None:
    store_events(database, create_hour_of_calls())
    body = run_in_process("audit", "stats", "--since", "1h", "--json").json
    assert body["schema"] == "tileferry.audit.stats.v1"
    figures = body["categories"]["RETRY_API_REQUEST"]
    assert (figures["total_attempts"], figures["retried_calls"]) == (30, 10)
    assert (figures["success_rate"], figures["mean_attempts"]) == (0.6, 3.0)
    assert figures["retries_per_minute"] == pytest.approx(20 / 60)
    assert figures["busiest_minute_retries"] == 20
    assert (figures["given_up"], body["alerts"]) == (4, [])
    assert run_in_process("audit", "stats", "--since", "5m", "--json").json["events"] == 0
    assert "No retries." in run_in_process("audit", "stats", "--since", "5m").out


def test_spec2_high_retry_rate_raises_alert(auditor: Operator, database: Database) -> None:
    store_events(database, create_hour_of_calls())
    ran = run_in_process("audit", "stats", "--alert-rate", "19/min")
    assert ran.code == 3
    assert "ALERT  API_REQUEST: 20 retries in the minute" in ran.out
    assert run_in_process("audit", "stats", "--alert-rate", "20/min").code == 0
    auditor.write_config("[tileferry.audit]\nalert_retries_per_minute = 5\n")
    body = run_in_process("audit", "stats", "--json")
    assert (body.code, body.json["alerts"][0]["threshold_per_minute"]) == (3, 5)
    auditor.write_config(
        "[tileferry.audit]\nalert_retries_per_minute = 5\n"
        "[tileferry.retry.API_REQUEST]\nalert_retries_per_minute = 100\n"
    )
    assert run_in_process("audit", "stats").code == 0


@pytest.mark.parametrize("rate", ["nan", "inf/min", "-1", "many", ""])
@pytest.mark.usefixtures("auditor")
def test_invalid_alert_rate_is_rejected(rate: str) -> None:
    ran = run_in_process("audit", "stats", "--alert-rate", rate)
    assert (ran.code, ran.out) == (2, "")
    assert f"--alert-rate: is not a rate (got {rate!r}); use retries per minute" in ran.err


# replay


def test_replay_recomputes_each_decision(auditor: Operator, database: Database) -> None:
    store_events(database, create_hour_of_calls())
    ran = auditor.run_in_process("audit", "replay", "corr-9")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count("decided") == 3
    waits = re.findall(r"decided   wait (\S+) s", ran.out)
    assert waits
    assert all(len(wait.partition(".")[2]) <= 3 for wait in waits)
    assert "give up after attempt 3: all attempts are used up" in ran.out
    assert "3 decisions recomputed, all identical" in ran.out
    body = run_in_process("audit", "replay", "1", "--json").json
    assert body["schema"] == "tileferry.audit.replay.v1"
    assert (body["same"], body["decisions"]) == (True, 1)
    (entry,) = body["entries"]
    assert entry["recomputed"] == entry["event"]["decision_record"]["decision"]
    by_key = run_in_process("audit", "replay", "key-2", "--json")
    assert (by_key.code, by_key.json["same"]) == (0, True)


@pytest.mark.usefixtures("auditor")
def test_invariant_20_changed_decision_is_reported(
    database: Database,
) -> None:
    first = create_hour_of_calls()[0]
    assert isinstance(first, RetryAttempted)
    decision = first.decision_record.decision
    assert isinstance(decision, RetryAt)
    forged = evolve(first.decision_record, decision=evolve(decision, delay_s=7.5))
    store_events(database, [evolve(first, decision_record=forged, delay_seconds=7.5)])
    assert run_audit_verify().code == 0  # the chain does not know better; the replay does
    ran = run_in_process("audit", "replay", "1")
    assert ran.code == 3
    assert "decided   wait 7.5 s" in ran.out
    assert f"differs   recomputed: wait {decision.delay_s!r} s" in ran.out
    body = run_in_process("audit", "replay", "1", "--json").json
    assert (body["same"], body["entries"][0]["same"]) == (False, False)


@pytest.mark.usefixtures("auditor")
def test_design_5_25_unknown_function_version_is_reported_not_compared(
    database: Database,
) -> None:
    first = create_hour_of_calls()[0]
    assert isinstance(first, RetryAttempted)
    newer = evolve(first.decision_record, function_version=3)
    store_events(database, [evolve(first, decision_record=newer)])
    problem = "cannot be replayed: written by function version 3"
    ran = run_in_process("audit", "replay", "1")
    assert ran.code == 3
    assert f"unknown   {problem}" in ran.out
    assert "cannot be replayed: 1" in ran.out
    assert "differs" not in ran.out
    body = run_in_process("audit", "replay", "1", "--json").json
    (entry,) = body["entries"]
    assert (body["same"], body["decisions"]) == (False, 0)
    assert (entry["same"], entry["recomputed"], entry["problem"]) == (None, None, problem)


@pytest.mark.usefixtures("auditor")
def test_replay_of_unknown_id_is_rejected() -> None:
    ran = run_in_process("audit", "replay", "nobody")
    assert (ran.code, ran.out) == (2, "")
    assert "audit entry nobody not found" in ran.err


# All of them


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["stats", "--since", "0001-01-01T00:00:00Z"], "--since: is before 1970"),
        (["stats", "--since", "9999-12-31T23:59:59Z"], "--since: is in the future"),
        (["tail", "-n", "99999999999999999999"], "1000000"),
    ],
)
def test_out_of_range_options_are_rejected(
    auditor: Operator, arguments: list[str], problem: str
) -> None:
    check_usage_error(auditor.run_in_process("audit", *arguments), problem)


def test_non_text_argument_is_rejected(auditor: Operator) -> None:
    """In a process of its own: only there an argument is bytes before it is text."""
    check_usage_error(auditor.run("audit", "replay", "\udcff"), "ID: is not valid Unicode")


def check_usage_error(ran: CommandResult, problem: str) -> None:
    assert (ran.code, ran.out) == (2, "")
    assert problem in " ".join(ran.err.replace("│", " ").split())


def test_missing_schema_error_names_db_upgrade(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEFERRY_DATABASE_URL", empty_database_url)
    ran = run_in_process("audit", "tail")
    assert (ran.code, ran.out) == (7, "")
    assert "run `tileferry db upgrade`" in ran.err


def test_unreachable_database_is_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEFERRY_DATABASE_URL", "postgresql://me:canary@127.0.0.1:1/none")
    ran = run_in_process("audit", "verify")
    assert (ran.code, ran.out, ran.err.count("\n")) == (7, "", 1)
    assert "canary" not in ran.err


@pytest.mark.usefixtures("auditor")
def test_audit_log_reads_are_retried_and_audited(
    database: Database,
) -> None:
    """One connection of the reader is cut in the middle: the page is read again."""
    log = store_events(database, create_call_events([Final()], clock=ManualClock()))
    cutter = (
        "CREATE FUNCTION cut() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN"
        " IF nextval('cuts') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;"
        " RETURN true; END $$"
    )
    execute(
        database,
        "CREATE SEQUENCE cuts",
        cutter,
        "ALTER TABLE audit_log RENAME TO audit_rows",
        "CREATE VIEW audit_log AS SELECT * FROM audit_rows WHERE cut()",
    )
    ran = run_in_process("audit", "verify", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["checked"] >= 1
    types = [json.loads(entry.body)["event_type"] for entry in log.iter_entries()]
    assert types == ["not_retryable", "retry_attempt", "retry_succeeded"]
    retried = json.loads([*log.iter_entries()][1].body)
    assert retried["retry_category"] == "REPLAY_REPLAY_VALIDATION"
