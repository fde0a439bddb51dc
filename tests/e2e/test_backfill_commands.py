"""``backfill``: a range of dates planned into a file, and done exactly as the file says."""

import json
import stat
from pathlib import Path

import pytest
from support.state_operator import refused
from support.work_desk import Desk, acquire, key
from support.work_operator import (
    AREA_OPTIONS,
    HOPELESS,
    WorkOperator,
    judged,
    partition_at,
)

from tileferry.application.control.partition_control import Override
from tileferry.application.ports.work import PartitionFilter, RunFilter
from tileferry.domain.actors import Actor
from tileferry.domain.audit import StateChanged
from tileferry.domain.partitions import plan_from_json
from tileferry.domain.runs import RunPriority, RunStatus, VerdictOutcome

QUERY = ("--customer-id", "acme", "--query", "city")
DAYS = ("--from", "2026-03-01", "--to", "2026-03-06")
PLAN = ("backfill", "plan", *QUERY, *AREA_OPTIONS, "--out", "march.plan")
APPLY = ("backfill", "apply", "march.plan", "--reason", "a new customer")


@pytest.fixture
def operator(tmp_path: Path, database_url: str) -> WorkOperator:
    return WorkOperator(tmp_path, database_url)


@pytest.fixture
def history(desk: Desk) -> None:
    """Four days: failed, given up by an operator, success, and one that is being worked on."""
    desk.partitions.enqueue([acquire(key(day)) for day in (1, 2, 3, 4)], actor=Actor.OPERATOR)
    for outcome in (VerdictOutcome.FAILED, VerdictOutcome.FAILED, VerdictOutcome.PASSED):
        judged(desk, outcome)
    desk.partitions.mark_terminal([key(2)], Override(by="ann", reason="no data"))


def count_of(desk: Desk) -> int:
    return len(list(desk.reader.find_partitions(PartitionFilter())))


@pytest.mark.usefixtures("history")
def test_a_plan_says_what_each_day_gets_and_changes_nothing(
    desk: Desk, operator: WorkOperator
) -> None:
    events = len(desk.events())
    ran = operator.runs(*PLAN, *DAYS)
    assert ran.code == 0, ran.err
    shown = " ".join(ran.out.split())
    for words in (
        "Backfill of osm/acme/city, 2026-03-01 to 2026-03-06",
        "2 new: its first run",
        "1 failed: a new run",
        "1 nothing: success",
        "1 nothing: run active",
        "1 nothing: marked",
        "3 of 6 days would get a run.",
    ):
        assert words in shown
    assert max(map(len, ran.out.splitlines())) <= 80
    assert 'tileferry backfill apply march.plan --reason "…"' in ran.err
    file = operator.home / "march.plan"
    plan = plan_from_json(file.read_bytes())
    assert plan.hash in ran.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in operator.home.glob("march*")] == ["march.plan"]
    assert (count_of(desk), len(desk.events())) == (4, events)
    refused(operator.runs(*PLAN, *DAYS), 2, "--out: is there already (got 'march.plan')")
    assert plan_from_json(file.read_bytes()) == plan
    file.unlink()
    more = operator.runs(*PLAN, *DAYS, "--reprocess", "--include-terminal", "--json").json
    assert more["schema"] == "tileferry.backfill.plan.v1"
    assert more["actions"] == {"enqueue": 2, "requeue": 2, "reprocess": 1, "skip": 1}
    assert (more["days"], more["touched"], more["skipped"]) == (6, 5, {"run_active": 1})
    assert more["hash"] == plan_from_json(file.read_bytes()).hash != plan.hash


@pytest.mark.usefixtures("history")
def test_spec3_s6_apply_does_exactly_what_the_plan_says_and_once(
    desk: Desk, operator: WorkOperator
) -> None:
    planned = operator.runs(*PLAN, *DAYS, "--json").json
    untouched = [partition_at(desk, key(day)) for day in (2, 3, 4)]
    ran = operator.runs(*APPLY, "--json")
    assert (ran.code, ran.json["schema"]) == (0, "tileferry.backfill.apply.v1")
    assert (ran.json["started"], ran.json["already_started"]) == (3, 0)
    assert ran.json["hash"] == planned["hash"]
    for one in ran.json["partitions"]:
        day = int(one["partition"][-2:])
        partition = partition_at(desk, key(day))
        assert (partition.status, partition.active_run_id) == ("pending", one["run_id"])
        run = desk.reader.find_run(partition.last_run_id)
        assert run is not None
        assert (run.priority, run.status) == (RunPriority.BACKFILL, RunStatus.DISCOVERED)
    assert [int(one["partition"][-2:]) for one in ran.json["partitions"]] == [1, 5, 6]
    assert [partition_at(desk, key(day)) for day in (2, 3, 4)] == untouched
    reasons = [
        event.reason
        for event in desk.events()
        if isinstance(event, StateChanged) and event.transition == "requeue"
    ]
    assert reasons == ["a new customer"]
    again = operator.runs(*APPLY)
    assert again.code == 0
    assert f"0 runs started by plan {planned['hash']}" in again.out
    assert "This plan had started 3 before" in again.err
    assert count_of(desk) == 6


@pytest.mark.usefixtures("history")
def test_a_plan_that_has_drifted_is_refused_and_says_what_has_changed(
    desk: Desk, operator: WorkOperator
) -> None:
    operator.runs(*PLAN, *DAYS)
    desk.partitions.retry([key(1)], Override(by="bob", reason="mended"))
    judged(desk)  # the fourth day goes on; the plan does nothing to it
    before = desk.reader.counts()
    ran = operator.runs(*APPLY)
    refused(ran, 4, "1 of the plan's partitions", "nothing was done")
    assert (
        "  partition osm/acme/city/2026-03-01 (requeue): status was failed, is pending" in ran.err
    )
    told = operator.runs(*APPLY, "--json")
    assert (told.code, told.json["started"]) == (4, 0)
    assert told.json["error"]["type"] == "PlanDriftedError"
    assert [line.split()[1] for line in told.json["drifted"]] == ["osm/acme/city/2026-03-01"]
    assert desk.reader.counts() == before
    (operator.home / "march.plan").unlink()
    operator.runs(*PLAN, *DAYS)
    assert operator.runs(*APPLY).code == 0


def test_spec3_s8_a_large_plan_needs_its_count(desk: Desk, operator: WorkOperator) -> None:
    operator.runs(*PLAN, "--from", "2026-03-01", "--to", "2026-03-10")
    refused(operator.runs(*APPLY), 4, "this would touch 10 partitions", "--confirm-count 10")
    refused(operator.runs(*APPLY, "--confirm-count", "31"), 4, "31 were confirmed")
    assert count_of(desk) == 0
    ran = operator.runs(*APPLY, "--confirm-count", "10")
    assert (ran.code, count_of(desk)) == (0, 10)
    assert "10 runs started" in ran.out
    assert "tileferry state inspect --source osm --customer-id acme --query city" in ran.err


def test_a_backfill_is_the_way_on_where_a_retry_is_refused(
    desk: Desk, operator: WorkOperator
) -> None:
    desk.partitions.enqueue([acquire(key(1))], actor=Actor.OPERATOR)
    desk.control.process_error(desk.claimed(), HOPELESS)
    operator.runs(*PLAN, "--from", "2026-03-01", "--to", "2026-03-01")
    assert operator.runs(*APPLY).out.startswith("1 run started by plan")
    assert partition_at(desk, key(1)).status == "pending"
    (new, _) = desk.reader.runs(RunFilter(), limit=2)
    assert new.run_id == partition_at(desk, key(1)).last_run_id


def test_a_file_that_is_no_plan_is_refused(operator: WorkOperator) -> None:
    for content, words in (
        (b"", "plan"),
        (b"[]", "plan"),
        (b'{"version": 1}', "plan"),
        (b'{"version": 99}', "plan.version"),
        (b"\x00\xff", "plan"),
    ):
        (operator.home / "march.plan").write_bytes(content)
        refused(operator.runs(*APPLY), 2, words)


def test_a_plan_that_somebody_edited_is_refused(desk: Desk, operator: WorkOperator) -> None:
    operator.runs(*PLAN, *DAYS)
    file = operator.home / "march.plan"
    plan = json.loads(file.read_bytes())
    plan["customer_id"] = "other"
    file.write_text(json.dumps(plan))
    refused(operator.runs(*APPLY), 2, "plan.hash", "the plan was changed since")
    assert count_of(desk) == 0


CANNOT_BE: list[tuple[list[str], int, str]] = [
    (["--from", "March", "--to", "2026-03-01"], 2, "--from: is not a date"),
    (
        ["--from", "2026-03-02", "--to", "2026-03-01"],
        2,
        "--from: is after --to, 2026-03-01 (got '2026-03-02')",
    ),
    (["--from", "1026-03-02", "--to", "2026-03-01"], 2, "100000 are the most"),
    ([*DAYS, "--customer-id", "a b"], 2, "--customer-id: is not a plain name"),
    ([*DAYS, "--source", ".."], 2, "--source: is not a plain name"),
    ([*DAYS, "--bbox", "1,2"], 2, "--bbox"),
    ([*DAYS, "--area", "nowhere"], 2, "--bbox or as --area"),
    ([*DAYS, "--zoom", "x"], 2, "--zoom: is not a list"),
    ([*DAYS, "--out", "none/of/these/x.plan"], 7, "there is no such folder"),
    ([*DAYS, "--out", "x" * 300], 7, "could not"),
]


def test_a_plan_that_cannot_be_made_is_refused_by_its_option(operator: WorkOperator) -> None:
    for arguments, code, words in CANNOT_BE:
        refused(operator.runs(*PLAN, *arguments), code, words)


def test_a_file_that_is_not_there_is_told(operator: WorkOperator) -> None:
    refused(operator.runs(*APPLY), 2, "'FILE': file 'march.plan' does not exist")
    (operator.home / "march.plan").mkdir()
    refused(operator.runs(*APPLY), 2, "'FILE': file 'march.plan' is a directory")
    (operator.home / "march.plan").rmdir()
    (operator.home / "march.plan").touch()
    refused(operator.runs(*APPLY[:3]), 2, "--reason")
