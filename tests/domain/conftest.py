"""Domain tests run where sockets, file writes, processes, sleep and clocks are out of reach."""

import os
import sys
import time
from collections.abc import Iterator
from datetime import date, datetime
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

settings.register_profile("default", database=None, deadline=None, max_examples=100)
settings.register_profile("soak", database=None, deadline=None, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def character_tables() -> None:
    """Hypothesis makes these once, in a cache file that the guard below would refuse."""

    @settings(max_examples=1)
    @given(st.text())
    def draw(_text: str) -> None: ...

    draw()


class ForbiddenInDomainError(AssertionError):
    """The domain, or a test of it, reached for the outside."""


_blocking = False
_BLOCKED_EVENTS = {"os.remove", "os.rename", "os.mkdir", "os.system", "os.fork"}
_BLOCKED_FAMILIES = ("socket.", "subprocess.", "urllib.", "shutil.", "tempfile.")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC


def _refuse_io(event: str, args: tuple[Any, ...]) -> None:
    if not _blocking:
        return
    if event == "open":
        writing = bool(args[2] & _WRITING)
    else:
        writing = event in _BLOCKED_EVENTS or event.startswith(_BLOCKED_FAMILIES)
    if writing:
        raise ForbiddenInDomainError(f"{event} {args[:1]} in a domain test")


sys.addaudithook(_refuse_io)

# Clocks and sleep raise no audit event, so calls to these are caught as they are made.
_CLOCKS = {
    time.time,
    time.time_ns,
    time.monotonic,
    time.monotonic_ns,
    time.perf_counter,
    time.perf_counter_ns,
    time.sleep,
    time.gmtime,
    time.localtime,
    datetime.now,
    datetime.utcnow,
    datetime.today,
    date.today,
}


def _refuse_clock(frame: FrameType, event: str, called: Any) -> None:
    if event == "c_call" and called in _CLOCKS:
        caller = frame.f_globals.get("__name__", "")
        if caller.startswith(("tileferry.", "test_", "tests.")):
            raise ForbiddenInDomainError(f"{called.__qualname__} called from {caller}")


@pytest.fixture(autouse=True)
def pure(character_tables: None) -> Iterator[None]:  # noqa: ARG001  # asked for, so made first
    """Block the outside for the length of one test."""
    global _blocking  # noqa: PLW0603  # an audit hook cannot be removed, only switched
    _blocking = True
    sys.setprofile(_refuse_clock)
    try:
        yield
    finally:
        sys.setprofile(None)
        _blocking = False
