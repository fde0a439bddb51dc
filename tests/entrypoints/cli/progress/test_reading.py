"""Counting aloud while a long log is read."""

import io
import logging

import pytest
from rich.console import Console
from support.audit_events import attempted

from tileferry.adapters.memory import ManualClock, MemoryAuditSink
from tileferry.application import AuditTrail, RetryManager
from tileferry.application.audit_reading import AuditReader
from tileferry.entrypoints.cli.progress.reading import showing

EVENTS = [attempted(number) for number in range(1_200)]


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


def shown(reader: AuditReader, clock: ManualClock, *, terminal: bool, passes_s: float) -> str:
    """Return what somebody sees who verifies the log and asks it for something."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80)
    with showing(reader, console, clock.monotonic) as counting:
        clock.pass_time(passes_s)
        assert counting.verify().chain.checked == len(EVENTS)
        assert len(list(counting.about("corr-7"))) == 1
    return out.getvalue()


def test_a_long_reading_is_counted_on_a_terminal(reader: AuditReader, clock: ManualClock) -> None:
    seen = shown(reader, clock, terminal=True, passes_s=1.5)
    assert "Reading the audit log: 1,000 entries" in seen
    assert seen.endswith("\x1b[1A\x1b[2K")  # the line is taken away again


@pytest.mark.parametrize(("terminal", "passes_s"), [(True, 0.5), (False, 60.0)])
def test_a_short_one_and_one_for_a_script_are_silent(
    reader: AuditReader, clock: ManualClock, *, terminal: bool, passes_s: float
) -> None:
    assert shown(reader, clock, terminal=terminal, passes_s=passes_s) == ""
