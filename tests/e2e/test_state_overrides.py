"""``state retry``, ``terminal`` and ``mark-terminal``: partitions tried again and given up."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from support.state_operator import (
    MARCH,
    REASON,
    Terminal,
    enqueued,
    failed,
    me,
    overrides,
    refused,
    statuses,
)
from support.work_desk import Desk, key
from support.work_operator import (
    HOPELESS,
    WorkOperator,
    judged,
    partition_at,
)

from tileferry.domain.partitions import PartitionStatus
from tileferry.domain.runs import VerdictOutcome


@pytest.fixture
def operator(tmp_path: Path, database_url: str) -> WorkOperator:
    return WorkOperator(tmp_path, database_url)


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
    assert event.additional_context == {"by": me()}
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
