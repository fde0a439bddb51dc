"""The thread that fetches: results as they come, a limit on those that wait, and an end."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice

import pytest
from attrs import define, field

from tileferry.adapters.system import InterruptibleClock, SystemClock, ThreadFetchRunner
from tileferry.adapters.system.threads import GATHER_S, LEAVE_S

PATIENCE_S = 10.0


@pytest.fixture
def count_live_threads() -> Callable[[], int]:
    """Count the threads that the test has started; others may be left of other tests."""
    before = set(threading.enumerate())
    return lambda: sum(
        thread.name == "tileferry-fetch" for thread in set(threading.enumerate()) - before
    )


@define(eq=False)
class CountingSteps:
    """Returns the numbers up to a limit, as many in a step as there is room for."""

    numbers: Iterator[int]
    on_step: Callable[[], object] = lambda: None
    at_once: int = 3
    room_seen: list[int] = field(factory=list)
    cancelled: bool = False
    closed: threading.Event = field(factory=threading.Event)

    def step(self, room: int) -> Sequence[int] | float | None:
        self.on_step()
        self.room_seen.append(room)
        if room == 0:
            return 30.0
        return list(islice(self.numbers, min(room, self.at_once))) or None

    def cancel(self) -> None:
        self.cancelled = True

    def close(self) -> None:
        self.closed.set()


def test_all_results_arrive_in_order(count_live_threads: Callable[[], int]) -> None:
    work = CountingSteps(iter(range(100)))
    batches = list(ThreadFetchRunner(8).run(work, idle_s=PATIENCE_S))
    assert [number for batch in batches for number in batch or ()] == [*range(100)]
    assert count_live_threads() == 0
    assert work.closed.is_set()


def test_results_that_wait_for_the_caller_are_limited() -> None:
    work = CountingSteps(iter(range(1_000)))
    with closing(ThreadFetchRunner(7).run(work, idle_s=PATIENCE_S)) as batches:
        first = next(batches)
        time.sleep(0.05)
        assert work.room_seen[-1] == 0
        steps = len(work.room_seen)
        time.sleep(0.05)
        assert len(work.room_seen) == steps, "it waits for the caller"
        second = next(batches)
        assert first is not None
        assert second is not None
        until_s = time.monotonic() + PATIENCE_S
        while len(work.room_seen) == steps and time.monotonic() < until_s:
            time.sleep(0.01)
        assert work.room_seen[steps] == len(first)


def test_none_is_yielded_while_idle() -> None:
    answer = threading.Event()
    work = CountingSteps(iter(range(2)), on_step=lambda: answer.wait(PATIENCE_S))
    with closing(ThreadFetchRunner(2).run(work, idle_s=0.02)) as batches:
        assert next(batches) is None
        answer.set()
        assert [batch for batch in batches if batch is not None] == [[0, 1]]


def test_error_of_a_step_is_raised_to_the_caller() -> None:
    work = CountingSteps(iter(()), on_step=lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        list(ThreadFetchRunner(2).run(work, idle_s=PATIENCE_S))
    assert work.closed.wait(PATIENCE_S)


def test_end_waits_briefly_and_abandons_a_stuck_step(
    count_live_threads: Callable[[], int],
) -> None:
    stuck = threading.Event()
    work = CountingSteps(iter(()), on_step=lambda: stuck.wait(20))
    batches = ThreadFetchRunner(4).run(work, idle_s=0.01)
    assert next(batches) is None
    begun_s = time.monotonic()
    batches.close()
    assert LEAVE_S <= time.monotonic() - begun_s < LEAVE_S + 5
    assert work.cancelled
    assert count_live_threads() == 1  # it is a daemon, and does not keep the process alive
    stuck.set()


@pytest.mark.parametrize("clock", [SystemClock(), InterruptibleClock()], ids=["plain", "attentive"])
def test_end_interrupts_a_sleeping_step(
    clock: SystemClock, count_live_threads: Callable[[], int]
) -> None:
    work = CountingSteps(iter(range(9)), on_step=lambda: clock.sleep(60.0))
    batches = ThreadFetchRunner(4).run(work, idle_s=0.05)
    assert next(batches) is None
    batches.close()
    assert count_live_threads() == 0
    assert work.room_seen == []


def test_step_sleeps_for_the_full_duration_during_a_run() -> None:
    begun_s = time.monotonic()
    work = CountingSteps(iter([1]), on_step=lambda: SystemClock.sleep(0.05))
    assert list(ThreadFetchRunner(1).run(work, idle_s=5.0)) == [[1]]
    assert time.monotonic() - begun_s >= 0.05


def test_limit_follows_from_the_number_of_requests() -> None:
    assert ThreadFetchRunner.for_requests(8).items_max == 32
    assert ThreadFetchRunner.for_requests(256).items_max == 256


def test_results_are_handed_over_several_at_a_time() -> None:
    work = CountingSteps(iter(range(8)), at_once=1)
    assert list(ThreadFetchRunner(8).run(work, idle_s=PATIENCE_S)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_results_do_not_wait_long_for_others() -> None:
    work = CountingSteps(iter(range(3)), on_step=lambda: time.sleep(GATHER_S), at_once=1)
    batches = list(ThreadFetchRunner(100).run(work, idle_s=PATIENCE_S))
    assert (batches[0], sum(map(len, filter(None, batches)))) == ([0, 1], 3)


def test_results_before_an_error_are_handed_over() -> None:
    numbers = iter([1, 1, 0])
    work = CountingSteps(iter(range(9)), on_step=lambda: 1 // next(numbers), at_once=1)
    batches = ThreadFetchRunner(100).run(work, idle_s=PATIENCE_S)
    assert next(batches) == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(batches)


def test_results_are_handed_over_before_a_wait_for_room() -> None:
    class WaitingSteps(CountingSteps):
        def step(self, room: int) -> Sequence[int] | float | None:
            return 30.0 if self.room_seen else super().step(room)

    work = WaitingSteps(iter(range(9)), at_once=1)
    with closing(ThreadFetchRunner(100).run(work, idle_s=PATIENCE_S)) as batches:
        assert next(batches) == [0]
