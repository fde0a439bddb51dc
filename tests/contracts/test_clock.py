"""What every Clock must do, the machine's own included."""

import asyncio
from typing import Protocol

import pytest

from tileferry.adapters.memory import ManualClock
from tileferry.adapters.system import SystemClock
from tileferry.application.ports import AsyncSleep, Clock


class BothWays(Clock, Protocol):
    """A clock that can be slept on with and without an event loop."""

    sleep_async: AsyncSleep


@pytest.fixture(params=[ManualClock, SystemClock])
def clock(request: pytest.FixtureRequest) -> BothWays:
    made: BothWays = request.param()
    return made


def test_it_is_a_clock(clock: BothWays) -> None:
    assert isinstance(clock, Clock)


def test_now_is_in_seconds_of_this_era(clock: BothWays) -> None:
    year_2025, year_2200 = 1_735_689_600, 7_258_118_400
    assert year_2025 < clock.now() < year_2200


def test_monotonic_time_never_goes_back(clock: BothWays) -> None:
    readings = [clock.monotonic() for _ in range(1_000)]
    assert readings == sorted(readings)


async def sleep_async(clock: BothWays) -> None:
    await clock.sleep_async(0.02)


def test_sleeping_takes_the_time_it_says(clock: BothWays) -> None:
    before = clock.monotonic()
    clock.sleep(0.02)
    asyncio.run(sleep_async(clock))
    assert clock.monotonic() - before >= 0.04
