"""How a worker ends, waits and keeps house: no run is lost by it, and none stops the others."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from attrs import evolve
from support.control_plane import (
    acquire_work,
    create_memory_control_plane,
    create_sealed,
    partition_key,
)
from support.worker_env import (
    DISK_FULL_ERROR,
    WorkerEnv,
    create_failing_handler,
    create_passed_result,
)

from tileferry.application.control.policies import WorkPolicies
from tileferry.application.control.worker import RunResult
from tileferry.application.ports.progress import ProgressEvent, QueueReached
from tileferry.domain.errors import (
    DatabaseError,
)
from tileferry.domain.partitions import PartitionStatus
from tileferry.domain.runs import (
    Run,
    RunKind,
    RunStatus,
    Verdict,
    VerdictOutcome,
    WorkerId,
)
from tileferry.domain.state_machine import Actor


@pytest.fixture
def worker_env() -> WorkerEnv:
    return WorkerEnv(create_memory_control_plane())


# Stopping


def test_stopping_worker_finishes_current_run_and_gives_back_others(
    worker_env: WorkerEnv,
) -> None:
    runs = [worker_env.desk.submit_run() for _ in range(3)]

    def work(run: Run, _check: Callable[[], None]) -> RunResult:
        worker_env.stopping = True
        return create_passed_result(run)

    worker_env.work = work
    worker_env.worker.run()
    known = [worker_env.desk.get_run(run) for run in runs]
    queued = RunStatus.DISCOVERED
    assert [run.status for run in known] == [RunStatus.PASSED, queued, queued]
    assert not any(run.retry_count for run in known)


def test_interrupted_run_is_given_back_without_charge(worker_env: WorkerEnv) -> None:
    run = worker_env.desk.submit_run()

    def work(_run: Run, check: Callable[[], None]) -> RunResult:
        check()
        raise AssertionError

    def interrupt() -> None:
        raise KeyboardInterrupt

    worker_env.work = work
    worker_env.worker.check_stop = interrupt
    with pytest.raises(KeyboardInterrupt):
        worker_env.worker.run()
    known = worker_env.desk.get_run(run)
    assert (known.status, known.retry_count, known.rescues, known.error_message) == (
        RunStatus.DISCOVERED,
        0,
        0,
        None,
    )
    assert worker_env.desk.claim_run(WorkerId("w2")).run_id == run.run_id


def test_worker_survives_database_outage(
    worker_env: WorkerEnv, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker_env.desk.submit_run()
    exchange, failures = type(worker_env.desk.queue).exchange, iter(range(3))

    def away(*given: object, **named: object) -> object:
        if next(failures, None) is not None:
            raise DatabaseError(problem="away", remedy="wait")
        return exchange(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(type(worker_env.desk.queue), "exchange", away)
    events: list[ProgressEvent] = []
    worker_env.worker.progress = events.append
    worker_env.worker.run()
    assert events[:2] == [QueueReached(is_reached=False), QueueReached(is_reached=True)]
    assert not any(isinstance(event, QueueReached) for event in events[2:])
    assert worker_env.desk.reader.count_runs() == {RunStatus.PASSED: 1}
    assert sum(worker_env.clock.slept) == 0.5 + 1.0 + 2.0
    assert [record.kind for record in caplog.records] == ["worker.database_away"] * 3  # type: ignore[attr-defined]


# Keeping house


def test_worker_rescues_runs_and_retries_partitions_of_others(worker_env: WorkerEnv) -> None:
    worker_env.desk.policies = WorkPolicies()
    wanted = partition_key()
    worker_env.desk.partitions.enqueue([acquire_work(wanted)], actor=Actor.OPERATOR)
    lost = worker_env.desk.submit_run()
    held = worker_env.desk.claim_run(WorkerId("w2"))
    worker_env.desk.control.process_result(
        held,
        Verdict(run_id=held.run_id, outcome=VerdictOutcome.FAILED, reasons=["half is missing"]),
        sealed=create_sealed(held, wanted),
    )
    worker_env.desk.claim_run(WorkerId("w2"))
    worker_env.clock.advance(500)

    def work(run: Run, _check: Callable[[], None]) -> RunResult:
        sealed = create_sealed(run, wanted) if run.kind is RunKind.ACQUIRE_PARTITION else None
        return RunResult(verdict=create_passed_result(run).verdict, sealed=sealed)

    worker_env.work = work
    worker_env.worker.run()
    partition = worker_env.desk.reader.find_partition(wanted)
    assert partition is not None
    assert (partition.status, partition.attempt_count) == (PartitionStatus.SUCCESS, 2)
    assert partition.current_run_id != held.run_id
    assert worker_env.desk.get_run(lost).status is RunStatus.PASSED


def test_worker_claims_only_its_run_kinds() -> None:
    shop = WorkerEnv(create_memory_control_plane(), kinds=[RunKind.UPLOAD_FLIGHT])
    shop.desk.submit_run()
    shop.worker.run()
    assert shop.done == []


def test_interrupt_gives_back_whole_batch(worker_env: WorkerEnv) -> None:
    for _ in range(3):
        worker_env.desk.submit_run()

    def interrupt() -> None:
        raise KeyboardInterrupt

    worker_env.worker.check_stop = interrupt

    def work(run: Run, check: Callable[[], None]) -> RunResult:
        check()
        return create_passed_result(run)

    worker_env.work = work
    with pytest.raises(KeyboardInterrupt):
        worker_env.worker.run()
    assert (
        len(worker_env.desk.queue.claim(WorkerId("w2"), limit=9, lease=timedelta(minutes=1))) == 3
    )


def test_database_outage_during_run_lets_batch_leases_expire(
    worker_env: WorkerEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        worker_env.desk.submit_run()
    process_error, failures = type(worker_env.worker.control).process_error, iter([True])

    def away(*given: object, **_named: object) -> object:
        if next(failures, None):
            raise DatabaseError(problem="away", remedy="wait")
        return process_error(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(type(worker_env.worker.control), "process_error", away)
    worker_env.work = create_failing_handler(DISK_FULL_ERROR)
    worker_env.worker.run()
    worker_env.clock.advance(61)
    assert worker_env.desk.control.sweep() == 3


def test_system_exit_in_handler_is_charged_as_retry(worker_env: WorkerEnv) -> None:
    run = worker_env.desk.submit_run()

    def work(_run: Run, _check: Callable[[], None]) -> RunResult:
        raise SystemExit(3)

    worker_env.work = work
    with pytest.raises(SystemExit):
        worker_env.worker.run()
    known = worker_env.desk.get_run(run)
    assert (known.status, known.retry_count) == (RunStatus.ERROR, 1)


def test_passed_run_is_reported_when_next_is_interrupted(worker_env: WorkerEnv) -> None:
    runs = [worker_env.desk.submit_run() for _ in range(2)]

    def work(run: Run, _check: Callable[[], None]) -> RunResult:
        if run.run_id == runs[1].run_id:
            raise KeyboardInterrupt
        return create_passed_result(run)

    worker_env.work = work
    with pytest.raises(KeyboardInterrupt):
        worker_env.worker.run()
    assert [worker_env.desk.get_run(run).status for run in runs] == [
        RunStatus.PASSED,
        RunStatus.DISCOVERED,
    ]


def test_passed_run_is_reported_during_slow_next_run(worker_env: WorkerEnv) -> None:
    runs = [worker_env.desk.submit_run() for _ in range(2)]

    def work(run: Run, check: Callable[[], None]) -> RunResult:
        if run.run_id == runs[1].run_id:
            worker_env.clock.advance(5)
            check()
            assert worker_env.desk.get_run(runs[0]).status is RunStatus.PASSED
        return create_passed_result(run)

    worker_env.work = work
    worker_env.worker.run()
    assert worker_env.desk.reader.count_runs() == {RunStatus.PASSED: 2}


def test_unreadable_partition_payload_does_not_block_others(
    worker_env: WorkerEnv, caplog: pytest.LogCaptureFixture
) -> None:
    keys = [partition_key(1), partition_key(2)]
    worker_env.desk.partitions.enqueue([acquire_work(one) for one in keys], actor=Actor.OPERATOR)
    for wanted in keys:
        held = worker_env.desk.claim_run(WorkerId("w2"))
        worker_env.desk.control.process_result(
            held,
            Verdict(run_id=held.run_id, outcome=VerdictOutcome.FAILED, reasons=["bad"]),
            sealed=create_sealed(held, wanted),
        )
    spoilt = worker_env.desk.reader.find_partition(keys[0])
    assert spoilt is not None
    books = worker_env.desk.queue._books  # type: ignore[attr-defined]
    last = books.runs[spoilt.last_run_id]
    books.runs[last.run_id] = evolve(last, payload={"version": 99})
    worker_env.clock.advance(500)
    worker_env.work = lambda run, _check: RunResult(
        verdict=create_passed_result(run).verdict, sealed=create_sealed(run, keys[1])
    )
    worker_env.worker.run()
    found = [worker_env.desk.reader.find_partition(one) for one in keys]
    assert [one and one.status for one in found] == [
        PartitionStatus.FAILED,
        PartitionStatus.SUCCESS,
    ]
    assert "partition.unreadable" in [record.kind for record in caplog.records]  # type: ignore[attr-defined]


def test_idle_worker_stops_on_request(worker_env: WorkerEnv) -> None:
    worker_env.worker.settings = evolve(
        worker_env.worker.settings, until_idle=False, poll_s=3_600.0
    )
    worker_env.worker.is_stopping = lambda: bool(worker_env.clock.slept)
    worker_env.worker.run()
    assert sum(worker_env.clock.slept) <= 1


def test_idle_worker_is_woken_by_new_run(
    worker_env: WorkerEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = iter([True])
    monkeypatch.setattr(type(worker_env.desk.queue), "wait", lambda *_: next(waits))
    worker_env.worker.settings = evolve(
        worker_env.worker.settings, until_idle=False, poll_s=3_600.0
    )
    worker_env.worker._patience.wait(3_600.0)
    assert (worker_env.clock.slept, list(waits)) == ([], [])


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (DISK_FULL_ERROR, "worker.housekeeping_failed"),
        (DatabaseError(problem="away", remedy="wait"), "worker.database_away"),
    ],
)
def test_housekeeping_failure_does_not_block_runs(
    worker_env: WorkerEnv, error: Exception, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker_env.desk.submit_run()
    failures = iter([error])

    class Failing:
        """Cannot sweep, the first time."""

        def sweep(self) -> int:
            for failure in failures:
                raise failure
            return 0

        def __getattr__(self, name: str) -> object:
            return getattr(worker_env.desk.control, name)

    worker_env.worker.control = Failing()  # type: ignore[assignment]  # else the same
    worker_env.worker.run()
    assert len(worker_env.done) == 1
    assert kind in [getattr(record, "kind", None) for record in caplog.records]


def test_design_5_16_worker_removes_expired_idempotency_keys(worker_env: WorkerEnv) -> None:
    def recorded(key: str, keep: timedelta | None) -> None:
        held = worker_env.keys.claim(key, fingerprint="f", owner="me", lease=timedelta(minutes=1))
        worker_env.keys.complete(held, b"1", keep=keep)

    recorded("old", timedelta(days=7))
    recorded("for ever", None)
    worker_env.clock.advance(timedelta(days=8).total_seconds())
    recorded("new", timedelta(days=7))
    worker_env.worker.run()
    assert worker_env.keys.forget_expired(limit=10) == 0
    assert [worker_env.keys.find(key) is None for key in ("old", "for ever", "new")] == [
        True,
        False,
        False,
    ]
