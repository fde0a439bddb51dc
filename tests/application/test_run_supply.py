"""The next batch of runs is claimed while one is worked on; none of it is lost."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from support.work_desk import memory_desk
from support.work_shop import Shop, passed

from tileferry.application.worker import Result
from tileferry.domain.errors import (
    DatabaseError,
)
from tileferry.domain.runs import (
    Run,
    RunStatus,
    WorkerId,
)

# Claiming ahead


@pytest.fixture
def eager() -> Iterator[Shop]:
    """A shop whose next batch is claimed while one is worked on."""
    with ThreadPoolExecutor(max_workers=1) as background:
        yield Shop(memory_desk(), background=background)


def test_the_next_batch_is_claimed_while_one_is_worked_on(eager: Shop) -> None:
    runs = [eager.desk.submitted().run_id for _ in range(10)]
    under_way = []

    def work(run: Run, _check: Callable[[], None]) -> Result:
        if run.run_id == runs[1]:
            while eager.desk.reader.counts()[RunStatus.PROCESSING] < 6:
                pass
        under_way.append(eager.desk.reader.counts()[RunStatus.PROCESSING])
        return passed(run)

    eager.work = work
    eager.worker.run()
    assert eager.done == runs
    assert eager.desk.reader.counts() == {RunStatus.PASSED: 10}
    assert max(under_way) == 6


def test_what_was_claimed_ahead_is_given_back_by_one_who_stops(eager: Shop) -> None:
    runs = [eager.desk.submitted() for _ in range(9)]

    def work(run: Run, _check: Callable[[], None]) -> Result:
        while eager.desk.reader.counts().get(RunStatus.PROCESSING, 0) < 6:
            pass
        eager.stopping = True
        return passed(run)

    eager.work = work
    eager.worker.run()
    assert eager.desk.known(runs[0]).status is RunStatus.PASSED
    assert eager.desk.reader.counts() == {
        RunStatus.PASSED: 1,
        RunStatus.ERROR: 5,
        RunStatus.DISCOVERED: 3,
    }
    assert len(eager.desk.queue.claim(WorkerId("w2"), limit=9, lease=timedelta(minutes=1))) == 8


def test_a_claim_ahead_that_fails_loses_no_pass(
    eager: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(9):
        eager.desk.submitted()
    exchange, calls = type(eager.desk.queue).exchange, iter(range(100))

    def flaky(*given: object, **named: object) -> object:
        if next(calls) in {1, 3}:
            raise DatabaseError(problem="away", remedy="wait")
        return exchange(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(type(eager.desk.queue), "exchange", flaky)
    eager.worker.run()
    assert eager.desk.reader.counts() == {RunStatus.PASSED: 9}


def test_the_leases_of_what_was_claimed_ahead_are_kept(eager: Shop) -> None:
    for _ in range(6):
        eager.desk.submitted()

    def work(run: Run, check: Callable[[], None]) -> Result:
        while eager.desk.reader.counts().get(RunStatus.DISCOVERED):
            pass
        for _ in range(4):
            eager.clock.pass_time(20)
            eager.heart.beat()
            assert eager.desk.control.sweep() == 0
            check()
        return passed(run)

    eager.work = work
    eager.worker.run()
    assert eager.desk.reader.counts() == {RunStatus.PASSED: 6}
