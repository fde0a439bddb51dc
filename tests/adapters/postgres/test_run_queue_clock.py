"""Invariant 14: the queue goes by the database's clock, and no worker's wall clock matters."""

import logging
import time
from collections.abc import Callable

import pytest
from attrs import define, field
from support.control_plane import LEASE, W1, W2, ControlPlane, create_postgres_control_plane

from tileferry.adapters.memory import MemoryIdempotencyStore
from tileferry.adapters.postgres import Database
from tileferry.adapters.system import SystemClock, ThreadHeartbeat
from tileferry.application.control.key_expiry import KeyExpiry
from tileferry.application.control.worker import RunResult, Worker, WorkerSettings
from tileferry.domain.errors import StorageError
from tileferry.domain.runs import Run, RunKind, RunStatus, Verdict, VerdictOutcome

DAY_S = 86_400.0


@define
class JumpyClock(SystemClock):
    """The machine's clock, which somebody sets to and fro."""

    off_s: float = 0.0

    def now(self) -> float:
        return time.time() + self.off_s


@define
class ClockBench:
    desk: ControlPlane
    clock: JumpyClock = field(factory=JumpyClock)

    def run_worker(self, work: Callable[[Run], None]) -> None:
        def handle(run: Run, check: Callable[[], None], /) -> RunResult:
            work(run)
            check()
            return RunResult(verdict=Verdict(run_id=run.run_id, outcome=VerdictOutcome.PASSED))

        Worker(
            name=W1,
            queue=self.desk.queue,
            control=self.desk.control,
            partitions=self.desk.partitions,
            keys=KeyExpiry(store=MemoryIdempotencyStore(clock=self.clock)),
            handlers=dict.fromkeys(RunKind, handle),
            heartbeat=ThreadHeartbeat(),
            clock=self.clock,
            logger=logging.getLogger("test.clock"),
            settings=WorkerSettings(until_idle=True, sweep_s=0.01),
        ).run()


@pytest.fixture
def bench(database: Database) -> ClockBench:
    return ClockBench(create_postgres_control_plane(database))


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
def test_invariant_14_wall_clock_jump_loses_no_lease(bench: ClockBench, jump_s: float) -> None:
    run = bench.desk.submit_run()

    def work(_run: Run) -> None:
        bench.clock.off_s = jump_s
        assert bench.desk.control.sweep() == 0
        assert bench.desk.control.get_next_run_to_process(W2, lease=LEASE) is None

    bench.run_worker(work)
    known = bench.desk.get_run(run)
    assert (known.status, known.lease_epoch) == (RunStatus.PASSED, 1)


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
def test_invariant_14_retry_due_time_follows_the_database_clock(
    bench: ClockBench, jump_s: float
) -> None:
    run = bench.desk.submit_run()
    bench.clock.off_s = jump_s

    def work(_run: Run) -> None:
        raise StorageError(action="write", path="x", problem="full", remedy="wait")

    bench.run_worker(work)
    known = bench.desk.get_run(run)
    assert known.next_retry_at is not None
    wait_s = (known.next_retry_at - bench.desk.reader.now()).total_seconds()
    assert wait_s == pytest.approx(60, abs=5)
    bench.clock.off_s = 0.0
    bench.run_worker(work)
    assert bench.desk.get_run(run).retry_count == 1  # not due, whatever this machine thinks
