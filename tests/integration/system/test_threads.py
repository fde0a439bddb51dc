"""Workers: results as they come, no more under way than allowed, and an end that is one."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tileferry.adapters.system import AttentiveClock, SystemClock, ThreadWorkers
from tileferry.adapters.system.threads import LEAVE_S


@pytest.fixture
def workers_alive() -> Callable[[], int]:
    """Count the workers that the test has started; others may be left of other tests."""
    before = set(threading.enumerate())
    return lambda: sum(
        thread.name == "tileferry-worker" for thread in set(threading.enumerate()) - before
    )


def test_every_item_is_worked_on_once(workers_alive: Callable[[], int]) -> None:
    results = ThreadWorkers(4).run(lambda item: item * 2, iter(range(100)), idle_s=1.0)
    assert sorted(result for result in results if result is not None) == [*range(0, 200, 2)]
    assert workers_alive() == 0


def test_items_are_taken_as_they_are_needed() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(1_000):
            taken.append(item)
            yield item

    with closing(ThreadWorkers(3).run(lambda item: item, items(), idle_s=1.0)) as results:
        next(results)
        assert len(taken) <= 2 * 3


def test_while_nothing_comes_it_says_so() -> None:
    answer = threading.Event()
    with closing(
        ThreadWorkers(1).run(lambda _: answer.wait(10), iter([1]), idle_s=0.02)
    ) as results:
        assert next(results) is None
        answer.set()
        assert [result for result in results if result is not None] == [True]


def test_an_error_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        list(ThreadWorkers(2).run(lambda item: 1 // item, iter([1, 0, 1]), idle_s=1.0))


def test_when_it_is_closed_what_is_nearly_done_ends_and_the_rest_is_left(
    workers_alive: Callable[[], int],
) -> None:
    stuck = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            stuck.wait(20)
        time.sleep(0.02)
        return item

    results = ThreadWorkers(4).run(work, iter(range(50)), idle_s=1.0)
    assert next(results)
    begun_s = time.monotonic()
    results.close()
    assert time.monotonic() - begun_s < LEAVE_S + 5
    assert workers_alive() == 1  # it is a daemon, and does not keep the process alive
    stuck.set()


@pytest.mark.parametrize("clock", [SystemClock(), AttentiveClock()], ids=["plain", "attentive"])
def test_who_waits_by_the_clock_stops_waiting_when_it_is_over(
    clock: SystemClock, workers_alive: Callable[[], int]
) -> None:
    waited: list[int] = []

    def work(item: int) -> int:
        if item:
            clock.sleep(60.0)
            waited.append(item)
        return item

    results = ThreadWorkers(4).run(work, iter(range(50)), idle_s=0.2)
    assert [next(results), next(results)] == [0, None]
    assert workers_alive() == 4
    results.close()
    assert workers_alive() == 0
    assert waited == []


def test_within_the_run_a_worker_waits_as_long_as_it_says() -> None:
    def work(_item: int) -> float:
        begun_s = time.monotonic()
        SystemClock.sleep(0.05)
        return time.monotonic() - begun_s

    (waited_s,) = ThreadWorkers(1).run(work, iter([1]), idle_s=5.0)
    assert waited_s is not None
    assert waited_s >= 0.05
