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


def send_signal(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_interrupts_at_once_by_default(stop: StopSignals, number: signal.Signals) -> None:
    begun_s = time.monotonic()
    threading.Timer(0.1, send_signal, [number]).start()
    with pytest.raises(KeyboardInterrupt):
        time.sleep(20)
    assert time.monotonic() - begun_s < 10
    assert stop.asked
    stop.check()  # once is enough


def test_deferred_signal_interrupts_at_check(stop: StopSignals) -> None:
    stop.defer()
    stop.check()
    send_signal(signal.SIGINT)
    assert stop.asked
    with pytest.raises(KeyboardInterrupt):
        stop.check()
    stop.check()


def test_signal_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with StopSignals():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
