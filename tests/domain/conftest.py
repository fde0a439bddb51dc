"""Domain tests run where sockets, file writes, processes, sleep and clocks are out of reach."""

import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date, datetime
from functools import wraps
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

settings.register_profile(
    "default", database=None, deadline=None, max_examples=20, stateful_step_count=15
)
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


def _forbid_io(event: str, args: tuple[Any, ...]) -> None:
    if not _blocking:
        return
    if event == "open":
        writing = bool(args[2] & _WRITING)
    else:
        writing = event in _BLOCKED_EVENTS or event.startswith(_BLOCKED_FAMILIES)
    if writing:
        raise ForbiddenInDomainError(f"{event} {args[:1]} in a domain test")


sys.addaudithook(_forbid_io)


def _forbid_clock(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a clock so that it refuses this project's code; the test tools keep their time."""

    @wraps(original)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if _blocking and caller.startswith(("tileferry.", "test_", "tests.")):
            raise ForbiddenInDomainError(f"{name} called from {caller}")
        return original(*args, **kwargs)

    return guarded


def _guard_clocks() -> None:
    """Clocks and sleep raise no audit event, so each is replaced by one that refuses.

    A class of the standard library takes no assignment; its own dictionary does.
    """
    clocks = ("time", "monotonic", "perf_counter", "process_time")
    for name in (*clocks, *(f"{clock}_ns" for clock in clocks), "gmtime", "localtime", "sleep"):
        setattr(time, name, _forbid_clock(f"time.{name}", getattr(time, name)))
    for kind, name in ((datetime, "now"), (datetime, "utcnow"), (date, "today")):
        namespace = gc.get_referents(kind.__dict__)[0]
        namespace[name] = staticmethod(
            _forbid_clock(f"{kind.__name__}.{name}", getattr(kind, name))
        )
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


_guard_clocks()


@pytest.fixture(autouse=True)
def block_outside_access(character_tables: None) -> Iterator[None]:  # noqa: ARG001  # asked for, so made first
    """Block the outside for the length of one test."""
    global _blocking  # noqa: PLW0603  # an audit hook cannot be removed, only switched
    # The test tools import some of their modules late; those must not leave bytecode behind either.
    writes_bytecode = sys.dont_write_bytecode
    sys.dont_write_bytecode = _blocking = True
    try:
        yield
    finally:
        _blocking = False
        sys.dont_write_bytecode = writes_bytecode
