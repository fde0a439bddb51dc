"""What every Clock must do, the machine's own included."""

import asyncio
from typing import Protocol

import pytest

from tileferry.adapters.memory import ManualClock
from tileferry.adapters.system import SystemClock
from tileferry.application.ports import AsyncSleep, Clock


class SyncAsyncClock(Clock, Protocol):
    """A clock that can be slept on with and without an event loop."""

    sleep_async: AsyncSleep


@pytest.fixture(params=[ManualClock, SystemClock])
def clock(request: pytest.FixtureRequest) -> SyncAsyncClock:
    made: SyncAsyncClock = request.param()
    return made


def test_clock_implements_port(clock: SyncAsyncClock) -> None:
    assert isinstance(clock, Clock)


def test_now_is_unix_time_in_seconds(clock: SyncAsyncClock) -> None:
    year_2025, year_2200 = 1_735_689_600, 7_258_118_400
    assert year_2025 < clock.now() < year_2200


def test_monotonic_time_never_goes_back(clock: SyncAsyncClock) -> None:
    readings = [clock.monotonic() for _ in range(1_000)]
    assert readings == sorted(readings)


async def sleep_async(clock: SyncAsyncClock) -> None:
    await clock.sleep_async(0.02)


def test_sleep_lasts_at_least_requested_time(clock: SyncAsyncClock) -> None:
    before = clock.monotonic()
    clock.sleep(0.02)
    asyncio.run(sleep_async(clock))
    assert clock.monotonic() - before >= 0.04
