"""The leases of a worker, over books in memory."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from support.work_desk import LEASE, W1, Desk, memory_desk

from tileferry.adapters.memory import ManualClock, MemoryWork
from tileferry.application.control.leases import HeldRuns
from tileferry.domain.errors import LeaseLostError
from tileferry.domain.runs import Run, RunId


@pytest.fixture
def desk() -> Desk:
    return memory_desk()


def held_by(desk: Desk, queue: MemoryWork | None = None) -> HeldRuns:
    return HeldRuns(queue=queue or desk.queue, clock=clock_of(desk), lease=LEASE)


def clock_of(desk: Desk) -> ManualClock:
    return desk.queue.clock  # type: ignore[attr-defined, no-any-return]


def test_a_heart_with_nothing_to_renew_goes_on(desk: Desk) -> None:
    assert held_by(desk).beat()


def test_a_renewed_lease_is_sure_for_its_whole_length(desk: Desk) -> None:
    desk.submitted()
    held = held_by(desk)
    run = desk.claimed()
    held.took([run], asked_s=clock_of(desk).monotonic())
    desk.pass_time(50)
    assert held.beat()
    desk.pass_time(50)
    held.check(run)
    desk.pass_time(10)
    with pytest.raises(LeaseLostError):
        held.check(run)


def test_invariant_12_what_ends_while_it_is_renewed_is_not_held_again(desk: Desk) -> None:
    desk.submitted()
    run = desk.claimed(W1)

    class Slow:
        """Takes so long that the run has ended when the answer comes."""

        def renew(self, runs: Sequence[Run], *, lease: timedelta) -> Sequence[RunId]:
            renewed = desk.queue.renew(runs, lease=lease)
            held.ended(run)
            return renewed

    held = held_by(desk, Slow())  # type: ignore[arg-type]  # the rest is not called
    held.took([run], asked_s=clock_of(desk).monotonic())
    assert held.beat()
    with pytest.raises(LeaseLostError):
        held.check(run)
