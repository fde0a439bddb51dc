"""Runs that were started in a process: when they have ended."""

import pytest
from support.control_plane import (
    ControlPlane,
    create_memory_control_plane,
    download_work,
    unreachable_error,
)

from tileferry.application.control.started_runs import StartedRuns
from tileferry.domain.errors import DatabaseError
from tileferry.domain.runs import Run, RunId


@pytest.fixture
def control_plane() -> ControlPlane:
    return create_memory_control_plane()


def test_runs_have_ended_when_none_is_queued_running_or_waiting(
    control_plane: ControlPlane,
) -> None:
    started = StartedRuns(control_plane.reader)
    assert started.have_ended()
    for flight in ("F1", "F2"):
        control_plane.submit_run(download_work(flight))
    first, second = control_plane.claim_run(), control_plane.claim_run()
    started.add(first.run_id)
    started.add(second.run_id)
    started.add(RunId("removed"))
    assert not started.have_ended()
    control_plane.control.process_error(first, unreachable_error())
    control_plane.control.cancel(second.run_id, reason="wrong", by="ann")
    assert not started.have_ended(), "the first one waits for its retry"
    control_plane.control.cancel(first.run_id, reason="wrong", by="ann")
    assert started.have_ended()


def test_unreachable_database_ends_no_run() -> None:
    class AwayRecords:
        def find_run(self, _run_id: RunId) -> Run | None:
            raise DatabaseError(problem="connection refused", remedy="start it")

    started = StartedRuns(AwayRecords())  # type: ignore[arg-type]  # only this method is used
    started.add(RunId("r1"))
    assert not started.have_ended()
    started.clear()
    assert started.have_ended()
