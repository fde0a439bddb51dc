"""The pace of a source between threads: no more requests than it allows, and waits that end."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tileferry.adapters.memory import ManualClock
from tileferry.adapters.system import SharedPace, SystemClock
from tileferry.application.ports.downloads import WorkCancelled
from tileferry.domain.retry import Pace

PATIENCE_S = 10.0


def keep(pace: Pace) -> Pace:
    return pace


def drop(pace: Pace) -> Pace:
    return pace.slow_down("429", started_s=pace.dropped_s, now_s=pace.dropped_s)


def test_no_more_requests_run_than_the_pace_allows() -> None:
    shared = SharedPace(clock=SystemClock(), pace=Pace(concurrency_max=3))
    running: list[int] = []
    seen: list[int] = []

    def work(item: int) -> int:
        shared.begin_request()
        running.append(item)
        seen.append(len(running))
        time.sleep(0.001)
        running.remove(item)
        shared.end_request(keep)
        return item

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(work, range(200))) == [*range(200)]
    assert max(seen) <= 3


def test_request_waits_for_a_free_place() -> None:
    shared = SharedPace(clock=SystemClock(), pace=Pace(concurrency_max=1))
    shared.begin_request()
    started = threading.Event()

    def wait() -> None:
        shared.begin_request()
        started.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert not started.wait(0.05)
    shared.end_request(keep)
    assert started.wait(PATIENCE_S)
    thread.join(PATIENCE_S)


def test_recovered_pace_lets_several_waiting_requests_start() -> None:
    shared = SharedPace(clock=SystemClock(), pace=Pace(concurrency_max=4, level=1.0, cause="429"))
    shared.begin_request()
    started = threading.Semaphore(0)

    def wait() -> None:
        shared.begin_request()
        started.release()

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    shared.end_request(lambda pace: Pace(concurrency_max=pace.concurrency_max))
    for thread in threads:
        assert started.acquire(timeout=PATIENCE_S)
        thread.join(PATIENCE_S)


def test_request_is_refused_without_a_free_place() -> None:
    shared = SharedPace(clock=ManualClock(), pace=Pace(concurrency_max=2))
    assert [shared.try_begin_request() for _ in range(3)] == [0.0, 0.0, None]
    shared.end_request(keep)
    assert shared.try_begin_request() == 0.0


def test_start_at_a_low_pace_may_be_later() -> None:
    shared = SharedPace(clock=ManualClock(), pace=Pace(concurrency_max=8, level=0.5, cause="429"))
    starts = []
    for _ in range(3):
        starts.append(shared.try_begin_request())
        shared.end_request(keep)
    assert starts == [0.0, 0.1, 0.2]


def test_requests_start_apart_at_a_low_pace() -> None:
    clock = ManualClock()
    shared = SharedPace(clock=clock, pace=Pace(concurrency_max=8, level=0.5, cause="429"))
    starts = []
    for _ in range(3):
        starts.append(shared.begin_request())
        shared.end_request(keep)
    assert starts == [0.0, 0.1, 0.2]
    assert clock.slept == [0.1, 0.1]


def test_interrupted_wait_frees_its_place() -> None:
    class InterruptedClock(ManualClock):
        def sleep(self, seconds: float) -> None:  # noqa: ARG002  # it ends at once
            raise WorkCancelled

    shared = SharedPace(
        clock=InterruptedClock(), pace=Pace(concurrency_max=1, level=0.5, cause="429")
    )
    shared.begin_request()
    shared.end_request(keep)
    with pytest.raises(WorkCancelled):
        shared.begin_request()
    assert shared.end_request(drop)[0].level == 0.5
