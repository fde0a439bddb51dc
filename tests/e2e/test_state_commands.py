"""``state``: partitions inspected, listed, tried again and given up, as an operator does it."""

import getpass
import io
import json
import socket
from datetime import timedelta
from pathlib import Path

import pytest
from support.operator import Ran
from support.work_desk import Desk, acquire, key, postgres_desk
from support.work_operator import (
    BROKEN,
    HOPELESS,
    WHY_REJECTED,
    WorkOperator,
    busy,
    judged,
    partition_at,
)

from tileferry.adapters.postgres import Database
from tileferry.domain.actors import Actor
from tileferry.domain.audit import StateChanged
from tileferry.domain.partitions import PartitionKey, PartitionStatus
from tileferry.domain.runs import VerdictOutcome

MARCH = ("--from", "2026-03-01", "--to", "2026-03-31")
REASON = ("--reason", "the link is back")


@pytest.fixture
def desk(database: Database) -> Desk:
    return postgres_desk(database)


@pytest.fixture
def operator(tmp_path: Path, database_url: str) -> WorkOperator:
    return WorkOperator(tmp_path, database_url)


def enqueued(desk: Desk, days: int) -> None:
    works = [acquire(key(day)) for day in range(1, days + 1)]
    desk.partitions.enqueue(works, actor=Actor.OPERATOR)


def failed(desk: Desk, days: int) -> None:
    """Have the first days of a month, of which the validator rejected all."""
    enqueued(desk, days)
    for _ in range(days):
        judged(desk)


def statuses(desk: Desk, days: int) -> list[PartitionStatus]:
    return [partition_at(desk, key(day)).status for day in range(1, days + 1)]


def overrides(desk: Desk) -> list[StateChanged]:
    """What the audit log has of operators who gave a reason."""
    return [
        event
        for event in desk.events()
        if isinstance(event, StateChanged) and event.actor == "operator" and event.reason
    ]


def refused(ran: Ran, code: int, *words: str) -> None:
    assert (ran.code, ran.out) == (code, ""), ran
    said = " ".join(ran.err.replace("│", " ").split())
    for word in words:
        assert word in said


# inspect


def test_spec3_s8_inspect_shows_status_attempts_history_errors_times_and_the_next_retry(
    desk: Desk, operator: WorkOperator
) -> None:
    enqueued(desk, 1)
    desk.control.process_error(desk.claimed(), BROKEN)
    desk.pass_time(61)
    run = judged(desk)
    ran = operator.runs("state", "inspect", str(key(1)))
    assert (ran.code, ran.err) == (0, "")
    shown = " ".join(ran.out.split())
    partition = partition_at(desk, key(1))
    planned = desk.reader.planned_retry(key(1))
    assert planned is not None
    for fact in (
        "Partition osm/acme/city/2026-03-01",
        "status failed",
        "attempts 1",
        f"newest run {run.run_id}, failed, with a raw partition",
        f"error {WHY_REJECTED}",
        f"next retry {planned.next_run_at:%Y-%m-%d %H:%M:%S} UTC (in ",
        "300 s, times 6, at most 7200 s",
        f"updated {partition.updated_at:%Y-%m-%d %H:%M:%S} UTC",
        "verdict 1 failed",
        "attempt 1 error (retryable), next try after 60 s",
        "satellite-provider: connection reset, after 1 attempt",
        "attempt 2 failed",
        "worker w1",
    ):
        assert fact in shown
    assert max(map(len, ran.out.splitlines())) <= 80


def test_spec3_s8_inspect_for_scripts(desk: Desk, operator: WorkOperator) -> None:
    failed(desk, 1)
    by_options = ("--customer-id", "acme", "--query", "city", "--date", "2026-03-01")
    body = operator.runs("state", "inspect", *by_options, "--json").json
    assert body == operator.runs("state", "inspect", str(key(1)), "--json").json
    partition, planned = partition_at(desk, key(1)), desk.reader.planned_retry(key(1))
    assert planned is not None
    assert body["schema"] == "tileferry.state.inspect.v1"
    assert {
        name: body[name]
        for name in ("partition", "status", "attempt_count", "last_run_id", "error_message")
    } == {
        "partition": "osm/acme/city/2026-03-01",
        "status": "failed",
        "attempt_count": 1,
        "last_run_id": partition.last_run_id,
        "error_message": WHY_REJECTED,
    }
    assert body["next_run_at"] == planned.next_run_at.isoformat()
    assert (body["terminal_reason"], body["has_raw_partition"]) == (None, True)
    (verdict,), (attempt,) = body["verdicts"], body["newest_run"]["attempts"]
    assert (verdict["outcome"], verdict["explanation"]) == ("failed", WHY_REJECTED)
    assert (attempt["outcome"], attempt["epoch"], attempt["worker"]) == ("failed", 1, "w1")
    assert "why" not in body


def test_spec3_s8_why_tells_what_happened_and_what_comes_next(
    desk: Desk, operator: WorkOperator
) -> None:
    failed(desk, 1)
    operator.runs("state", "retry", str(key(1)), *REASON)
    desk.control.process_error(desk.claimed(), busy(300))
    ran = operator.runs("state", "inspect", str(key(1)), "--why")
    shown = " ".join(ran.out.split())
    run = partition_at(desk, key(1)).active_run_id
    for words in (
        f"The validator has judged it once. Run {run} is to bring its data",
        "Its last attempt ended with an error (rate limited)",
        "The source osm asked for patience: none of its runs starts before",
        "pending → failed (reject by validator)",
        f"failed → pending (requeue by operator {_me()}): the link is back",
    ):
        assert words in shown
    body = operator.runs("state", "inspect", str(key(1)), "--why", "--json").json
    assert any("asked for patience" in sentence for sentence in body["why"])
    moves = [entry["event"]["transition"] for entry in body["audit"]]
    assert moves == ["enqueue", "reject", "requeue"]


def test_the_list_takes_what_the_filter_says_a_page_at_a_time(
    desk: Desk, operator: WorkOperator
) -> None:
    enqueued(desk, 5)
    for outcome in (VerdictOutcome.FAILED, VerdictOutcome.PASSED, VerdictOutcome.FAILED):
        judged(desk, outcome)

    def listed(*arguments: str) -> list[str]:
        body = operator.runs("state", "inspect", *arguments, "--json").json
        assert body["schema"] == "tileferry.state.list.v1"
        return [partition["logical_date"][-2:] for partition in body["partitions"]]

    assert listed() == ["01", "02", "03", "04", "05"]
    assert listed("--status", "failed", "--status", "success") == ["01", "02", "03"]
    assert listed("--from", "2026-03-02", "--to", "2026-03-04") == ["02", "03", "04"]
    assert listed("--customer-id", "nobody") == listed("--source", "sat") == []
    first = operator.runs("state", "inspect", "--limit", "2")
    assert (first.code, first.out.count("2026-03-")) == (0, 2)
    assert first.err == "There are more: add --after osm/acme/city/2026-03-02\n"
    assert max(map(len, first.out.splitlines())) <= 80
    assert listed("--limit", "2", "--after", "osm/acme/city/2026-03-02") == ["03", "04"]
    page = operator.runs("state", "inspect", "--limit", "2", "--json").json
    assert page["next"] == "osm/acme/city/2026-03-02"
    assert "no such partition" in operator.runs("state", "inspect", "--query", "none").out


def test_where_there_is_nothing_the_list_says_so(operator: WorkOperator) -> None:
    assert operator.runs("state", "inspect").out == "There is no partition.\n"


def test_a_narrow_terminal_cuts_nothing_off(desk: Desk, operator: WorkOperator) -> None:
    long = PartitionKey.parse("osm/acme-of-the-north/roads-and-bridges-of-the-north/2026-03-01")
    desk.partitions.enqueue([acquire(long)], actor=Actor.OPERATOR)
    judged(desk)
    listed = operator.runs("state", "inspect")
    given_up = operator.runs("state", "terminal", TILEFERRY_PARTITIONS_MAX_ATTEMPTS="1")
    retried = operator.runs("state", "retry", str(long), *REASON)
    for ran in (listed, given_up, retried):
        assert str(long) in ran.out
        assert max(map(len, ran.out.splitlines())) <= 80
    assert f"1 attempt: {WHY_REJECTED}\n" in listed.out
    assert f"1 attempt: {WHY_REJECTED}\n" in given_up.out
    assert f"waits for run {partition_at(desk, long).last_run_id}\n" in retried.out


# retry


def test_spec3_s8_retry_gives_a_partition_a_new_run_and_the_override_is_logged(
    desk: Desk, operator: WorkOperator
) -> None:
    failed(desk, 1)
    old = partition_at(desk, key(1)).last_run_id
    by_options = ("--customer-id", "acme", "--query", "city", "--logical-date", "2026-03-01")
    ran = operator.runs("state", "retry", *by_options, *REASON, "--json")
    (retried,) = ran.json["partitions"]
    assert (ran.code, ran.json["schema"], ran.json["retried"]) == (0, "tileferry.state.retry.v1", 1)
    assert (retried["status"], retried["attempt_count"]) == ("pending", 1)
    assert partition_at(desk, key(1)).last_run_id == retried["last_run_id"] != old
    (event,) = overrides(desk)
    assert (event.transition, event.reason) == ("requeue", "the link is back")
    assert event.additional_context == {"by": _me()}
    logged = [json.loads(line) for line in (operator.home / "log.jsonl").read_text().splitlines()]
    assert "partition.override" in [record["kind"] for record in logged]


def test_spec3_s8_retry_of_a_range_takes_the_failed_ones(
    desk: Desk, operator: WorkOperator
) -> None:
    enqueued(desk, 4)
    for outcome in (VerdictOutcome.FAILED, VerdictOutcome.PASSED, VerdictOutcome.FAILED):
        judged(desk, outcome)
    ran = operator.runs("state", "retry", *MARCH, "--query", "city", *REASON)
    assert ran.code == 0, ran.err
    assert "2 partitions retried." in ran.out
    assert statuses(desk, 4) == ["pending", "success", "pending", "pending"]
    again = operator.runs("state", "retry", *MARCH, *REASON)
    assert (again.code, again.err) == (0, "")
    assert "nothing was changed" in again.out


def test_spec3_s8_a_large_range_needs_its_count(
    desk: Desk, operator: WorkOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed(desk, 10)
    retry = ("state", "retry", *MARCH, *REASON)
    refused(operator.runs(*retry), 4, "this would touch 10 partitions", "--confirm-count 10")
    refused(operator.runs(*retry, "--confirm-count", "9"), 4, "9 were confirmed")
    for typed in ("9\n", "yes\n", "\n", ""):
        monkeypatch.setattr("sys.stdin", Terminal(typed))
        asked = operator.runs(*retry)
        refused(asked, 4, "This will try again 10 partitions. Type the count to go on:")
    assert statuses(desk, 10) == ["failed"] * 10
    assert overrides(desk) == []
    monkeypatch.setattr("sys.stdin", Terminal("10\n"))
    assert operator.runs(*retry).code == 0
    assert statuses(desk, 10) == ["pending"] * 10
    empty = operator.runs(*retry, "--confirm-count", "10")
    refused(empty, 4, "this would touch 0 partitions, and 10 were confirmed")


def test_spec3_s8_a_retry_without_a_raw_partition_is_refused_and_all_others_with_it(
    desk: Desk, operator: WorkOperator
) -> None:
    enqueued(desk, 2)
    judged(desk)
    desk.control.process_error(desk.claimed(), HOPELESS)
    refused(
        operator.runs("state", "retry", *MARCH, *REASON),
        4,
        "partition osm/acme/city/2026-03-02",
        "left no raw partition",
        "use backfill plan",
    )
    assert statuses(desk, 2) == ["failed", "failed"]
    why = operator.runs("state", "inspect", str(key(2)), "--why").out
    assert "tileferry backfill plan --source osm --customer-id acme" in " ".join(why.split())


def test_spec3_s2_a_success_is_reprocessed_when_an_operator_names_it(
    desk: Desk, operator: WorkOperator
) -> None:
    enqueued(desk, 1)
    run = judged(desk, VerdictOutcome.PASSED)
    ran = operator.runs("state", "retry", str(key(1)), *REASON)
    assert "success      osm/acme/city/2026-03-01\n             reprocessed by run" in ran.out
    partition = partition_at(desk, key(1))
    assert (partition.status, partition.current_run_id) == (PartitionStatus.SUCCESS, run.run_id)
    refused(operator.runs("state", "retry", str(key(1)), *REASON), 4, "is working on it already")


# terminal


def test_spec3_s8_terminal_failures_are_listed_with_their_reason(
    desk: Desk, operator: WorkOperator
) -> None:
    failed(desk, 3)
    assert "No partition was given up" in operator.runs("state", "terminal").out
    mark = ("state", "mark-terminal", str(key(1)), "--reason", "the source has no data")
    assert operator.runs(*mark).code == 0
    settings = {"TILEFERRY_PARTITIONS_MAX_ATTEMPTS": "1"}
    body = operator.runs("state", "terminal", "--json", **settings).json
    assert body["schema"] == "tileferry.state.terminal.v1"
    assert [one["terminal_reason"] for one in body["partitions"]] == [
        "marked",
        "attempts_used_up",
        "attempts_used_up",
    ]
    assert body["partitions"][0]["terminal_marker"] == "the source has no data"
    desk.pass_time(timedelta(days=3).total_seconds())
    old = operator.runs("state", "terminal", TILEFERRY_PARTITIONS_MAX_AGE_DAYS="2")
    assert old.out.count("too old") == 2
    assert max(map(len, old.out.splitlines())) <= 80
    page = operator.runs("state", "terminal", "--limit", "1", **settings)
    assert page.err == "There are more: add --after osm/acme/city/2026-03-01\n"
    rest = operator.runs("state", "terminal", "--after", str(key(1)), "--json", **settings).json
    assert len(rest["partitions"]) == 2


def test_failures_whose_run_was_given_up_are_listed_with_their_own_reason(
    desk: Desk, operator: WorkOperator
) -> None:
    enqueued(desk, 2)
    judged(desk)
    desk.control.process_error(desk.claimed(), HOPELESS)
    (one,) = operator.runs("state", "terminal", "--json").json["partitions"]
    assert (one["partition"], one["terminal_reason"]) == (str(key(2)), "abandoned")
    shown = " ".join(operator.runs("state", "terminal").out.split())
    assert f"failed {key(2)} abandoned: its run was given up 0 attempts: bbox: is none" in shown
    inspected = " ".join(operator.runs("state", "inspect", str(key(2))).out.split())
    assert "terminal abandoned: its run was given up" in inspected


def test_spec3_s5_a_mark_stops_the_automatic_retry_until_an_operator_retries(
    desk: Desk, operator: WorkOperator
) -> None:
    failed(desk, 2)
    mark = ("state", "mark-terminal", *MARCH, "--reason", "no data of that month", "--json")
    ran = operator.runs(*mark)
    assert (ran.json["schema"], ran.json["marked"]) == ("tileferry.state.mark_terminal.v1", 2)
    assert [event.transition for event in overrides(desk)] == ["mark_terminal"] * 2
    assert operator.runs(*mark).json["marked"] == 0  # they keep the reason that they have
    shown = " ".join(operator.runs("state", "inspect", str(key(1)), "--why").out.split())
    assert "next retry none planned" in shown
    assert "an operator has ruled out further tries: no data of that month" in shown
    desk.pass_time(86_400)
    assert desk.partitions.retry_due() == 0
    assert operator.runs("state", "retry", str(key(1)), *REASON).code == 0
    assert statuses(desk, 2) == ["pending", "failed"]
    pending = operator.runs("state", "mark-terminal", str(key(1)), *REASON)
    refused(pending, 4, "is pending", "may not mark it terminal: it would have to be failed")


# What cannot be asked for


NOBODY_MEANS: list[tuple[list[str], str]] = [
    (["inspect", "osm/acme/city"], "PARTITION: is not of the form source/customer/query/date"),
    (["inspect", "osm/a b/c/2026-03-01"], "PARTITION: is not a plain name"),
    (["inspect", "osm/acme/city/2026-03-01"], "PARTITION: is not known"),
    (["inspect", "osm/acme/city/2026-03-01", "--query", "city"], "either as PARTITION or by"),
    (["inspect", "--date", "2026-03-01"], "with --customer-id and --query"),
    (["inspect", "--date", "2026-03-01", "--from", "2026-03-01"], "either --date or a range"),
    (["inspect", "--from", "March"], "--from: is not a date (got 'March')"),
    (["inspect", "--to", "2026-02-30"], "--to: is not a date"),
    (["inspect", "--from", "2026-03-02", "--to", "2026-03-01"], "--from: is after --to"),
    (["inspect", "--source", "a/b"], "--source: is not a plain name"),
    (["inspect", "--customer-id", "\udcff"], "--customer-id: is not a plain name"),
    (["inspect", "--after", "x"], "--after: is not of the form"),
    (["inspect", "osm/acme/city/2026-03-01", "--status", "failed"], "are for lists"),
    (["inspect", "--why"], "--why explains one partition"),
    (["inspect", "--limit", "0"], "--limit"),
    (["inspect", "--status", "lost"], "--status"),
    (["terminal", "--query", "a b"], "--query: is not a plain name"),
    (["retry", *REASON], "name a partition, or give a range"),
    (["retry", *MARCH[:2], *REASON], "name a partition, or give a range"),
    (["retry", *MARCH], "--reason"),
    (["retry", *MARCH, "--reason", " "], "--reason: must be text that says why"),
    (["retry", *MARCH, "--reason", "\udcff"], "--reason: must be text that says why"),
    (["retry", *MARCH, *REASON, "--confirm-count", "x"], "--confirm-count"),
    (["retry", "osm/acme/city/2026-03-01", *REASON], "is not known"),
    (["mark-terminal", "osm/acme/city/2026-03-01", *REASON], "is not known"),
]


def test_what_nobody_can_mean_is_refused_by_its_name(operator: WorkOperator) -> None:
    for arguments, words in NOBODY_MEANS:
        refused(operator.runs("state", *arguments), 2, words)


def test_a_refusal_is_one_object_for_scripts(desk: Desk, operator: WorkOperator) -> None:
    failed(desk, 10)
    ran = operator.runs("state", "retry", *MARCH, *REASON, "--json")
    assert (ran.code, ran.json["schema"]) == (4, "tileferry.error.v1")
    assert ran.json["error"]["type"] == "ConfirmationNeededError"


def test_a_database_without_the_schema_is_told_what_to_do(
    tmp_path: Path, empty_database_url: str
) -> None:
    ran = WorkOperator(tmp_path, empty_database_url).runs("state", "inspect")
    refused(ran, 7, "run tileferry db upgrade")


class Terminal(io.StringIO):
    """Somebody at a keyboard."""

    def isatty(self) -> bool:
        return True


def _me() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"
