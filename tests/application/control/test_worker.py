"""A worker over books in memory: what it does with runs, and when it stops."""

import logging
from collections.abc import Callable

import pytest
from support.work_desk import download, memory_desk
from support.work_shop import DISK, Shop, passed, raises

from tileferry.application.control.worker import Result
from tileferry.domain.errors import (
    DatabaseError,
    InvalidValueError,
    LeaseLostError,
)
from tileferry.domain.runs import (
    Run,
    RunId,
    RunStatus,
    Verdict,
    VerdictOutcome,
    WorkerId,
)


@pytest.fixture
def shop() -> Shop:
    return Shop(memory_desk())


def test_spec4_runs_are_done_in_their_order_until_none_is_due(shop: Shop) -> None:
    runs = [shop.desk.submitted().run_id for _ in range(7)]
    shop.worker.run()
    assert shop.done == runs
    assert shop.desk.reader.counts() == {RunStatus.PASSED: 7}
    assert shop.worker.processed == 7


def test_spec4_a_retry_end_to_end(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    run = shop.desk.submitted()
    shop.work = raises(DISK)
    shop.worker.run()
    waiting = shop.desk.known(run)
    assert (waiting.status, waiting.retry_count, waiting.error_class) == (
        RunStatus.ERROR,
        1,
        "retryable",
    )
    shop.worker.run()
    assert len(shop.done) == 1
    shop.clock.pass_time(60)
    shop.work = None
    shop.worker.run()
    assert shop.desk.known(run).status is RunStatus.PASSED
    kinds = [record.kind for record in caplog.records]  # type: ignore[attr-defined]
    assert kinds == [
        "run.started",
        "run.retry_scheduled",
        "run.started",
        "run.retry_succeeded",
    ]
    starts = [record.getMessage() for record in caplog.records if "begins" in record.getMessage()]
    assert starts[0].endswith("initial attempt")
    assert starts[1].endswith("retry 1")
    assert "in 60 s" in caplog.records[1].getMessage()


def test_spec4_a_run_is_given_up_after_its_last_attempt(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    run = shop.desk.submitted()
    shop.work = raises(DISK)
    for _ in range(10):
        shop.worker.run()
        shop.clock.pass_time(3_600)
    assert len(shop.done) == 8
    known = shop.desk.known(run)
    assert (known.status, known.next_retry_at) == (RunStatus.ERROR, None)
    assert "run.max_attempts_reached" in [record.kind for record in caplog.records]  # type: ignore[attr-defined]


def test_spec4_a_final_error_is_said_loudly_at_once(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.desk.submitted()
    shop.work = raises(InvalidValueError(field="payload.bbox", value=1, problem="is no box"))
    shop.worker.run()
    (record,) = caplog.records
    assert (record.levelname, record.kind) == ("ERROR", "run.permanently_failed")  # type: ignore[attr-defined]


def test_an_error_in_one_run_of_a_batch_leaves_the_others_alone(shop: Shop) -> None:
    runs = [shop.desk.submitted() for _ in range(3)]

    def work(run: Run, _check: Callable[[], None]) -> Result:
        if run.run_id == runs[1].run_id:
            raise ZeroDivisionError
        return passed(run)

    shop.work = work
    shop.worker.run()
    assert [shop.desk.known(run).status for run in runs] == [
        RunStatus.PASSED,
        RunStatus.ERROR,
        RunStatus.PASSED,
    ]
    assert shop.desk.known(runs[1]).error_message == "ZeroDivisionError"


def test_a_verdict_with_remarks_is_kept_and_audited(shop: Shop) -> None:
    run = shop.desk.submitted()
    shop.work = lambda run, _check: Result(
        verdict=Verdict(
            run_id=run.run_id, outcome=VerdictOutcome.NEEDS_REVIEW, reasons=["2 tiles are old"]
        )
    )
    shop.worker.run()
    known = shop.desk.known(run)
    assert (known.status, known.error_message) == (RunStatus.NEEDS_REVIEW, "2 tiles are old")
    assert [event.transition for event in shop.desk.events()] == ["submit", "complete"]  # type: ignore[attr-defined]


def test_a_long_batch_is_reported_on_the_way(shop: Shop) -> None:
    for _ in range(3):
        shop.desk.submitted()
    seen = []

    def work(run: Run, _check: Callable[[], None]) -> Result:
        seen.append(dict(shop.desk.reader.counts()))
        shop.clock.pass_time(0.6)
        return passed(run)

    shop.work = work
    shop.worker.run()
    assert [counts.get(RunStatus.PASSED, 0) for counts in seen] == [0, 0, 2]
    assert shop.desk.reader.counts() == {RunStatus.PASSED: 3}


# Leases


def test_invariant_13_the_heart_keeps_the_leases_of_a_long_run(shop: Shop) -> None:
    for _ in range(2):
        shop.desk.submitted()

    def work(run: Run, check: Callable[[], None]) -> Result:
        for _ in range(10):
            shop.clock.pass_time(20)
            shop.heart.beat()
            assert shop.desk.control.sweep() == 0
            check()
        return passed(run)

    shop.work = work
    shop.worker.run()
    assert shop.desk.reader.counts() == {RunStatus.PASSED: 2}


def test_invariant_12_a_worker_whose_run_was_taken_stops(shop: Shop) -> None:
    run = shop.desk.submitted()

    def work(run: Run, check: Callable[[], None]) -> Result:
        shop.clock.pass_time(61)  # as if it had been stopped for a while
        shop.desk.control.sweep()
        other = shop.desk.claimed(WorkerId("w2"))
        shop.heart.beat()
        with pytest.raises(LeaseLostError):
            check()
        shop.desk.queue.complete([other])
        return passed(run)

    shop.work = work
    with pytest.raises(LeaseLostError, match="worker w1 has lost run"):
        shop.worker.run()
    known = shop.desk.known(run)
    assert (known.status, known.lease_epoch) == (RunStatus.PASSED, 2)


def test_invariant_12_a_worker_that_slept_past_its_lease_knows_it_without_asking(
    shop: Shop,
) -> None:
    shop.desk.submitted()

    def work(run: Run, check: Callable[[], None]) -> Result:
        shop.clock.pass_time(60)
        check()
        return passed(run)

    shop.work = work
    with pytest.raises(LeaseLostError):
        shop.worker.run()
    assert shop.desk.reader.counts() == {RunStatus.PROCESSING: 1}


def test_a_stale_worker_gives_back_what_it_claimed_with_its_last_report(shop: Shop) -> None:
    shop.desk.submitted(download("F1"))
    stolen: list[RunId] = []

    def work(run: Run, _check: Callable[[], None]) -> Result:
        shop.clock.pass_time(61)
        shop.desk.control.sweep()
        stolen.append(shop.desk.claimed(WorkerId("w2")).run_id)
        shop.desk.submitted(download("F2"))
        return passed(run)

    shop.work = work
    with pytest.raises(LeaseLostError):
        shop.worker.run()
    again = shop.desk.claimed(WorkerId("w3"))
    assert (again.run_id not in stolen, again.rescues) == (True, 0)


def test_a_heart_that_cannot_reach_the_queue_goes_on_beating(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.desk.submitted()

    def away(*_given: object, **_named: object) -> None:
        raise DatabaseError(problem="away", remedy="wait")

    def work(run: Run, check: Callable[[], None]) -> Result:
        with monkeypatch.context() as patch:
            patch.setattr(type(shop.desk.queue), "renew", away)
            shop.clock.pass_time(40)
            shop.heart.beat()
            check()
        shop.heart.beat()
        shop.clock.pass_time(59)
        check()
        return passed(run)

    shop.work = work
    shop.worker.run()
    assert shop.desk.reader.counts() == {RunStatus.PASSED: 1}
