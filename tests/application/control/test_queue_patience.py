"""A worker whose database goes away: it keeps its runs, and nothing is charged."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.control_plane import create_memory_control_plane
from support.worker_env import WorkerEnv, create_failing_handler, create_passed_result

from tileferry.adapters.memory import MemoryWork
from tileferry.application.control.run_control import RunControl
from tileferry.application.control.worker import RunResult
from tileferry.application.ports.progress import ProgressEvent, QueueReached
from tileferry.domain.errors import DatabaseError, LeaseLostError
from tileferry.domain.runs import Run, RunStatus, Verdict, VerdictOutcome

FULL = DatabaseError(problem="disk full", remedy="free space")
AWAY = DatabaseError(problem="away", remedy="wait", is_unreachable=True)


@pytest.fixture
def worker_env() -> WorkerEnv:
    return WorkerEnv(create_memory_control_plane())


@contextmanager
def lose_calls(
    kind: type, name: str, *, times: int, error: DatabaseError = AWAY
) -> Iterator[list[int]]:
    """Let the first calls of a method find no database; yield the number of each call."""
    calls: list[int] = []
    call = getattr(kind, name)

    def answer(*given: Any, **named: Any) -> Any:
        calls.append(len(calls) + 1)
        if len(calls) <= times:
            raise error
        return call(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, name, answer)
        yield calls


def test_lease_that_expired_during_an_outage_is_renewed(worker_env: WorkerEnv) -> None:
    run = worker_env.desk.submit_run()
    events: list[ProgressEvent] = []
    worker_env.worker.progress = events.append

    def work(run: Run, check: Callable[[], None]) -> RunResult:
        worker_env.clock.advance(61)
        check()
        return create_passed_result(run)

    worker_env.work = work
    with lose_calls(MemoryWork, "renew", times=3) as calls:
        worker_env.worker.run()
    known = worker_env.desk.get_run(run)
    assert (known.status, known.lease_epoch, known.rescues) == (RunStatus.PASSED, 1, 0)
    assert (len(calls), sum(worker_env.clock.slept)) == (4, 0.5 + 1.0 + 2.0)
    reached = [event.is_reached for event in events if isinstance(event, QueueReached)]
    assert reached == [False, True]


def test_invariant_12_run_that_was_rescued_during_an_outage_is_lost(worker_env: WorkerEnv) -> None:
    worker_env.desk.submit_run()

    def work(_run: Run, check: Callable[[], None]) -> RunResult:
        worker_env.clock.advance(61)
        worker_env.desk.control.sweep()  # only this worker had no database
        check()
        raise AssertionError

    worker_env.work = work
    with lose_calls(MemoryWork, "renew", times=1), pytest.raises(LeaseLostError):
        worker_env.worker.run()


def test_finished_work_is_reported_after_the_outage(worker_env: WorkerEnv) -> None:
    run = worker_env.desk.submit_run()
    worker_env.work = lambda run, _check: RunResult(
        verdict=Verdict(run_id=run.run_id, outcome=VerdictOutcome.FAILED, reasons=["no tiles"])
    )
    with lose_calls(RunControl, "process_result", times=9):  # longer than the lease
        worker_env.worker.run()
    known = worker_env.desk.get_run(run)
    assert (known.status, known.lease_epoch, known.rescues) == (RunStatus.FAILED, 1, 0)
    assert sum(worker_env.clock.slept) > 61


def test_outage_that_ends_a_run_charges_nothing(worker_env: WorkerEnv) -> None:
    run = worker_env.desk.submit_run()
    worker_env.work = create_failing_handler(AWAY)
    with lose_calls(RunControl, "process_error", times=2):
        worker_env.worker.run()
    known = worker_env.desk.get_run(run)
    assert (known.status, known.retry_count, known.rescues) == (RunStatus.ERROR, 0, 0)
    now = datetime.fromtimestamp(worker_env.clock.now(), UTC)
    assert known.next_retry_at == now + timedelta(seconds=30)


def test_passed_runs_are_kept_while_the_database_is_away(worker_env: WorkerEnv) -> None:
    for _ in range(2):
        worker_env.desk.submit_run()

    def work(run: Run, check: Callable[[], None]) -> RunResult:
        worker_env.clock.advance(0.6)
        with lose_calls(MemoryWork, "complete", times=1) as calls:
            check()
        assert len(calls) == (len(worker_env.done) > 1)
        return create_passed_result(run)

    worker_env.work = work
    worker_env.worker.run()
    assert worker_env.desk.reader.count_runs() == {RunStatus.PASSED: 2}
    assert not worker_env.clock.slept  # the second run went on


def test_stopped_worker_waits_only_as_long_as_its_run_may_take(worker_env: WorkerEnv) -> None:
    run = worker_env.desk.submit_run()

    def work(_run: Run, check: Callable[[], None]) -> RunResult:
        worker_env.stopping = True
        worker_env.clock.advance(61)
        check()
        raise AssertionError

    def check_stop() -> None:
        if sum(worker_env.clock.slept) >= 10:
            raise KeyboardInterrupt

    worker_env.work = work
    worker_env.worker.check_stop = check_stop
    with lose_calls(MemoryWork, "renew", times=1_000), pytest.raises(KeyboardInterrupt):
        worker_env.worker.run()
    assert sum(worker_env.clock.slept) == 10
    assert worker_env.desk.get_run(run).status is RunStatus.DISCOVERED  # given back


@pytest.mark.parametrize(("call", "pause_s"), [("renew", 61), ("complete", 1)])
def test_other_database_errors_are_not_awaited(
    worker_env: WorkerEnv, call: str, pause_s: float
) -> None:
    if call == "complete":  # the report of a passed run fails during the next one
        worker_env.desk.submit_run()

    def work(run: Run, check: Callable[[], None]) -> RunResult:
        if run.run_id == last.run_id:
            worker_env.clock.advance(pause_s)
            with lose_calls(MemoryWork, call, times=1, error=FULL):
                check()
        return create_passed_result(run)

    last = worker_env.desk.submit_run()
    worker_env.work = work
    worker_env.worker.run()
    assert worker_env.desk.get_run(last).status is RunStatus.ERROR
    assert not worker_env.clock.slept
