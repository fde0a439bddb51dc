"""What people see of a download while it goes on."""

import os
import signal
import time
from io import StringIO

import pytest
from rich.console import Console
from support.audit_events import create_call_events

from tileferry.adapters.memory import ManualClock
from tileferry.application.ports import AuditSink, DownloadObserver
from tileferry.application.ports.downloads import TileFate
from tileferry.domain.retry import RateLimited, Retryable
from tileferry.entrypoints.cli.progress_view import ProgressView
from tileferry.entrypoints.cli.signals import StopSignals
from tileferry.entrypoints.cli.transfer_progress import DownloadProgress


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def progress(clock: ManualClock) -> DownloadProgress:
    return DownloadProgress(StopSignals(), clock.monotonic)


def test_progress_is_download_observer_and_audit_sink(progress: DownloadProgress) -> None:
    observer: DownloadObserver = progress
    assert isinstance(observer, AuditSink)


def test_listing_count_is_shown(progress: DownloadProgress) -> None:
    progress.on_listing(12_000)
    assert progress.describe_progress(0.0) == "listing: 12,000 tiles so far"


def test_rate_and_time_left_use_recent_seconds(
    progress: DownloadProgress, clock: ManualClock
) -> None:
    progress.on_begin(tiles=1_000, already_stored=100, estimated_bytes=9_000_000)
    for _ in range(20):
        clock.sleep(1.0)
        for _ in range(10):
            progress.on_tile(TileFate.STORED, 1_024)
    assert progress.describe_progress(clock.monotonic()) == (
        "300 of 1,000 tiles, 200.0 KiB, 10 tiles/s, 10.0 KiB/s, 1:10 left"
    )
    clock.sleep(60.0)  # nothing comes any more, and that shows
    assert progress.describe_progress(clock.monotonic()).endswith("0 tiles/s, 0 B/s")


def test_long_time_left_includes_hours(progress: DownloadProgress, clock: ManualClock) -> None:
    progress.on_begin(tiles=7_201, already_stored=0, estimated_bytes=1)
    clock.sleep(1.0)
    progress.on_tile(TileFate.STORED, 1)
    assert progress.describe_progress(clock.monotonic()).endswith("2:00:00 left")


def test_outcomes_are_counted_by_fate(progress: DownloadProgress) -> None:
    progress.on_begin(tiles=50, already_stored=3, estimated_bytes=1)
    for fate in (*TileFate, TileFate.STORED):
        progress.on_tile(fate, 0)
    assert progress.describe_outcomes() == (
        "3 from before, 1 downgraded, 1 failed, 1 missing, 1 too old, 1 wrong resolution, 2 stored"
    )
    progress.on_durable(2)
    assert progress.safe_in_all == 5


@pytest.mark.parametrize(
    ("failure", "line"),
    [
        (Retryable(), "attempt 1 of 3, again in "),
        (RateLimited(retry_after_s=27.0), "the provider asks for patience: 27 s"),
    ],
)
def test_wait_is_shown_with_reason_and_countdown(
    progress: DownloadProgress, clock: ManualClock, failure: Retryable | RateLimited, line: str
) -> None:
    assert progress.describe_wait(clock.monotonic()) == ""
    progress.emit(
        create_call_events([failure], clock=ManualClock(), key="k", correlation_id="c")[:1]
    )
    waiting = progress.describe_wait(clock.monotonic())
    assert line in waiting
    clock.sleep(100.0)
    assert progress.describe_wait(clock.monotonic()) == ""


def test_longest_wait_is_shown(progress: DownloadProgress, clock: ManualClock) -> None:
    for seconds in (5.0, 27.0, 3.0):
        events = create_call_events(
            [RateLimited(retry_after_s=seconds)], clock=ManualClock(), key="k", correlation_id="c"
        )
        progress.emit(events[:1])
    clock.sleep(7.0)
    assert progress.describe_wait(clock.monotonic()) == "the provider asks for patience: 20 s"


def test_signal_interrupts_at_next_progress_event() -> None:
    with StopSignals(grace_s=60.0) as stop:
        progress = DownloadProgress(stop)
        progress.on_begin(tiles=2, already_stored=0, estimated_bytes=1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert "stopping" in progress.describe_wait(0.0)
        with pytest.raises(KeyboardInterrupt):
            progress.on_tile(TileFate.STORED, 5)
        progress.on_durable(1)
    assert (progress.done, progress.safe) == (1, 1)


# How it is shown


def render_progress(
    progress: DownloadProgress, *, terminal: bool, silent_s: float = 0.0, lasting_s: float = 0.3
) -> str:
    file = StringIO()
    console = Console(file=file, force_terminal=terminal, width=100, height=20, no_color=True)
    with ProgressView(progress, console, silent_s=silent_s, line_every_s=0.05):
        time.sleep(lasting_s)
    return file.getvalue()


def test_progress_bar_is_shown_on_terminal(progress: DownloadProgress) -> None:
    progress.on_begin(tiles=10, already_stored=4, estimated_bytes=1)
    progress.on_tile(TileFate.STORED, 5)
    drawn = render_progress(progress, terminal=True)
    assert "━" in drawn
    assert "5 of 10 tiles" in drawn
    assert "4 from before, 1 stored" in drawn
    assert drawn.endswith("\x1b[2K")  # and nothing is left of it


def test_short_download_shows_no_bar(progress: DownloadProgress) -> None:
    assert render_progress(progress, terminal=True, silent_s=30.0, lasting_s=0.01) == ""


def test_plain_lines_are_printed_without_terminal(progress: DownloadProgress) -> None:
    progress.on_begin(tiles=10, already_stored=4, estimated_bytes=1)
    lines = render_progress(progress, terminal=False).splitlines()
    assert 2 <= len(lines) <= 7
    assert lines[0] == "4 of 10 tiles, 0 B, 0 tiles/s, 0 B/s"


def test_bar_has_no_total_while_listing(progress: DownloadProgress) -> None:
    progress.on_listing(7)
    assert "listing: 7 tiles so far" in render_progress(progress, terminal=True)
