"""Counting aloud while a long log is read."""

import io
import logging

import pytest
from rich.console import Console
from support.audit_events import create_retry_attempted

from tileferry.adapters.memory import ManualClock, MemoryAuditSink
from tileferry.application import AuditTrail, RetryManager
from tileferry.application.audit_reader import AuditReader
from tileferry.entrypoints.cli.counting import show_reading

EVENTS = [create_retry_attempted(number) for number in range(1_200)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def reader(clock: ManualClock) -> AuditReader:
    log = MemoryAuditSink()
    log.emit(EVENTS)
    trail = AuditTrail(logger=logging.getLogger("test"))
    retries = RetryManager(clock=clock, new_id=lambda: "id", audit=trail, sleep=clock.sleep_async)
    return AuditReader(log=log, retries=retries)


def render_reading(
    reader: AuditReader, clock: ManualClock, *, terminal: bool, passes_s: float
) -> str:
    """Return what somebody sees who verifies the log and asks it for something."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80)
    with show_reading(reader, console, clock.monotonic) as counting:
        clock.advance(passes_s)
        assert counting.verify().chain.checked == len(EVENTS)
        assert len(list(counting.find_about("corr-7"))) == 1
    return out.getvalue()


def test_long_read_shows_count_on_terminal(reader: AuditReader, clock: ManualClock) -> None:
    seen = render_reading(reader, clock, terminal=True, passes_s=1.5)
    assert "Reading the audit log: 1,000 entries" in seen
    assert seen.endswith("\x1b[1A\x1b[2K")  # the line is taken away again


@pytest.mark.parametrize(("terminal", "passes_s"), [(True, 0.5), (False, 60.0)])
def test_short_or_non_terminal_read_is_silent(
    reader: AuditReader, clock: ManualClock, *, terminal: bool, passes_s: float
) -> None:
    assert render_reading(reader, clock, terminal=terminal, passes_s=passes_s) == ""
