"""A worker over books in memory: what it does with runs, and when it stops."""

import logging
from collections.abc import Callable

import pytest
from support.control_plane import create_memory_control_plane, download_work
from support.worker_env import (
    DISK_FULL_ERROR,
    WorkerEnv,
    create_failing_handler,
    create_passed_result,
)

from tileferry.application.control.worker import RunResult
from tileferry.application.ports.progress import (
    NULL_LISTENER,
    ProgressEvent,
    RunFinished,
    RunStarted,
)
from tileferry.domain.errors import DatabaseError, InvalidValueError, LeaseLostError
from tileferry.domain.runs import (
    Run,
    RunId,
    RunStatus,
    Verdict,
    VerdictOutcome,
    WorkerId,
)


@pytest.fixture
def worker_env() -> WorkerEnv:
    return WorkerEnv(create_memory_control_plane())


def test_spec4_runs_are_processed_in_order_until_none_is_due(worker_env: WorkerEnv) -> None:
    runs = [worker_env.desk.submit_run().run_id for _ in range(7)]
    worker_env.worker.run()
    assert worker_env.done == runs
    assert worker_env.desk.reader.count_runs() == {RunStatus.PASSED: 7}
    assert worker_env.worker.processed == 7


def test_start_and_end_of_each_run_are_reported(worker_env: WorkerEnv) -> None:
    events: list[ProgressEvent] = []
    worker_env.worker.progress = events.append
    passed = worker_env.desk.submit_run()
    worker_env.worker.run()
    worker_env.work = create_failing_handler(DISK_FULL_ERROR)
    failed = worker_env.desk.submit_run()
    worker_env.worker.run()
    assert events == [
        RunStarted(run_id=passed.run_id, kind=passed.kind),
        RunFinished(run_id=passed.run_id, kind=passed.kind, status=RunStatus.PASSED),
        RunStarted(run_id=failed.run_id, kind=failed.kind),
        RunFinished(
            run_id=failed.run_id,
            kind=failed.kind,
            status=RunStatus.ERROR,
            problem=str(DISK_FULL_ERROR),
            next_retry_at=worker_env.desk.get_run(failed).next_retry_at,
        ),
    ]


def test_listener_can_stop_worker(worker_env: WorkerEnv) -> None:
    def stop(_event: ProgressEvent) -> None:
        raise KeyboardInterrupt

    worker_env.worker.progress = stop
    run = worker_env.desk.submit_run()
    with pytest.raises(KeyboardInterrupt):
        worker_env.worker.run()
    assert worker_env.done == []
    worker_env.worker.progress = NULL_LISTENER
    worker_env.worker.run()
    assert worker_env.done == [run.run_id]  # it was released


def test_worker_delivers_waiting_audit_events_in_every_sweep(worker_env: WorkerEnv) -> None:
    delivered: list[float] = []
    worker_env.worker.deliver_events = lambda: delivered.append(worker_env.clock.monotonic())
    for _ in range(3):
        worker_env.worker.run()
        worker_env.clock.advance(worker_env.worker.settings.sweep_s)
    assert len(set(delivered)) == 3


def test_spec4_retry_end_to_end(worker_env: WorkerEnv, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    run = worker_env.desk.submit_run()
    worker_env.work = create_failing_handler(DISK_FULL_ERROR)
    worker_env.worker.run()
    waiting = worker_env.desk.get_run(run)
    assert (waiting.status, waiting.retry_count, waiting.error_class) == (
        RunStatus.ERROR,
        1,
        "retryable",
    )
    worker_env.worker.run()
    assert len(worker_env.done) == 1
    worker_env.clock.advance(60)
    worker_env.work = None
    worker_env.worker.run()
    assert worker_env.desk.get_run(run).status is RunStatus.PASSED
    kinds = [record.kind for record in caplog.records]  # type: ignore[attr-defined]
    assert kinds == [
        "run.started",
        "run.retry_scheduled",
        "run.started",
        "run.retry_succeeded",
    ]
    starts = [record.getMessage() for record in caplog.records if "begins" in record.getMessage()]
    assert starts[0].endswith("initial attempt")
    assert starts[1].endswith("attempt 2")
    assert "in 60 s" in caplog.records[1].getMessage()


def test_spec4_run_is_given_up_after_last_attempt(
    worker_env: WorkerEnv, caplog: pytest.LogCaptureFixture
) -> None:
    run = worker_env.desk.submit_run()
    worker_env.work = create_failing_handler(DISK_FULL_ERROR)
    for _ in range(10):
        worker_env.worker.run()
        worker_env.clock.advance(3_600)
    assert len(worker_env.done) == 8
    known = worker_env.desk.get_run(run)
    assert (known.status, known.next_retry_at) == (RunStatus.ERROR, None)
    assert "run.max_attempts_reached" in [record.kind for record in caplog.records]  # type: ignore[attr-defined]


def test_spec4_final_error_is_logged_as_error_at_once(
    worker_env: WorkerEnv, caplog: pytest.LogCaptureFixture
) -> None:
    worker_env.desk.submit_run()
    worker_env.work = create_failing_handler(
        InvalidValueError(field="payload.bbox", value=1, problem="is no box")
    )
    worker_env.worker.run()
    (record,) = caplog.records
    assert (record.levelname, record.kind) == ("ERROR", "run.permanently_failed")  # type: ignore[attr-defined]


def test_error_in_one_run_does_not_affect_others_in_batch(worker_env: WorkerEnv) -> None:
    runs = [worker_env.desk.submit_run() for _ in range(3)]

    def work(run: Run, _check: Callable[[], None]) -> RunResult:
        if run.run_id == runs[1].run_id:
            raise ZeroDivisionError
        return create_passed_result(run)

    worker_env.work = work
    worker_env.worker.run()
    assert [worker_env.desk.get_run(run).status for run in runs] == [
        RunStatus.PASSED,
        RunStatus.ERROR,
        RunStatus.PASSED,
    ]
    assert worker_env.desk.get_run(runs[1]).error_message == "ZeroDivisionError"


def test_needs_review_verdict_is_stored_and_audited(worker_env: WorkerEnv) -> None:
    run = worker_env.desk.submit_run()
    worker_env.work = lambda run, _check: RunResult(
        verdict=Verdict(
            run_id=run.run_id, outcome=VerdictOutcome.NEEDS_REVIEW, reasons=["2 tiles are old"]
        )
    )
    worker_env.worker.run()
    known = worker_env.desk.get_run(run)
    assert (known.status, known.error_message) == (RunStatus.NEEDS_REVIEW, "2 tiles are old")
    assert [event.transition for event in worker_env.desk.events()] == ["submit", "complete"]  # type: ignore[attr-defined]


def test_results_of_long_batch_are_reported_early(worker_env: WorkerEnv) -> None:
    for _ in range(3):
        worker_env.desk.submit_run()
    seen = []

    def work(run: Run, _check: Callable[[], None]) -> RunResult:
        seen.append(dict(worker_env.desk.reader.count_runs()))
        worker_env.clock.advance(0.6)
        return create_passed_result(run)

    worker_env.work = work
    worker_env.worker.run()
    assert [counts.get(RunStatus.PASSED, 0) for counts in seen] == [0, 0, 2]
    assert worker_env.desk.reader.count_runs() == {RunStatus.PASSED: 3}


# Leases


def test_invariant_13_heartbeat_renews_leases_of_long_run(worker_env: WorkerEnv) -> None:
    for _ in range(2):
        worker_env.desk.submit_run()

    def work(run: Run, check: Callable[[], None]) -> RunResult:
        for _ in range(10):
            worker_env.clock.advance(20)
            worker_env.heart.beat()
            assert worker_env.desk.control.sweep() == 0
            check()
        return create_passed_result(run)

    worker_env.work = work
    worker_env.worker.run()
    assert worker_env.desk.reader.count_runs() == {RunStatus.PASSED: 2}


def test_invariant_12_worker_that_lost_its_run_stops(worker_env: WorkerEnv) -> None:
    run = worker_env.desk.submit_run()

    def work(run: Run, check: Callable[[], None]) -> RunResult:
        worker_env.clock.advance(61)  # as if it had been stopped for a while
        worker_env.desk.control.sweep()
        other = worker_env.desk.claim_run(WorkerId("w2"))
        worker_env.heart.beat()
        with pytest.raises(LeaseLostError):
            check()
        worker_env.desk.queue.complete([other])
        return create_passed_result(run)

    worker_env.work = work
    with pytest.raises(LeaseLostError, match="worker w1 lost run"):
        worker_env.worker.run()
    known = worker_env.desk.get_run(run)
    assert (known.status, known.lease_epoch) == (RunStatus.PASSED, 2)


def test_invariant_12_worker_detects_expired_lease_locally(
    worker_env: WorkerEnv,
) -> None:
    worker_env.desk.submit_run()

    def work(run: Run, check: Callable[[], None]) -> RunResult:
        worker_env.clock.advance(60)
        worker_env.desk.control.sweep()
        check()  # before the next heartbeat
        return create_passed_result(run)

    worker_env.work = work
    with pytest.raises(LeaseLostError):
        worker_env.worker.run()
    assert worker_env.desk.reader.count_runs() == {RunStatus.ERROR: 1}


def test_stale_worker_gives_back_newly_claimed_runs(worker_env: WorkerEnv) -> None:
    worker_env.desk.submit_run(download_work("F1"))
    stolen: list[RunId] = []

    def work(run: Run, _check: Callable[[], None]) -> RunResult:
        worker_env.clock.advance(61)
        worker_env.desk.control.sweep()
        stolen.append(worker_env.desk.claim_run(WorkerId("w2")).run_id)
        worker_env.desk.submit_run(download_work("F2"))
        return create_passed_result(run)

    worker_env.work = work
    with pytest.raises(LeaseLostError):
        worker_env.worker.run()
    again = worker_env.desk.claim_run(WorkerId("w3"))
    assert (again.run_id not in stolen, again.rescues) == (True, 0)


def test_heartbeat_survives_queue_outage(
    worker_env: WorkerEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker_env.desk.submit_run()

    def away(*_given: object, **_named: object) -> None:
        raise DatabaseError(problem="away", remedy="wait")

    def work(run: Run, check: Callable[[], None]) -> RunResult:
        with monkeypatch.context() as patch:
            patch.setattr(type(worker_env.desk.queue), "renew", away)
            worker_env.clock.advance(40)
            worker_env.heart.beat()
            check()
        worker_env.heart.beat()
        worker_env.clock.advance(59)
        check()
        return create_passed_result(run)

    worker_env.work = work
    worker_env.worker.run()
    assert worker_env.desk.reader.count_runs() == {RunStatus.PASSED: 1}
