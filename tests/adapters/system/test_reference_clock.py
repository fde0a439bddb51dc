"""The database's time, as a process without its clock tells it."""

from datetime import UTC, datetime, timedelta

import pytest

from tileferry.adapters.memory import ManualClock
from tileferry.adapters.system import ReferenceClock
from tileferry.adapters.system.reference_clock import READ_INTERVAL_S
from tileferry.domain.errors import DatabaseError

START = datetime(2026, 11, 1, tzinfo=UTC)


class Server:
    """Tells its time, and counts how often it is asked."""

    def __init__(self) -> None:
        self.time: datetime | None = START
        self.reads = 0

    def read_time(self) -> datetime:
        self.reads += 1
        if self.time is None:
            raise DatabaseError(problem="it is away", remedy="wait")
        return self.time


def test_invariant_14_jump_of_the_wall_clock_is_not_seen() -> None:
    host, server = ManualClock(), Server()
    clock = ReferenceClock(host, server.read_time)
    assert clock.now() == START.timestamp()
    host.set_wall_clock(host.now() + 86_400.0)
    clock.sleep(READ_INTERVAL_S / 2)
    assert clock.now() == START.timestamp() + READ_INTERVAL_S / 2
    assert (clock.monotonic(), host.slept) == (host.monotonic(), [READ_INTERVAL_S / 2])
    assert server.reads == 1


def test_reference_is_read_again_after_a_while() -> None:
    """A suspended host does not count; the server does."""
    host, server = ManualClock(), Server()
    clock = ReferenceClock(host, server.read_time)
    clock.now()
    server.time = START + timedelta(days=2)
    host.advance(READ_INTERVAL_S)
    assert clock.now() == server.time.timestamp()


def test_time_goes_on_while_the_server_is_away() -> None:
    host, server = ManualClock(), Server()
    clock = ReferenceClock(host, server.read_time)
    server.time = None
    with pytest.raises(DatabaseError):
        clock.now()
    server.time = START
    clock.now()
    server.time = None
    host.advance(READ_INTERVAL_S + 1.0)
    assert clock.now() == clock.now() == START.timestamp() + READ_INTERVAL_S + 1.0
    assert server.reads == 3
