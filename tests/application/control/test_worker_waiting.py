"""A worker that waits for work, whose runs are cancelled, and what it tells of them."""

import logging
from collections.abc import Callable

import pytest
from support.control_plane import (
    FINAL_ERROR,
    W2,
    create_memory_control_plane,
    enqueue_partitions,
    judge_partition,
    rate_limited_error,
)
from support.worker_env import (
    DISK_FULL_ERROR,
    WorkerEnv,
    create_failing_handler,
    create_passed_result,
)

from tileferry.adapters.memory import MemoryWork
from tileferry.application.control.run_progress import RunProgressTracker
from tileferry.application.control.worker import RunResult
from tileferry.application.ports.downloads import TileFate
from tileferry.application.ports.progress import (
    DownloadStarted,
    ProgressEvent,
    RunFinished,
    TileProcessed,
    WorkerIdle,
)
from tileferry.domain.errors import DatabaseError, LeaseLostError
from tileferry.domain.retry import RetryBudget
from tileferry.domain.runs import Run, RunStatus, VerdictOutcome


@pytest.fixture
def worker_env() -> WorkerEnv:
    return WorkerEnv(create_memory_control_plane())


# Waiting for work


def test_until_idle_waits_for_retries_that_need_a_token() -> None:
    budget = RetryBudget(capacity=1.0, earned_per_success=0.0, refill_per_s=0.1)
    env = WorkerEnv(create_memory_control_plane(budget=budget))
    events: list[ProgressEvent] = []
    runs = [env.desk.submit_run().run_id for _ in range(3)]
    env.work = create_failing_handler(DISK_FULL_ERROR)
    env.worker.run()
    env.clock.advance(60)
    env.work, env.done = None, []
    env.worker.progress = events.append
    env.worker.run()
    assert env.done == runs
    assert env.desk.queue.get_wait_s() is None
    assert WorkerIdle(wait_s=0.0) in events


def test_until_idle_waits_within_its_patience_only(worker_env: WorkerEnv) -> None:
    events: list[ProgressEvent] = []
    worker_env.worker.progress = events.append
    run = worker_env.desk.submit_run()
    worker_env.work = create_failing_handler(rate_limited_error(8))
    worker_env.worker.run()
    known = worker_env.desk.get_run(run)
    assert known.rate_limited_count > 1  # 8 s are within 10 s
    waits = [event.wait_s for event in events if isinstance(event, WorkerIdle)]
    assert waits[0] == 8.0
    worker_env.work = create_failing_handler(rate_limited_error(11))
    worker_env.desk.control.retry_now(run.run_id, reason="now", by="ann")
    worker_env.clock.advance(8)
    events.clear()
    worker_env.worker.run()
    assert not any(isinstance(event, WorkerIdle) for event in events)


def test_partition_retry_that_is_due_is_not_left_behind(worker_env: WorkerEnv) -> None:
    enqueue_partitions(worker_env.desk)
    judge_partition(worker_env.desk, VerdictOutcome.FAILED)
    worker_env.worker.run()  # sweeps now, and again in 5 s at the earliest
    worker_env.clock.advance(400)
    worker_env.worker._sweep_at_s = worker_env.clock.monotonic() + 60  # as if it had just swept
    worker_env.work = create_failing_handler(FINAL_ERROR)
    worker_env.worker.run()
    assert len(worker_env.done) == 1


# Cancelled runs


def test_cancelled_run_is_stopped_and_the_worker_goes_on(
    worker_env: WorkerEnv, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    events: list[ProgressEvent] = []
    worker_env.worker.progress = events.append
    cancelled, other = (worker_env.desk.submit_run() for _ in range(2))

    def work(run: Run, check: Callable[[], None]) -> RunResult:
        if run.run_id == cancelled.run_id:
            worker_env.desk.control.cancel(run.run_id, reason="wrong area", by="ann")
            worker_env.heart.beat()
            check()
            raise AssertionError
        return create_passed_result(run)

    worker_env.work = work
    worker_env.worker.run()
    assert worker_env.desk.get_run(cancelled).error_message == "cancelled: wrong area"
    assert worker_env.desk.get_run(other).status is RunStatus.PASSED
    ends = [event for event in events if isinstance(event, RunFinished)]
    assert [(end.run_id, end.is_cancelled) for end in ends] == [
        (cancelled.run_id, True),
        (other.run_id, False),
    ]
    assert "run.cancelled" in [record.kind for record in caplog.records]  # type: ignore[attr-defined]
    assert worker_env.worker.unfinished == {}


@pytest.mark.parametrize("outcome", ["passed", "error", "interrupted"])
def test_result_of_a_cancelled_run_is_discarded(worker_env: WorkerEnv, outcome: str) -> None:
    run = worker_env.desk.submit_run()

    def work(run: Run, _check: Callable[[], None]) -> RunResult:
        worker_env.desk.control.cancel(run.run_id, reason="wrong area", by="ann")
        if outcome == "error":
            raise DISK_FULL_ERROR
        if outcome == "interrupted":
            raise KeyboardInterrupt
        return create_passed_result(run)

    worker_env.work = work
    if outcome == "interrupted":
        with pytest.raises(KeyboardInterrupt):
            worker_env.worker.run()
    else:
        worker_env.worker.run()
    assert worker_env.desk.get_run(run).error_message == "cancelled: wrong area"


def test_invariant_12_lost_run_stops_worker_when_database_cannot_tell(
    worker_env: WorkerEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker_env.desk.submit_run()

    def work(_run: Run, check: Callable[[], None]) -> RunResult:
        worker_env.clock.advance(61)
        worker_env.desk.control.sweep()
        check()
        raise AssertionError

    def fail(_queue: object, _held: object) -> None:
        raise DatabaseError(problem="away", remedy="")

    worker_env.work = work
    monkeypatch.setattr(MemoryWork, "find_cancelled", fail)
    with pytest.raises(LeaseLostError):
        worker_env.worker.run()


# Ends


def test_worker_remembers_runs_whose_last_attempt_failed(worker_env: WorkerEnv) -> None:
    run, passed = (worker_env.desk.submit_run() for _ in range(2))
    failing = create_failing_handler(DISK_FULL_ERROR)
    worker_env.work = lambda one, check: (
        failing(one, check) if one.run_id == run.run_id else create_passed_result(one)
    )
    worker_env.worker.run()
    (end,) = worker_env.worker.unfinished.values()
    assert (end.run_id, end.problem) == (run.run_id, str(DISK_FULL_ERROR))
    assert end.next_retry_at == worker_env.desk.get_run(run).next_retry_at
    assert worker_env.desk.get_run(passed).status is RunStatus.PASSED
    worker_env.clock.advance(60)
    worker_env.work = None
    worker_env.worker.run()
    assert worker_env.worker.unfinished == {}


def test_retry_logs_carry_the_attempt_even_if_rate_limited(
    worker_env: WorkerEnv, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    worker_env.desk.submit_run()
    errors = [DISK_FULL_ERROR, rate_limited_error(30), rate_limited_error(30), FINAL_ERROR]

    def work(_run: Run, _check: Callable[[], None]) -> RunResult:
        raise errors.pop(0)

    worker_env.work = work
    while errors:
        worker_env.worker.run()
        worker_env.clock.advance(60)
    logged = [
        (record.kind, record.attempt, record.retry_count, record.rate_limited_count)  # type: ignore[attr-defined]
        for record in caplog.records
        if hasattr(record, "attempt")
    ]
    assert logged == [
        ("run.started", 1, 0, 0),
        ("run.retry_scheduled", 1, 1, 0),
        ("run.started", 2, 1, 0),
        ("run.retry_scheduled", 2, 1, 1),
        ("run.started", 3, 1, 1),
        ("run.retry_scheduled", 3, 1, 2),
        ("run.started", 4, 1, 2),
        ("run.permanently_failed", 4, 1, 2),
    ]


def test_progress_is_reported_with_each_heartbeat(worker_env: WorkerEnv) -> None:
    tracker = RunProgressTracker(clock=worker_env.clock)
    worker_env.worker.tracker = worker_env.worker.progress = tracker
    run = worker_env.desk.submit_run()

    def work(run: Run, _check: Callable[[], None]) -> RunResult:
        tracker(DownloadStarted(tiles=4, already_stored=1, estimated_bytes=9))
        worker_env.heart.beat()
        progress = worker_env.desk.reader.get_progress([run.run_id])[run.run_id]
        assert (progress.tiles_done, progress.tiles_total) == (1, 4)
        return create_passed_result(run)

    worker_env.work = work
    worker_env.worker.run()
    assert worker_env.desk.get_run(run).status is RunStatus.PASSED


def test_invariant_12_interrupted_run_of_another_worker_is_not_given_back(
    worker_env: WorkerEnv,
) -> None:
    run = worker_env.desk.submit_run()

    def work(_run: Run, _check: Callable[[], None]) -> RunResult:
        worker_env.clock.advance(61)
        worker_env.desk.control.sweep()
        worker_env.desk.claim_run(W2)
        raise KeyboardInterrupt

    worker_env.work = work
    with pytest.raises(LeaseLostError):
        worker_env.worker.run()
    assert worker_env.desk.get_run(run).lease_owner == W2


def test_run_that_improves_with_each_attempt_is_not_given_up(worker_env: WorkerEnv) -> None:
    tracker = RunProgressTracker(clock=worker_env.clock)
    worker_env.worker.tracker = worker_env.worker.progress = tracker
    run = worker_env.desk.submit_run()
    attempts = iter(range(20))

    def work(run: Run, _check: Callable[[], None]) -> RunResult:
        if next(attempts) == 12:
            return create_passed_result(run)
        tracker(TileProcessed(TileFate.STORED, 9))
        raise DISK_FULL_ERROR

    worker_env.work = work
    for _ in range(13):
        worker_env.worker.run()
        worker_env.clock.advance(60)
    assert worker_env.desk.get_run(run).status is RunStatus.PASSED
    assert len(worker_env.done) == 13
