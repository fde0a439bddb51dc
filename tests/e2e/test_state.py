"""``state inspect``: partitions looked at and listed, and what nobody can ask for."""

from pathlib import Path

import pytest
from support.control_plane import ControlPlane, acquire_work, partition_key
from support.work_operator import (
    MARCH,
    REASON,
    REJECTION_REASON,
    UNREACHABLE_ERROR,
    WorkOperator,
    assert_refused,
    create_failed_days,
    current_operator,
    enqueue_days,
    get_partition,
    judge_next_run,
    rate_limited_error,
)

from tileferry.domain.partitions import PartitionKey
from tileferry.domain.runs import VerdictOutcome
from tileferry.domain.state_machine import Actor


@pytest.fixture
def operator(tmp_path: Path, database_url: str) -> WorkOperator:
    return WorkOperator(tmp_path, database_url)


# inspect


def test_inspect_shows_status_attempts_history_and_next_retry(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    enqueue_days(control_plane, 1)
    control_plane.control.process_error(control_plane.claim_run(), UNREACHABLE_ERROR)
    control_plane.pass_time(61)
    run = judge_next_run(control_plane)
    ran = operator.run("state", "inspect", str(partition_key(1)))
    assert (ran.code, ran.err) == (0, "")
    shown = " ".join(ran.out.split())
    partition = get_partition(control_plane, partition_key(1))
    planned = control_plane.reader.find_planned_retry(partition_key(1))
    assert planned is not None
    for fact in (
        "Partition osm/acme/city/2026-03-01",
        "status failed",
        "attempts 1",
        f"newest run {run.run_id}, failed",
        f"error {REJECTION_REASON}",
        f"next retry {planned.next_run_at:%Y-%m-%d %H:%M:%S} UTC (in ",
        "300 s, times 6, at most 7200 s",
        f"updated {partition.updated_at:%Y-%m-%d %H:%M:%S} UTC",
        "verdict 1 failed",
        "attempt 1 error (retryable), next retry after 60 s",
        "provider: connection reset, after 1 attempt",
        "attempt 2 failed",
        "worker w1",
    ):
        assert fact in shown
    assert max(map(len, ran.out.splitlines())) <= 80


def test_inspect_json(control_plane: ControlPlane, operator: WorkOperator) -> None:
    create_failed_days(control_plane, 1)
    by_options = ("--customer-id", "acme", "--query", "city", "--date", "2026-03-01")
    body = operator.run("state", "inspect", *by_options, "--json").json
    assert body == operator.run("state", "inspect", str(partition_key(1)), "--json").json
    partition, planned = (
        get_partition(control_plane, partition_key(1)),
        control_plane.reader.find_planned_retry(partition_key(1)),
    )
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
        "error_message": REJECTION_REASON,
    }
    assert body["next_run_at"] == planned.next_run_at.isoformat()
    assert (body["terminal_reason"], body["has_raw_partition"]) == (None, True)
    (verdict,), (attempt,) = body["verdicts"], body["newest_run"]["attempts"]
    assert (verdict["outcome"], verdict["explanation"]) == ("failed", REJECTION_REASON)
    assert (attempt["outcome"], attempt["epoch"], attempt["worker"]) == ("failed", 1, "w1")
    assert "why" not in body


def test_why_explains_history_and_next_step(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    create_failed_days(control_plane, 1)
    operator.run("state", "retry", str(partition_key(1)), *REASON)
    control_plane.control.process_error(control_plane.claim_run(), rate_limited_error(300))
    ran = operator.run("state", "inspect", str(partition_key(1)), "--why")
    shown = " ".join(ran.out.split())
    run, subject = (
        get_partition(control_plane, partition_key(1)).active_run_id,
        get_partition(control_plane, partition_key(1)).subject,
    )
    for words in (
        f"It has been validated once. Run {run} fetches its data",
        "Its last attempt ended with an error (rate limited)",
        "The source osm is rate limited: none of its runs starts before",
        f"pending → failed: {subject} (reject by validator)",
        f"failed → pending: {subject} (requeue by operator {current_operator()}): the link is back",
    ):
        assert words in shown
    body = operator.run("state", "inspect", str(partition_key(1)), "--why", "--json").json
    assert any("is rate limited" in sentence for sentence in body["why"])
    moves = [entry["event"]["transition"] for entry in body["audit"]["entries"]]
    assert moves == ["enqueue", "reject", "requeue"]


def test_list_is_filtered_and_paged(control_plane: ControlPlane, operator: WorkOperator) -> None:
    enqueue_days(control_plane, 5)
    for outcome in (VerdictOutcome.FAILED, VerdictOutcome.PASSED, VerdictOutcome.FAILED):
        judge_next_run(control_plane, outcome)

    def listed(*arguments: str) -> list[str]:
        body = operator.run("state", "inspect", *arguments, "--json").json
        assert body["schema"] == "tileferry.state.list.v1"
        return [partition["logical_date"][-2:] for partition in body["partitions"]]

    assert listed() == ["01", "02", "03", "04", "05"]
    assert listed("--status", "failed", "--status", "success") == ["01", "02", "03"]
    assert listed("--from", "2026-03-02", "--to", "2026-03-04") == ["02", "03", "04"]
    assert listed("--customer-id", "nobody") == listed("--source", "sat") == []
    first = operator.run("state", "inspect", "--limit", "2")
    assert (first.code, first.out.count("2026-03-")) == (0, 2)
    assert first.err == "More: add --after osm/acme/city/2026-03-02\n"
    assert max(map(len, first.out.splitlines())) <= 80
    assert listed("--limit", "2", "--after", "osm/acme/city/2026-03-02") == ["03", "04"]
    page = operator.run("state", "inspect", "--limit", "2", "--json").json
    assert page["next"] == "osm/acme/city/2026-03-02"
    assert "No partition matches" in operator.run("state", "inspect", "--query", "none").out


def test_empty_list_says_so(operator: WorkOperator) -> None:
    assert operator.run("state", "inspect").out == "No partitions yet.\n"


def test_narrow_terminal_truncates_nothing(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    long = PartitionKey.parse("osm/acme-of-the-north/roads-and-bridges-of-the-north/2026-03-01")
    control_plane.partitions.enqueue([acquire_work(long)], actor=Actor.OPERATOR)
    judge_next_run(control_plane)
    listed = operator.run("state", "inspect")
    given_up = operator.run("state", "terminal", TILEFERRY_PARTITIONS_MAX_ATTEMPTS="1")
    retried = operator.run("state", "retry", str(long), *REASON)
    for ran in (listed, given_up, retried):
        assert str(long) in ran.out
        assert max(map(len, ran.out.splitlines())) <= 80
    assert f"1 attempt: {REJECTION_REASON}\n" in listed.out
    assert f"1 attempt: {REJECTION_REASON}\n" in given_up.out
    assert f"waiting for run {get_partition(control_plane, long).last_run_id}\n" in retried.out


# What cannot be asked for


NOBODY_MEANS: list[tuple[list[str], str]] = [
    (["inspect", "osm/acme/city"], "PARTITION: is not of the form source/customer/query/date"),
    (["inspect", "osm/a b/c/2026-03-01"], "PARTITION: is not a plain name"),
    (["inspect", "osm/acme/city/2026-03-01"], "partition osm/acme/city/2026-03-01 not found"),
    (["inspect", "osm/acme/city/2026-03-01", "--query", "city"], "either PARTITION or options"),
    (["inspect", "--date", "2026-03-01"], "needs --customer-id and --query"),
    (["inspect", "--date", "2026-03-01", "--from", "2026-03-01"], "either --date or a range"),
    (["inspect", "--from", "March"], "--from: is not a date (got 'March')"),
    (["inspect", "--to", "2026-02-30"], "--to: is not a date"),
    (["inspect", "--from", "2026-03-02", "--to", "2026-03-01"], "--from: is after --to"),
    (["inspect", "--source", "a/b"], "--source: is not a plain name"),
    (["inspect", "--customer-id", "\udcff"], "--customer-id: is not a plain name"),
    (["inspect", "--after", "x"], "--after: is not of the form"),
    (["inspect", "osm/acme/city/2026-03-01", "--status", "failed"], "apply to lists"),
    (["inspect", "--why"], "--why needs a single partition"),
    (["inspect", "--limit", "0"], "--limit"),
    (["inspect", "--status", "lost"], "--status"),
    (["terminal", "--query", "a b"], "--query: is not a plain name"),
    (["retry", *REASON], "name a partition, or a range"),
    (["retry", *MARCH[:2], *REASON], "name a partition, or a range"),
    (["retry", *MARCH], "--reason"),
    (["retry", *MARCH, "--reason", " "], "--reason: must be non-empty Unicode text"),
    (["retry", *MARCH, "--reason", "\udcff"], "--reason: must be non-empty Unicode text"),
    (["retry", *MARCH, *REASON, "--confirm-count", "x"], "--confirm-count"),
    (["retry", "osm/acme/city/2026-03-01", *REASON], "osm/acme/city/2026-03-01 not found"),
    (["mark-terminal", "osm/acme/city/2026-03-01", *REASON], "osm/acme/city/2026-03-01 not found"),
]


def test_invalid_arguments_are_rejected_by_name(operator: WorkOperator) -> None:
    for arguments, words in NOBODY_MEANS:
        assert_refused(operator.run("state", *arguments), 2, words)


def test_refusal_is_json_error(control_plane: ControlPlane, operator: WorkOperator) -> None:
    create_failed_days(control_plane, 10)
    ran = operator.run("state", "retry", *MARCH, *REASON, "--json")
    assert (ran.code, ran.json["schema"]) == (4, "tileferry.error.v1")
    assert ran.json["error"]["type"] == "ConfirmationNeededError"


def test_missing_schema_error_names_db_upgrade(tmp_path: Path, empty_database_url: str) -> None:
    ran = WorkOperator(tmp_path, empty_database_url).run("state", "inspect")
    assert_refused(ran, 7, "run `tileferry db upgrade`")
