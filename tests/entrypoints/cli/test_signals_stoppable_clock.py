"""A wait hears of a signal whose interrupt was lost on its way."""

import threading
import time

import pytest

from tileferry.application.ports import Clock
from tileferry.entrypoints.cli.signals import StoppableClock, StopSignals


def test_sleep_in_main_thread_ends_on_signal() -> None:
    stop = StopSignals()
    clock = StoppableClock(stop)
    assert isinstance(clock, Clock)
    stop.asked = True  # and nobody heard of it
    started_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        clock.sleep(30.0)
    assert time.monotonic() - started_s < 10


def test_other_sleeps_last_their_full_time() -> None:
    stop = StopSignals()
    clock = StoppableClock(stop)
    started_s = time.monotonic()
    clock.sleep(0.3)
    stop.asked = True
    worker = threading.Thread(target=clock.sleep, args=(0.3,))
    worker.start()
    worker.join()
    assert time.monotonic() - started_s >= 0.6
