"""``backfill``: a range of dates planned into a file, and done exactly as the file says."""

import json
import stat
from pathlib import Path

import pytest
from support.control_plane import ControlPlane, acquire_work, partition_key
from support.work_operator import (
    AREA_OPTIONS,
    FINAL_ERROR,
    WorkOperator,
    assert_refused,
    get_partition,
    judge_next_run,
)

from tileferry.application.control.partition_control import OperatorOverride
from tileferry.application.ports.work import PartitionFilter, RunFilter
from tileferry.domain.audit import StateChanged
from tileferry.domain.partitions import parse_plan
from tileferry.domain.runs import RunPriority, RunStatus, VerdictOutcome
from tileferry.domain.state_machine import Actor

QUERY = ("--customer-id", "acme", "--query", "city")
DAYS = ("--from", "2026-03-01", "--to", "2026-03-06")
PLAN = ("backfill", "plan", *QUERY, *AREA_OPTIONS, "--out", "march.plan")
APPLY = ("backfill", "apply", "march.plan", "--reason", "a new customer")


@pytest.fixture
def operator(tmp_path: Path, database_url: str) -> WorkOperator:
    return WorkOperator(tmp_path, database_url)


@pytest.fixture
def history(control_plane: ControlPlane) -> None:
    """Four days: failed, given up by an operator, success, and one that is being worked on."""
    control_plane.partitions.enqueue(
        [acquire_work(partition_key(day)) for day in (1, 2, 3, 4)], actor=Actor.OPERATOR
    )
    for outcome in (VerdictOutcome.FAILED, VerdictOutcome.FAILED, VerdictOutcome.PASSED):
        judge_next_run(control_plane, outcome)
    control_plane.partitions.mark_terminal(
        [partition_key(2)], OperatorOverride(by="ann", reason="no data")
    )


def count_partitions(desk: ControlPlane) -> int:
    return len(list(desk.reader.find_partitions(PartitionFilter())))


@pytest.mark.usefixtures("history")
def test_plan_lists_action_per_day_and_changes_nothing(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    events = len(control_plane.events())
    ran = operator.run(*PLAN, *DAYS)
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
    plan = parse_plan(file.read_bytes())
    assert plan.hash in ran.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in operator.home.glob("march*")] == ["march.plan"]
    assert (count_partitions(control_plane), len(control_plane.events())) == (4, events)
    assert_refused(operator.run(*PLAN, *DAYS), 2, "--out: already exists (got 'march.plan')")
    assert parse_plan(file.read_bytes()) == plan
    file.unlink()
    more = operator.run(*PLAN, *DAYS, "--reprocess", "--include-terminal", "--json").json
    assert more["schema"] == "tileferry.backfill.plan.v1"
    assert more["actions"] == {"enqueue": 2, "requeue": 2, "reprocess": 1, "skip": 1}
    assert (more["days"], more["touched"], more["skipped"]) == (6, 5, {"run_active": 1})
    assert more["hash"] == parse_plan(file.read_bytes()).hash != plan.hash


@pytest.mark.usefixtures("history")
def test_apply_executes_plan_exactly_once(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    planned = operator.run(*PLAN, *DAYS, "--json").json
    untouched = [get_partition(control_plane, partition_key(day)) for day in (2, 3, 4)]
    ran = operator.run(*APPLY, "--json")
    assert (ran.code, ran.json["schema"]) == (0, "tileferry.backfill.apply.v1")
    assert (ran.json["started"], ran.json["already_started"]) == (3, 0)
    assert ran.json["hash"] == planned["hash"]
    for one in ran.json["partitions"]:
        day = int(one["partition"][-2:])
        partition = get_partition(control_plane, partition_key(day))
        assert (partition.status, partition.active_run_id) == ("pending", one["run_id"])
        run = control_plane.reader.find_run(partition.last_run_id)
        assert run is not None
        assert (run.priority, run.status) == (RunPriority.BACKFILL, RunStatus.DISCOVERED)
    assert [int(one["partition"][-2:]) for one in ran.json["partitions"]] == [1, 5, 6]
    assert [get_partition(control_plane, partition_key(day)) for day in (2, 3, 4)] == untouched
    reasons = [
        event.reason
        for event in control_plane.events()
        if isinstance(event, StateChanged) and event.transition == "requeue"
    ]
    assert reasons == ["a new customer"]
    again = operator.run(*APPLY)
    assert again.code == 0
    assert f"0 runs started by plan {planned['hash']}" in again.out
    assert "3 runs of this plan were already started" in again.err
    assert count_partitions(control_plane) == 6


@pytest.mark.usefixtures("history")
def test_drifted_plan_is_rejected_with_differences(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    operator.run(*PLAN, *DAYS)
    control_plane.partitions.retry([partition_key(1)], OperatorOverride(by="bob", reason="mended"))
    judge_next_run(control_plane)  # the fourth day goes on; the plan does nothing to it
    before = control_plane.reader.count_runs()
    ran = operator.run(*APPLY)
    assert_refused(ran, 4, "1 of the plan's partitions", "nothing was done")
    assert (
        "  partition osm/acme/city/2026-03-01 (requeue): status was failed, is pending" in ran.err
    )
    told = operator.run(*APPLY, "--json")
    assert (told.code, told.json["started"]) == (4, 0)
    assert told.json["error"]["type"] == "PlanDriftedError"
    assert [line.split()[1] for line in told.json["drifted"]] == ["osm/acme/city/2026-03-01"]
    assert control_plane.reader.count_runs() == before
    (operator.home / "march.plan").unlink()
    operator.run(*PLAN, *DAYS)
    assert operator.run(*APPLY).code == 0


def test_large_plan_requires_confirmed_count(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    operator.run(*PLAN, "--from", "2026-03-01", "--to", "2026-03-10")
    assert_refused(operator.run(*APPLY), 4, "this affects 10 partitions", "--confirm-count 10")
    assert_refused(
        operator.run(*APPLY, "--confirm-count", "31"), 4, "this affects 10 partitions, not 31"
    )
    assert count_partitions(control_plane) == 0
    ran = operator.run(*APPLY, "--confirm-count", "10")
    assert (ran.code, count_partitions(control_plane)) == (0, 10)
    assert "10 runs started" in ran.out
    assert "tileferry state inspect --source osm --customer-id acme --query city" in ran.err


def test_backfill_restarts_partition_without_raw_data(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    control_plane.partitions.enqueue([acquire_work(partition_key(1))], actor=Actor.OPERATOR)
    control_plane.control.process_error(control_plane.claim_run(), FINAL_ERROR)
    operator.run(*PLAN, "--from", "2026-03-01", "--to", "2026-03-01")
    assert operator.run(*APPLY).out.startswith("1 run started by plan")
    assert get_partition(control_plane, partition_key(1)).status == "pending"
    (new, _) = control_plane.reader.list_runs(RunFilter(), limit=2)
    assert new.run_id == get_partition(control_plane, partition_key(1)).last_run_id


def test_invalid_plan_file_is_rejected(operator: WorkOperator) -> None:
    for content, words in (
        (b"", "plan"),
        (b"[]", "plan"),
        (b'{"version": 1}', "plan"),
        (b'{"version": 99}', "plan.version"),
        (b"\x00\xff", "plan"),
    ):
        (operator.home / "march.plan").write_bytes(content)
        assert_refused(operator.run(*APPLY), 2, words)


def test_edited_plan_is_rejected(control_plane: ControlPlane, operator: WorkOperator) -> None:
    operator.run(*PLAN, *DAYS)
    file = operator.home / "march.plan"
    plan = json.loads(file.read_bytes())
    plan["customer_id"] = "other"
    file.write_text(json.dumps(plan))
    assert_refused(operator.run(*APPLY), 2, "plan.hash", "the plan was edited")
    assert count_partitions(control_plane) == 0


CANNOT_BE: list[tuple[list[str], int, str]] = [
    (["--from", "March", "--to", "2026-03-01"], 2, "--from: is not a date"),
    (
        ["--from", "2026-03-02", "--to", "2026-03-01"],
        2,
        "--from: is after --to, 2026-03-01 (got '2026-03-02')",
    ),
    (["--from", "1026-03-02", "--to", "2026-03-01"], 2, "the limit is 100000"),
    ([*DAYS, "--customer-id", "a b"], 2, "--customer-id: is not a plain name"),
    ([*DAYS, "--source", ".."], 2, "--source: is not a plain name"),
    ([*DAYS, "--bbox", "1,2"], 2, "--bbox"),
    ([*DAYS, "--area", "nowhere"], 2, "--area"),
    ([*DAYS, "--bbox", "1,2,3,4"], 2, "one area only"),
    ([*DAYS, "--zoom", "x"], 2, "--zoom: is not a list"),
    ([*DAYS, "--out", "none/of/these/x.plan"], 7, "the folder does not exist"),
    ([*DAYS, "--out", "x" * 300], 7, "cannot create"),
]


def test_invalid_plan_options_are_rejected_by_name(operator: WorkOperator) -> None:
    for arguments, code, words in CANNOT_BE:
        assert_refused(operator.run(*PLAN, *arguments), code, words)


def test_missing_plan_file_or_reason_is_rejected(operator: WorkOperator) -> None:
    assert_refused(operator.run(*APPLY), 2, "'FILE': file 'march.plan' does not exist")
    (operator.home / "march.plan").mkdir()
    assert_refused(operator.run(*APPLY), 2, "'FILE': file 'march.plan' is a directory")
    (operator.home / "march.plan").rmdir()
    (operator.home / "march.plan").touch()
    assert_refused(operator.run(*APPLY[:3]), 2, "--reason")
