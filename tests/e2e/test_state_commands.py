"""``state inspect``: partitions looked at and listed, and what nobody can ask for."""

from pathlib import Path

import pytest
from support.state_operator import MARCH, REASON, enqueued, failed, me, refused
from support.work_desk import Desk, acquire, key
from support.work_operator import (
    BROKEN,
    WHY_REJECTED,
    WorkOperator,
    busy,
    judged,
    partition_at,
)

from tileferry.domain.actors import Actor
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.runs import VerdictOutcome


@pytest.fixture
def operator(tmp_path: Path, database_url: str) -> WorkOperator:
    return WorkOperator(tmp_path, database_url)


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
    run, subject = partition_at(desk, key(1)).active_run_id, partition_at(desk, key(1)).subject
    for words in (
        f"The validator has judged it once. Run {run} is to bring its data",
        "Its last attempt ended with an error (rate limited)",
        "The source osm asked for patience: none of its runs starts before",
        f"pending → failed: {subject} (reject by validator)",
        f"failed → pending: {subject} (requeue by operator {me()}): the link is back",
    ):
        assert words in shown
    body = operator.runs("state", "inspect", str(key(1)), "--why", "--json").json
    assert any("asked for patience" in sentence for sentence in body["why"])
    moves = [entry["event"]["transition"] for entry in body["audit"]["entries"]]
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
