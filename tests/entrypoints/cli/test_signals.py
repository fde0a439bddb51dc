"""Signals become one interrupt, where it does no harm. What ends a process is tested end to end."""

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from tileferry.entrypoints.cli.signals import StopSignals


@pytest.fixture
def stop() -> Iterator[StopSignals]:
    with StopSignals(grace_s=60.0) as signals:
        yield signals


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_at_first_a_signal_interrupts_right_away(stop: StopSignals, number: signal.Signals) -> None:
    begun_s = time.monotonic()
    threading.Timer(0.1, send, [number]).start()
    with pytest.raises(KeyboardInterrupt):
        time.sleep(20)
    assert time.monotonic() - begun_s < 10
    assert stop.asked
    stop.check()  # once is enough


def test_deferred_it_interrupts_where_that_is_asked(stop: StopSignals) -> None:
    stop.defer()
    stop.check()
    send(signal.SIGINT)
    assert stop.asked
    with pytest.raises(KeyboardInterrupt):
        stop.check()
    stop.check()


def test_afterwards_signals_are_what_they_were() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with StopSignals():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
