"""How a worker ends, waits and keeps house: no run is lost by it, and none stops the others."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from attrs import evolve
from support.work_desk import acquire, key, memory_desk, sealed_by
from support.work_shop import DISK, Shop, passed, raises

from tileferry.application.control.work_policies import WorkPolicies
from tileferry.application.control.worker import Result
from tileferry.domain.actors import Actor
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


@pytest.fixture
def shop() -> Shop:
    return Shop(memory_desk())


# Stopping


def test_a_worker_that_is_told_to_stop_finishes_its_run_and_gives_back_the_rest(
    shop: Shop,
) -> None:
    runs = [shop.desk.submitted() for _ in range(3)]

    def work(run: Run, _check: Callable[[], None]) -> Result:
        shop.stopping = True
        return passed(run)

    shop.work = work
    shop.worker.run()
    known = [shop.desk.known(run) for run in runs]
    assert [run.status for run in known] == [RunStatus.PASSED, RunStatus.ERROR, RunStatus.ERROR]
    assert all(run.next_retry_at is not None and not run.retry_count for run in known[1:])


def test_an_interrupted_run_is_given_back_uncharged(shop: Shop) -> None:
    run = shop.desk.submitted()

    def work(_run: Run, check: Callable[[], None]) -> Result:
        check()
        raise AssertionError

    def interrupt() -> None:
        raise KeyboardInterrupt

    shop.work = work
    shop.worker.check_stop = interrupt
    with pytest.raises(KeyboardInterrupt):
        shop.worker.run()
    known = shop.desk.known(run)
    assert (known.retry_count, known.rescues, known.error_message) == (
        0,
        0,
        "given back by worker w1, which was stopped",
    )
    assert shop.desk.claimed(WorkerId("w2")).run_id == run.run_id


def test_a_worker_outlives_a_database_that_is_away(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shop.desk.submitted()
    exchange, failures = type(shop.desk.queue).exchange, iter(range(3))

    def away(*given: object, **named: object) -> object:
        if next(failures, None) is not None:
            raise DatabaseError(problem="away", remedy="wait")
        return exchange(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(type(shop.desk.queue), "exchange", away)
    shop.worker.run()
    assert shop.desk.reader.counts() == {RunStatus.PASSED: 1}
    assert sum(shop.clock.slept) == 0.5 + 1.0 + 2.0
    assert [record.kind for record in caplog.records] == ["worker.database_away"] * 3  # type: ignore[attr-defined]


# Keeping house


def test_a_worker_rescues_and_retries_for_everybody(shop: Shop) -> None:
    shop.desk.policies = WorkPolicies()
    wanted = key()
    shop.desk.partitions.enqueue([acquire(wanted)], actor=Actor.OPERATOR)
    lost = shop.desk.submitted()
    held = shop.desk.claimed(WorkerId("w2"))
    shop.desk.control.process_result(
        held,
        Verdict(run_id=held.run_id, outcome=VerdictOutcome.FAILED, reasons=["half is missing"]),
        sealed=sealed_by(held, wanted),
    )
    shop.desk.claimed(WorkerId("w2"))
    shop.clock.pass_time(500)

    def work(run: Run, _check: Callable[[], None]) -> Result:
        sealed = sealed_by(run, wanted) if run.kind is RunKind.ACQUIRE_PARTITION else None
        return Result(verdict=passed(run).verdict, sealed=sealed)

    shop.work = work
    shop.worker.run()
    partition = shop.desk.reader.find_partition(wanted)
    assert partition is not None
    assert (partition.status, partition.attempt_count) == (PartitionStatus.SUCCESS, 2)
    assert partition.current_run_id != held.run_id
    assert shop.desk.known(lost).status is RunStatus.PASSED


def test_only_the_wanted_kinds_are_taken() -> None:
    shop = Shop(memory_desk(), kinds=[RunKind.UPLOAD_FLIGHT])
    shop.desk.submitted()
    shop.worker.run()
    assert shop.done == []


def test_an_interrupt_gives_back_the_whole_batch(shop: Shop) -> None:
    for _ in range(3):
        shop.desk.submitted()

    def interrupt() -> None:
        raise KeyboardInterrupt

    shop.worker.check_stop = interrupt

    def work(run: Run, check: Callable[[], None]) -> Result:
        check()
        return passed(run)

    shop.work = work
    with pytest.raises(KeyboardInterrupt):
        shop.worker.run()
    assert len(shop.desk.queue.claim(WorkerId("w2"), limit=9, lease=timedelta(minutes=1))) == 3


def test_a_database_that_goes_away_in_a_run_lets_the_leases_of_its_batch_end(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        shop.desk.submitted()
    process_error, failures = type(shop.worker.control).process_error, iter([True])

    def away(*given: object) -> object:
        if next(failures, None):
            raise DatabaseError(problem="away", remedy="wait")
        return process_error(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(type(shop.worker.control), "process_error", away)
    shop.work = raises(DISK)
    shop.worker.run()
    shop.clock.pass_time(61)
    assert shop.desk.control.sweep() == 3


def test_a_handler_that_ends_its_process_is_charged_for_it(shop: Shop) -> None:
    run = shop.desk.submitted()

    def work(_run: Run, _check: Callable[[], None]) -> Result:
        raise SystemExit(3)

    shop.work = work
    with pytest.raises(SystemExit):
        shop.worker.run()
    known = shop.desk.known(run)
    assert (known.status, known.retry_count) == (RunStatus.ERROR, 1)


def test_what_has_passed_is_told_though_the_next_run_is_interrupted(shop: Shop) -> None:
    runs = [shop.desk.submitted() for _ in range(2)]

    def work(run: Run, _check: Callable[[], None]) -> Result:
        if run.run_id == runs[1].run_id:
            raise KeyboardInterrupt
        return passed(run)

    shop.work = work
    with pytest.raises(KeyboardInterrupt):
        shop.worker.run()
    assert [shop.desk.known(run).status for run in runs] == [RunStatus.PASSED, RunStatus.ERROR]


def test_a_pass_is_not_kept_back_by_a_slow_run_after_it(shop: Shop) -> None:
    runs = [shop.desk.submitted() for _ in range(2)]

    def work(run: Run, check: Callable[[], None]) -> Result:
        if run.run_id == runs[1].run_id:
            shop.clock.pass_time(5)
            check()
            assert shop.desk.known(runs[0]).status is RunStatus.PASSED
        return passed(run)

    shop.work = work
    shop.worker.run()
    assert shop.desk.reader.counts() == {RunStatus.PASSED: 2}


def test_a_partition_whose_work_cannot_be_read_stops_nobody(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    keys = [key(1), key(2)]
    shop.desk.partitions.enqueue([acquire(one) for one in keys], actor=Actor.OPERATOR)
    for wanted in keys:
        held = shop.desk.claimed(WorkerId("w2"))
        shop.desk.control.process_result(
            held,
            Verdict(run_id=held.run_id, outcome=VerdictOutcome.FAILED, reasons=["bad"]),
            sealed=sealed_by(held, wanted),
        )
    spoilt = shop.desk.reader.find_partition(keys[0])
    assert spoilt is not None
    books = shop.desk.queue._books  # type: ignore[attr-defined]
    last = books.runs[spoilt.last_run_id]
    books.runs[last.run_id] = evolve(last, payload={"version": 99})
    shop.clock.pass_time(500)
    shop.work = lambda run, _check: Result(
        verdict=passed(run).verdict, sealed=sealed_by(run, keys[1])
    )
    shop.worker.run()
    found = [shop.desk.reader.find_partition(one) for one in keys]
    assert [one and one.status for one in found] == [
        PartitionStatus.FAILED,
        PartitionStatus.SUCCESS,
    ]
    assert "partition.unreadable" in [record.kind for record in caplog.records]  # type: ignore[attr-defined]


def test_a_worker_that_waits_for_runs_stops_when_it_is_told(shop: Shop) -> None:
    shop.worker.settings = evolve(shop.worker.settings, until_idle=False, poll_s=3_600.0)
    shop.worker.is_stopping = lambda: bool(shop.clock.slept)
    shop.worker.run()
    assert sum(shop.clock.slept) <= 1


def test_a_worker_that_waits_is_woken_by_a_run(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter([True])
    monkeypatch.setattr(type(shop.desk.queue), "wait", lambda *_: next(waits))
    shop.worker.settings = evolve(shop.worker.settings, until_idle=False, poll_s=3_600.0)
    shop.worker._wait(3_600.0)
    assert (shop.clock.slept, list(waits)) == ([], [])


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (DISK, "worker.housekeeping_failed"),
        (DatabaseError(problem="away", remedy="wait"), "worker.database_away"),
    ],
)
def test_what_goes_wrong_in_the_house_keeps_no_run_from_its_work(
    shop: Shop, error: Exception, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    shop.desk.submitted()
    failures = iter([error])

    class Failing:
        """Cannot sweep, the first time."""

        def sweep(self) -> int:
            for failure in failures:
                raise failure
            return 0

        def __getattr__(self, name: str) -> object:
            return getattr(shop.desk.control, name)

    shop.worker.control = Failing()  # type: ignore[assignment]  # else the same
    shop.worker.run()
    assert len(shop.done) == 1
    assert kind in [getattr(record, "kind", None) for record in caplog.records]


def test_design_5_16_a_worker_removes_keys_whose_time_is_over(shop: Shop) -> None:
    def recorded(key: str, keep: timedelta | None) -> None:
        held = shop.keys.claim(key, fingerprint="f", owner="me", lease=timedelta(minutes=1))
        shop.keys.complete(held, b"1", keep=keep)

    recorded("old", timedelta(days=7))
    recorded("for ever", None)
    shop.clock.pass_time(timedelta(days=8).total_seconds())
    recorded("new", timedelta(days=7))
    shop.worker.run()
    assert shop.keys.forget_expired(limit=10) == 0
    assert [shop.keys.find(key) is None for key in ("old", "for ever", "new")] == [
        True,
        False,
        False,
    ]
