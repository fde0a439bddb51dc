"""The leases of a worker, over books in memory."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from support.control_plane import LEASE, W1, ControlPlane, create_memory_control_plane

from tileferry.adapters.memory import ManualClock, MemoryWork
from tileferry.application.control.run_claims import LeasedRuns
from tileferry.domain.errors import LeaseLostError
from tileferry.domain.runs import Run, RunId


@pytest.fixture
def control_plane() -> ControlPlane:
    return create_memory_control_plane()


def held_runs(desk: ControlPlane, queue: MemoryWork | None = None) -> LeasedRuns:
    return LeasedRuns(queue=queue or desk.queue, clock=get_clock(desk), lease=LEASE)


def get_clock(desk: ControlPlane) -> ManualClock:
    return desk.queue.clock  # type: ignore[attr-defined, no-any-return]


def test_heartbeat_without_leases_continues(control_plane: ControlPlane) -> None:
    assert held_runs(control_plane).renew_leases()


def test_renewed_lease_lasts_its_full_duration(control_plane: ControlPlane) -> None:
    control_plane.submit_run()
    held = held_runs(control_plane)
    run = control_plane.claim_run()
    held.hold([run], asked_s=get_clock(control_plane).monotonic())
    control_plane.pass_time(50)
    assert held.renew_leases()
    control_plane.pass_time(50)
    held.check(run)
    control_plane.pass_time(10)  # it expired, but nobody took the run
    held.check(run)
    control_plane.pass_time(61)
    control_plane.control.sweep()
    with pytest.raises(LeaseLostError):
        held.check(run)


def test_invariant_12_run_ended_during_renewal_is_not_held_again(
    control_plane: ControlPlane,
) -> None:
    control_plane.submit_run()
    run = control_plane.claim_run(W1)

    class Slow:
        """Takes so long that the run has ended when the answer comes."""

        def renew(
            self, runs: Sequence[Run], *, lease: timedelta, progress: object
        ) -> Sequence[RunId]:
            assert progress == {}
            renewed = control_plane.queue.renew(runs, lease=lease)
            held.drop(run)
            return renewed

    held = held_runs(control_plane, Slow())  # type: ignore[arg-type]  # the rest is not called
    held.hold([run], asked_s=get_clock(control_plane).monotonic())
    assert held.renew_leases()
    with pytest.raises(LeaseLostError):
        held.check(run)
