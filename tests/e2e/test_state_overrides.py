"""``state retry``, ``terminal`` and ``mark-terminal``: partitions tried again and given up."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from support.control_plane import ControlPlane, partition_key
from support.work_operator import (
    FINAL_ERROR,
    MARCH,
    REASON,
    FakeTerminal,
    WorkOperator,
    assert_refused,
    create_failed_days,
    current_operator,
    enqueue_days,
    get_partition,
    judge_next_run,
    list_overrides,
    list_statuses,
)

from tileferry.domain.partitions import PartitionStatus
from tileferry.domain.runs import VerdictOutcome


@pytest.fixture
def operator(tmp_path: Path, database_url: str) -> WorkOperator:
    return WorkOperator(tmp_path, database_url)


# retry


def test_retry_starts_new_run_and_logs_override(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    create_failed_days(control_plane, 1)
    old = get_partition(control_plane, partition_key(1)).last_run_id
    by_options = ("--customer-id", "acme", "--query", "city", "--logical-date", "2026-03-01")
    ran = operator.run("state", "retry", *by_options, *REASON, "--json")
    (retried,) = ran.json["partitions"]
    assert (ran.code, ran.json["schema"], ran.json["retried"]) == (0, "tileferry.state.retry.v1", 1)
    assert (retried["status"], retried["attempt_count"]) == ("pending", 1)
    assert (
        get_partition(control_plane, partition_key(1)).last_run_id == retried["last_run_id"] != old
    )
    (event,) = list_overrides(control_plane)
    assert (event.transition, event.reason) == ("requeue", "the link is back")
    assert event.additional_context == {"by": current_operator()}
    logged = [json.loads(line) for line in (operator.home / "log.jsonl").read_text().splitlines()]
    assert "partition.override" in [record["kind"] for record in logged]


def test_range_retry_selects_failed_partitions(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    enqueue_days(control_plane, 4)
    for outcome in (VerdictOutcome.FAILED, VerdictOutcome.PASSED, VerdictOutcome.FAILED):
        judge_next_run(control_plane, outcome)
    ran = operator.run("state", "retry", *MARCH, "--query", "city", *REASON)
    assert ran.code == 0, ran.err
    assert "2 partitions retried." in ran.out
    assert list_statuses(control_plane, 4) == ["pending", "success", "pending", "pending"]
    again = operator.run("state", "retry", *MARCH, *REASON)
    assert (again.code, again.err) == (0, "")
    assert "nothing was changed" in again.out


def test_large_range_requires_confirmed_count(
    control_plane: ControlPlane, operator: WorkOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_failed_days(control_plane, 10)
    retry = ("state", "retry", *MARCH, *REASON)
    assert_refused(operator.run(*retry), 4, "this affects 10 partitions", "--confirm-count 10")
    assert_refused(
        operator.run(*retry, "--confirm-count", "9"), 4, "this affects 10 partitions, not 9"
    )
    for typed in ("9\n", "yes\n", "\n", ""):
        monkeypatch.setattr("sys.stdin", FakeTerminal(typed))
        asked = operator.run(*retry)
        assert_refused(asked, 4, "This will retry 10 partitions. Type the count to continue:")
    assert list_statuses(control_plane, 10) == ["failed"] * 10
    assert list_overrides(control_plane) == []
    monkeypatch.setattr("sys.stdin", FakeTerminal("10\n"))
    assert operator.run(*retry).code == 0
    assert list_statuses(control_plane, 10) == ["pending"] * 10
    empty = operator.run(*retry, "--confirm-count", "10")
    assert_refused(empty, 4, "this affects 0 partitions, not 10")


def test_retry_without_raw_partition_rejects_whole_request(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    enqueue_days(control_plane, 2)
    judge_next_run(control_plane)
    control_plane.control.process_error(control_plane.claim_run(), FINAL_ERROR)
    assert_refused(
        operator.run("state", "retry", *MARCH, *REASON),
        4,
        "partition osm/acme/city/2026-03-02",
        "the raw sink has no raw partition",
        "`tileferry backfill plan`",
    )
    assert list_statuses(control_plane, 2) == ["failed", "failed"]
    why = operator.run("state", "inspect", str(partition_key(2)), "--why").out
    assert "tileferry backfill plan --source osm --customer-id acme" in " ".join(why.split())


def test_named_success_is_reprocessed(control_plane: ControlPlane, operator: WorkOperator) -> None:
    enqueue_days(control_plane, 1)
    run = judge_next_run(control_plane, VerdictOutcome.PASSED)
    ran = operator.run("state", "retry", str(partition_key(1)), *REASON)
    assert "success      osm/acme/city/2026-03-01\n             reprocessed by run" in ran.out
    partition = get_partition(control_plane, partition_key(1))
    assert (partition.status, partition.current_run_id) == (PartitionStatus.SUCCESS, run.run_id)
    assert_refused(
        operator.run("state", "retry", str(partition_key(1)), *REASON),
        4,
        "is already in progress",
    )


# terminal


def test_terminal_failures_are_listed_with_reason(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    create_failed_days(control_plane, 3)
    assert "No terminal partitions" in operator.run("state", "terminal").out
    mark = ("state", "mark-terminal", str(partition_key(1)), "--reason", "the source has no data")
    assert operator.run(*mark).code == 0
    settings = {"TILEFERRY_PARTITIONS_MAX_ATTEMPTS": "1"}
    body = operator.run("state", "terminal", "--json", **settings).json
    assert body["schema"] == "tileferry.state.terminal.v1"
    assert [one["terminal_reason"] for one in body["partitions"]] == [
        "marked",
        "attempts_used_up",
        "attempts_used_up",
    ]
    assert body["partitions"][0]["terminal_marker"] == "the source has no data"
    control_plane.pass_time(timedelta(days=3).total_seconds())
    old = operator.run("state", "terminal", TILEFERRY_PARTITIONS_MAX_AGE_DAYS="2")
    assert old.out.count("too old") == 2
    assert max(map(len, old.out.splitlines())) <= 80
    page = operator.run("state", "terminal", "--limit", "1", **settings)
    assert page.err == "More: add --after osm/acme/city/2026-03-01\n"
    rest = operator.run(
        "state", "terminal", "--after", str(partition_key(1)), "--json", **settings
    ).json
    assert len(rest["partitions"]) == 2


def test_failures_with_given_up_run_are_listed_as_abandoned(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    enqueue_days(control_plane, 2)
    judge_next_run(control_plane)
    control_plane.control.process_error(control_plane.claim_run(), FINAL_ERROR)
    (one,) = operator.run("state", "terminal", "--json").json["partitions"]
    assert (one["partition"], one["terminal_reason"]) == (str(partition_key(2)), "abandoned")
    shown = " ".join(operator.run("state", "terminal").out.split())
    assert (
        f"failed {partition_key(2)} abandoned: its run was given up 0 attempts: bbox: is none"
        in shown
    )
    inspected = " ".join(operator.run("state", "inspect", str(partition_key(2))).out.split())
    assert "terminal abandoned: its run was given up" in inspected


def test_terminal_mark_stops_automatic_retry_until_operator_retry(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    create_failed_days(control_plane, 2)
    mark = ("state", "mark-terminal", *MARCH, "--reason", "no data of that month", "--json")
    ran = operator.run(*mark)
    assert (ran.json["schema"], ran.json["marked"]) == ("tileferry.state.mark_terminal.v1", 2)
    assert [event.transition for event in list_overrides(control_plane)] == ["mark_terminal"] * 2
    assert operator.run(*mark).json["marked"] == 0  # they keep the reason that they have
    shown = " ".join(operator.run("state", "inspect", str(partition_key(1)), "--why").out.split())
    assert "next retry none planned" in shown
    assert "an operator marked it: no data of that month" in shown
    control_plane.pass_time(86_400)
    assert control_plane.partitions.retry_due() == 0
    assert operator.run("state", "retry", str(partition_key(1)), *REASON).code == 0
    assert list_statuses(control_plane, 2) == ["pending", "failed"]
    pending = operator.run("state", "mark-terminal", str(partition_key(1)), *REASON)
    assert_refused(pending, 4, "is pending", "may not mark it terminal: it would have to be failed")
