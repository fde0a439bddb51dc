"""Actions on many runs: whom they affect, and that one refusal does not stop the others."""

import pytest
from support.control_plane import (
    ControlPlane,
    create_memory_control_plane,
    download_work,
    unreachable_error,
)

from tileferry.application.control.bulk_runs import BulkRuns, RunAction
from tileferry.application.ports.work import RunFilter
from tileferry.domain.runs import Run, RunId, RunStatus, Verdict, VerdictOutcome


@pytest.fixture
def control_plane() -> ControlPlane:
    return create_memory_control_plane()


@pytest.fixture
def bulk(control_plane: ControlPlane) -> BulkRuns:
    return BulkRuns(reader=control_plane.reader, control=control_plane.control)


def submit_one_per_state(control_plane: ControlPlane) -> dict[str, Run]:
    names = ("passed", "waiting", "processing", "given up", "queued")
    for number in range(len(names)):
        control_plane.submit_run(download_work(f"F{number}"))
    runs = {name: control_plane.claim_run() for name in names[:3]}
    queued = [
        run
        for run in control_plane.reader.list_runs(RunFilter(), limit=9)
        if run.status is RunStatus.DISCOVERED
    ]
    runs |= dict(zip(names[3:], queued, strict=True))
    passed = Verdict(run_id=runs["passed"].run_id, outcome=VerdictOutcome.PASSED)
    control_plane.control.process_result(runs["passed"], passed)
    control_plane.control.process_error(runs["waiting"], unreachable_error())
    control_plane.control.cancel(runs["given up"].run_id, reason="wrong", by="ann")
    return runs


@pytest.mark.parametrize(
    ("action", "affected"),
    [
        (RunAction.CANCEL, {"waiting", "processing", "queued"}),
        (RunAction.RETRY, {"waiting", "given up"}),
    ],
)
def test_action_affects_only_runs_that_allow_it(
    control_plane: ControlPlane, bulk: BulkRuns, action: RunAction, affected: set[str]
) -> None:
    runs = submit_one_per_state(control_plane)
    found = {run.run_id for run in bulk.select(action, RunFilter(), limit=9)}
    assert found == {runs[name].run_id for name in affected}
    assert bulk.select(action, RunFilter(statuses=[RunStatus.PASSED]), limit=9) == []
    assert len(bulk.select(action, RunFilter(), limit=1)) <= 1


def test_refused_run_does_not_stop_the_others(control_plane: ControlPlane, bulk: BulkRuns) -> None:
    runs = submit_one_per_state(control_plane)
    chosen = [runs["passed"].run_id, RunId("gone"), runs["queued"].run_id]
    result = bulk.apply(RunAction.CANCEL, chosen, reason="wrong area", by="ann")
    assert [run.run_id for run in result.done] == [runs["queued"].run_id]
    assert len(result.refused) == 2
    assert control_plane.get_run(runs["passed"]).status is RunStatus.PASSED
    again = bulk.apply(RunAction.RETRY, chosen[2:], reason="right area", by="ann")
    assert [run.status for run in again.done] == [RunStatus.ERROR]
    assert again.refused == []
