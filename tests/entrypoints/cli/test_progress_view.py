"""What the terminal shows of counted items and waits."""

import io
import time

import pytest
from attrs import evolve
from rich.console import Console

from tileferry.adapters.memory import ManualClock
from tileferry.application.ports.progress import (
    ItemsProcessed,
    PaceChanged,
    RequestHeld,
    RetryScheduled,
    RunFinished,
    Task,
)
from tileferry.domain.retry import HoldRule, Pace, RetryReason
from tileferry.domain.runs import RunId, RunKind, RunStatus
from tileferry.entrypoints.cli.progress_view import (
    ItemProgress,
    ProgressView,
    WaitPrinter,
    fit_line,
)
from tileferry.entrypoints.cli.signals import StopSignals

UNAVAILABLE = RetryScheduled(
    operation="GET listing",
    reason="provider: HTTP 503, no body",
    category="api_request",
    rule=RetryReason.BACKOFF,
    is_rate_limited=False,
    attempt=2,
    max_attempts=5,
    delay_s=1.2,
)
BROKEN_OFF = evolve(
    UNAVAILABLE,
    reason="provider: the response broke off: request or response body error / error reading",
    rule=RetryReason.RETRY_BUDGET,
)
RATE_LIMITED = RetryScheduled(
    operation="GET listing",
    reason="provider: HTTP 429",
    category="api_request",
    rule=RetryReason.RETRY_AFTER,
    is_rate_limited=True,
    attempt=1,
    max_attempts=5,
    delay_s=27.0,
)


def render_items(
    *, terminal: bool, silent_s: float = 0.0, tiles: int = 1_000, total: int | None = None
) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=80, no_color=True)
    progress = ItemProgress()
    with ProgressView(progress, console, silent_s=silent_s, line_every_s=0.01):
        for _ in range(tiles):
            progress(ItemsProcessed(task=Task.EXPORT, total=total))
        time.sleep(0.1)
    return stream.getvalue()


def test_long_operation_shows_count_on_terminal() -> None:
    seen = render_items(terminal=True)
    assert "Exporting: 1,000 tiles" in seen
    assert seen.endswith("\x1b[1A\x1b[2K")  # the lines are removed at the end


def test_known_total_is_shown() -> None:
    assert "Exporting: 1,000 of 4,000 tiles" in render_items(terminal=True, total=4_000)


def test_short_operation_shows_nothing() -> None:
    assert render_items(terminal=True, silent_s=30.0) == ""


def test_items_are_not_shown_without_terminal() -> None:
    assert render_items(terminal=False) == ""


@pytest.mark.parametrize("task", Task)
def test_every_task_has_words(task: Task) -> None:
    progress = ItemProgress()
    assert progress.describe_progress(0.0) == ""
    progress(ItemsProcessed(task=task, items=1_200))
    assert "1,200 " in progress.describe_progress(0.0)


def test_entries_of_audit_log_are_counted() -> None:
    progress = ItemProgress()
    progress(ItemsProcessed(task=Task.READ_AUDIT, items=1_000))
    progress(ItemsProcessed(task=Task.READ_AUDIT, items=200))
    progress(RunFinished(run_id=RunId("r"), kind=RunKind.DOWNLOAD_AREA, status=RunStatus.PASSED))
    assert progress.describe_progress(0.0) == "Reading the audit log: 1,200 entries"


def test_signal_interrupts_at_next_item() -> None:
    stop = StopSignals()
    progress = ItemProgress(stop)
    stop.asked = True
    with pytest.raises(KeyboardInterrupt):
        progress(ItemsProcessed(task=Task.IMPORT))
    assert progress.done == 1


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (UNAVAILABLE, "503, attempt 2 of 5 (backoff), again in 2 s"),
        (RATE_LIMITED, "rate limited (Retry-After); waiting 27 s"),
        (BROKEN_OFF, "the response broke off, attempt 2 of 5 (retry budget), again in 2 s"),
    ],
)
def test_wait_is_shown_with_reason_and_countdown(event: RetryScheduled, line: str) -> None:
    clock = ManualClock()
    progress = ItemProgress(None, clock.monotonic)
    assert progress.describe_wait(clock.monotonic()) == ""
    progress(event)
    assert progress.describe_wait(clock.monotonic()) == line
    clock.sleep(100.0)
    assert progress.describe_wait(clock.monotonic()) == ""


def test_request_behind_the_gate_is_shown() -> None:
    clock = ManualClock()
    progress = ItemProgress(None, clock.monotonic)
    progress(RequestHeld(operation="GET tile", rule=HoldRule.SOURCE_GATE, delay_s=12.0))
    assert progress.describe_wait(clock.monotonic()) == "source gate: waiting 12 s"


def test_pace_is_shown_with_its_cause_until_full_speed() -> None:
    progress = ItemProgress()
    assert progress.describe_pace() == ""
    progress(PaceChanged(pace=Pace(concurrency_max=8, level=4.2, cause="429")))
    assert progress.describe_pace() == "4 of 8 requests at a time: 429"
    progress(PaceChanged(pace=Pace(concurrency_max=8, level=0.5, cause="timeout")))
    assert progress.describe_pace() == "1 of 8 requests at a time, 0.1 s apart: timeout"
    view = ProgressView(progress, Console(width=80))
    assert len(list(view.render().rows)) == 5
    progress(PaceChanged(pace=Pace(concurrency_max=8)))
    assert progress.describe_pace() == ""


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (60, "1,200 of 2,000 tiles, 3 min left, 12 tiles/s"),
        (44, "1,200 of 2,000 tiles, 3 min left, 12 tiles/s"),
        (43, "1,200 of 2,000 tiles, 3 min left"),
        (10, "1,200 of 2,000 tiles"),
    ],
)
def test_narrow_terminal_drops_parts_but_no_digits(width: int, line: str) -> None:
    assert fit_line("1,200 of 2,000 tiles, 3 min left, 12 tiles/s", width) == line


def test_longest_wait_is_shown() -> None:
    clock = ManualClock()
    progress = ItemProgress(None, clock.monotonic)
    for event in (UNAVAILABLE, RATE_LIMITED, UNAVAILABLE):
        progress(event)
    clock.sleep(7.0)
    assert progress.describe_wait(clock.monotonic()) == "rate limited (Retry-After); waiting 20 s"


def test_wait_printer_prints_waits_only() -> None:
    stream = io.StringIO()
    printer = WaitPrinter(Console(file=stream, width=80))
    printer(RATE_LIMITED)
    printer(ItemsProcessed(task=Task.READ_AUDIT))
    assert stream.getvalue() == "rate limited (Retry-After); waiting 27 s\n"
