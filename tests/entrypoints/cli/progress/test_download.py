"""What people see of a download while it goes on."""

import os
import signal
import time
from io import StringIO

import pytest
from rich.console import Console
from support.retry_histories import call_events

from tileferry.adapters.memory import ManualClock
from tileferry.application.ports import AuditSink, DownloadObserver
from tileferry.application.ports.downloads import TileFate
from tileferry.domain.retry import RateLimited, Retryable
from tileferry.entrypoints.cli.progress.download import DownloadProgress
from tileferry.entrypoints.cli.progress.view import ProgressView
from tileferry.entrypoints.cli.signals import StopSignals


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def progress(clock: ManualClock) -> DownloadProgress:
    return DownloadProgress(StopSignals(), clock.monotonic)


def test_it_is_told_of_tiles_and_of_retries(progress: DownloadProgress) -> None:
    observer: DownloadObserver = progress
    assert isinstance(observer, AuditSink)


def test_the_listing_is_counted(progress: DownloadProgress) -> None:
    progress.listing(12_000)
    assert progress.headline(0.0) == "listing: 12,000 tiles so far"


def test_rate_and_time_left_follow_from_the_last_seconds(
    progress: DownloadProgress, clock: ManualClock
) -> None:
    progress.begun(tiles=1_000, already_stored=100, estimated_bytes=9_000_000)
    for _ in range(20):
        clock.sleep(1.0)
        for _ in range(10):
            progress.tile(TileFate.STORED, 1_024)
    assert progress.headline(clock.monotonic()) == (
        "300 of 1,000 tiles, 200.0 KiB, 10 tiles/s, 10.0 KiB/s, 1:10 left"
    )
    clock.sleep(60.0)  # nothing comes any more, and that shows
    assert progress.headline(clock.monotonic()).endswith("0 tiles/s, 0 B/s")


def test_a_long_time_is_written_with_its_hours(
    progress: DownloadProgress, clock: ManualClock
) -> None:
    progress.begun(tiles=7_201, already_stored=0, estimated_bytes=1)
    clock.sleep(1.0)
    progress.tile(TileFate.STORED, 1)
    assert progress.headline(clock.monotonic()).endswith("2:00:00 left")


def test_outcomes_are_counted_by_name(progress: DownloadProgress) -> None:
    progress.begun(tiles=50, already_stored=3, estimated_bytes=1)
    for fate in (*TileFate, TileFate.STORED):
        progress.tile(fate, 0)
    assert progress.outcomes() == (
        "3 from before, 1 downgraded, 1 failed, 1 missing, 1 too old, 1 wrong resolution, 2 stored"
    )
    progress.durable(2)
    assert progress.safe_in_all == 5


@pytest.mark.parametrize(
    ("failure", "line"),
    [
        (Retryable(), "attempt 1 of 3, again in "),
        (RateLimited(retry_after_s=27.0), "the provider asks for patience: 27 s"),
    ],
)
def test_a_wait_counts_down_with_its_reason(
    progress: DownloadProgress, clock: ManualClock, failure: Retryable | RateLimited, line: str
) -> None:
    assert progress.waiting(clock.monotonic()) == ""
    progress.emit(call_events([failure], clock=ManualClock(), key="k", correlation_id="c")[:1])
    waiting = progress.waiting(clock.monotonic())
    assert line in waiting
    clock.sleep(100.0)
    assert progress.waiting(clock.monotonic()) == ""


def test_the_longest_wait_is_shown(progress: DownloadProgress, clock: ManualClock) -> None:
    for seconds in (5.0, 27.0, 3.0):
        events = call_events(
            [RateLimited(retry_after_s=seconds)], clock=ManualClock(), key="k", correlation_id="c"
        )
        progress.emit(events[:1])
    clock.sleep(7.0)
    assert progress.waiting(clock.monotonic()) == "the provider asks for patience: 20 s"


def test_a_signal_ends_it_where_it_is_told_something() -> None:
    with StopSignals(grace_s=60.0) as stop:
        progress = DownloadProgress(stop)
        progress.begun(tiles=2, already_stored=0, estimated_bytes=1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert "stopping" in progress.waiting(0.0)
        with pytest.raises(KeyboardInterrupt):
            progress.tile(TileFate.STORED, 5)
        progress.durable(1)
    assert (progress.done, progress.safe) == (1, 1)


# How it is shown


def shown(
    progress: DownloadProgress, *, terminal: bool, silent_s: float = 0.0, lasting_s: float = 0.3
) -> str:
    file = StringIO()
    console = Console(file=file, force_terminal=terminal, width=100, height=20, no_color=True)
    with ProgressView(progress, console, silent_s=silent_s, line_every_s=0.05):
        time.sleep(lasting_s)
    return file.getvalue()


def test_on_a_terminal_there_is_a_bar(progress: DownloadProgress) -> None:
    progress.begun(tiles=10, already_stored=4, estimated_bytes=1)
    progress.tile(TileFate.STORED, 5)
    drawn = shown(progress, terminal=True)
    assert "━" in drawn
    assert "5 of 10 tiles" in drawn
    assert "4 from before, 1 stored" in drawn
    assert drawn.endswith("\x1b[2K")  # and nothing is left of it


def test_what_is_over_in_a_moment_shows_none(progress: DownloadProgress) -> None:
    assert shown(progress, terminal=True, silent_s=30.0, lasting_s=0.01) == ""


def test_elsewhere_there_is_a_plain_line_now_and_then(progress: DownloadProgress) -> None:
    progress.begun(tiles=10, already_stored=4, estimated_bytes=1)
    lines = shown(progress, terminal=False).splitlines()
    assert 2 <= len(lines) <= 7
    assert lines[0] == "4 of 10 tiles, 0 B, 0 tiles/s, 0 B/s"


def test_while_it_lists_the_bar_has_no_end_yet(progress: DownloadProgress) -> None:
    progress.listing(7)
    assert "listing: 7 tiles so far" in shown(progress, terminal=True)
