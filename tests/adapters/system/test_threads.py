"""Workers: results as they come, no more under way than allowed, and an end that is one."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tileferry.adapters.system import InterruptibleClock, SystemClock, ThreadWorkers
from tileferry.adapters.system.threads import LEAVE_S


@pytest.fixture
def count_live_workers() -> Callable[[], int]:
    """Count the workers that the test has started; others may be left of other tests."""
    before = set(threading.enumerate())
    return lambda: sum(
        thread.name == "tileferry-worker" for thread in set(threading.enumerate()) - before
    )


def test_every_item_is_processed_once(count_live_workers: Callable[[], int]) -> None:
    results = ThreadWorkers(4).run(lambda item: item * 2, iter(range(100)), idle_s=1.0)
    assert sorted(result for result in results if result is not None) == [*range(0, 200, 2)]
    assert count_live_workers() == 0


def test_items_are_consumed_lazily() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(1_000):
            taken.append(item)
            yield item

    with closing(ThreadWorkers(3).run(lambda item: item, items(), idle_s=1.0)) as results:
        next(results)
        assert len(taken) <= 2 * 3


def test_none_is_yielded_while_idle() -> None:
    answer = threading.Event()
    with closing(
        ThreadWorkers(1).run(lambda _: answer.wait(10), iter([1]), idle_s=0.02)
    ) as results:
        assert next(results) is None
        answer.set()
        assert [result for result in results if result is not None] == [True]


def test_worker_error_is_raised_to_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        list(ThreadWorkers(2).run(lambda item: 1 // item, iter([1, 0, 1]), idle_s=1.0))


def test_close_waits_briefly_and_abandons_stuck_workers(
    count_live_workers: Callable[[], int],
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
    assert count_live_workers() == 1  # it is a daemon, and does not keep the process alive
    stuck.set()


@pytest.mark.parametrize("clock", [SystemClock(), InterruptibleClock()], ids=["plain", "attentive"])
def test_close_interrupts_sleeping_workers(
    clock: SystemClock, count_live_workers: Callable[[], int]
) -> None:
    waited: list[int] = []

    def work(item: int) -> int:
        if item:
            clock.sleep(60.0)
            waited.append(item)
        return item

    results = ThreadWorkers(4).run(work, iter(range(50)), idle_s=0.2)
    assert [next(results), next(results)] == [0, None]
    assert count_live_workers() == 4
    results.close()
    assert count_live_workers() == 0
    assert waited == []


def test_worker_sleeps_for_the_full_duration_during_a_run() -> None:
    def work(_item: int) -> float:
        begun_s = time.monotonic()
        SystemClock.sleep(0.05)
        return time.monotonic() - begun_s

    (waited_s,) = ThreadWorkers(1).run(work, iter([1]), idle_s=5.0)
    assert waited_s is not None
    assert waited_s >= 0.05
