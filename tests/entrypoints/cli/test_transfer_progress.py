"""What the terminal shows of a download or an upload."""

import os
import signal
import time
from io import StringIO

import pytest
from rich.console import Console

from tileferry.adapters.memory import ManualClock
from tileferry.application.ports.downloads import TileFate
from tileferry.application.ports.progress import (
    BatchAnswered,
    BatchSent,
    DownloadStarted,
    ListingProgressed,
    PassScheduled,
    RetryScheduled,
    TileProcessed,
    TilesStored,
    UploadFinished,
    UploadStarted,
)
from tileferry.domain.retry import RetryReason
from tileferry.domain.tiles import PerTileStatus, TileId, TileUploadStatus
from tileferry.entrypoints.cli.progress_view import ProgressView
from tileferry.entrypoints.cli.signals import StopSignals
from tileferry.entrypoints.cli.transfer_progress import DownloadProgress, UploadProgress


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def progress(clock: ManualClock) -> DownloadProgress:
    return DownloadProgress(StopSignals(), clock.monotonic)


def test_listing_count_is_shown(progress: DownloadProgress) -> None:
    progress(ListingProgressed(tiles=12_000))
    assert progress.describe_progress(0.0) == "listing: 12,000 tiles so far"


def test_rate_and_time_left_use_recent_seconds(
    progress: DownloadProgress, clock: ManualClock
) -> None:
    progress(DownloadStarted(tiles=1_000, already_stored=100, estimated_bytes=9_000_000))
    for _ in range(20):
        clock.sleep(1.0)
        for _ in range(10):
            progress(TileProcessed(TileFate.STORED, 1_024))
    assert progress.describe_progress(clock.monotonic()) == (
        "300 of 1,000 tiles, 1:10 left, 10 tiles/s, 200.0 KiB, 10.0 KiB/s"
    )
    clock.sleep(60.0)  # nothing comes any more, and that shows
    assert progress.describe_progress(clock.monotonic()).startswith("300 of 1,000 tiles, 0 tiles/s")


def test_long_time_left_includes_hours(progress: DownloadProgress, clock: ManualClock) -> None:
    progress(DownloadStarted(tiles=7_201, already_stored=0, estimated_bytes=1))
    clock.sleep(1.0)
    progress(TileProcessed(TileFate.STORED, 1))
    assert "2:00:00 left" in progress.describe_progress(clock.monotonic())


def test_outcomes_are_counted_by_fate(progress: DownloadProgress) -> None:
    progress(DownloadStarted(tiles=50, already_stored=3, estimated_bytes=1))
    for fate in (*TileFate, TileFate.STORED):
        progress(TileProcessed(fate, 0))
    assert progress.describe_outcomes() == (
        "3 already in the cache, 1 downgraded, 1 failed, 1 absent at the provider, 1 too old,"
        " 1 wrong resolution, 2 stored, 1 unchanged"
    )
    progress(TilesStored(tiles=2))
    assert progress.safe_in_all == 5


def test_signal_interrupts_at_next_progress_event() -> None:
    with StopSignals(grace_s=60.0) as stop:
        progress = DownloadProgress(stop)
        progress(DownloadStarted(tiles=2, already_stored=0, estimated_bytes=1))
        os.kill(os.getpid(), signal.SIGTERM)
        assert "stopping" in progress.describe_wait(0.0)
        with pytest.raises(KeyboardInterrupt):
            progress(TileProcessed(TileFate.STORED, 5))
        progress(TilesStored(tiles=1))
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
    progress(DownloadStarted(tiles=10, already_stored=4, estimated_bytes=1))
    progress(TileProcessed(TileFate.STORED, 5))
    drawn = render_progress(progress, terminal=True)
    assert "━" in drawn
    assert "5 of 10 tiles" in drawn
    assert "4 already in the cache, 1 stored" in drawn
    assert drawn.endswith("\x1b[2K")  # and nothing is left of it


def test_short_download_shows_no_bar(progress: DownloadProgress) -> None:
    assert render_progress(progress, terminal=True, silent_s=30.0, lasting_s=0.01) == ""


def test_plain_lines_are_printed_without_terminal(progress: DownloadProgress) -> None:
    progress(DownloadStarted(tiles=10, already_stored=4, estimated_bytes=1))
    lines = render_progress(progress, terminal=False).splitlines()
    assert 2 <= len(lines) <= 7
    assert lines[0] == "4 of 10 tiles, 0 tiles/s, 0 B, 0 B/s"


def test_bar_has_no_total_while_listing(progress: DownloadProgress) -> None:
    progress(ListingProgressed(tiles=7))
    assert "listing: 7 tiles so far" in render_progress(progress, terminal=True)


def test_upload_shows_delivered_tiles_and_answers() -> None:
    tiles = [TileId(source="cam", zoom=15, x=1, y=y) for y in range(3)]
    statuses = [TileUploadStatus.ACCEPTED, TileUploadStatus.DUPLICATE, TileUploadStatus.REJECTED]
    answers = tuple(
        PerTileStatus(tile_id=tile, status=status)
        for tile, status in zip(tiles, statuses, strict=True)
    )
    progress = UploadProgress(StopSignals())
    assert progress.describe_progress(0.0) == "0 tiles delivered, 0 B sent"
    progress(UploadStarted(flight_id="F7", tiles=5))
    progress(BatchAnswered(answers=answers, size_bytes=2_048))
    assert progress.describe_progress(0.0) == "2 of 5 tiles delivered, 2.0 KiB sent"
    assert progress.describe_outcomes() == "1 accepted, 1 there before, 1 rejected"
    report = progress.report("F7")
    progress(UploadFinished(report=report))
    assert (report.tiles_acknowledged, report.tiles_rejected) == (2, 1)


def test_upload_shows_how_long_the_answer_is_awaited(clock: ManualClock) -> None:
    progress = UploadProgress(StopSignals(), clock.monotonic)
    sent = BatchSent(tiles=3, size_bytes=2_048)
    progress(sent)
    assert progress.describe_wait(clock.monotonic()) == ""
    clock.advance(12.0)
    assert progress.describe_wait(clock.monotonic()) == "waiting for the answer, 12 s"
    progress(
        RetryScheduled(
            operation="POST",
            reason="HTTP 503",
            category="API_REQUEST",
            rule=RetryReason.BACKOFF,
            is_rate_limited=False,
            attempt=1,
            max_attempts=3,
            delay_s=2.0,
        )
    )
    shown = progress.describe_wait(clock.monotonic())
    assert shown == "503, attempt 1 of 3 (backoff), again in 2 s"
    clock.advance(3.0)
    assert progress.describe_wait(clock.monotonic()) == "", "the batch is sent again"
    progress(sent)
    clock.advance(5.0)
    assert progress.describe_wait(clock.monotonic()) == "waiting for the answer, 5 s"
    progress(BatchAnswered(answers=(), size_bytes=2_048))
    assert progress.describe_wait(clock.monotonic()) == ""


# Passes of a session


def test_next_pass_is_announced_and_counts_never_exceed_the_total() -> None:
    clock, stop = ManualClock(), StopSignals()
    progress = DownloadProgress(stop, clock.monotonic)
    progress(DownloadStarted(tiles=10, already_stored=2, estimated_bytes=0))
    for _ in range(5):
        progress(TileProcessed(TileFate.STORED, 1_024))
    for _ in range(3):
        progress(TileProcessed(TileFate.FAILED, 0))
    progress(TilesStored(tiles=5))
    progress(
        PassScheduled(
            number=2,
            reason="HTTP 503",
            rule=RetryReason.BACKOFF,
            tiles_left=3,
            delay_s=4.0,
            gives_up_in_s=1_790.0,
        )
    )
    clock.advance(1.0)
    assert progress.describe_wait(clock.monotonic()) == (
        "pass 2 in 3 s, 3 tiles left, HTTP 503 (backoff), giving up in 29:50"
    )
    assert (progress.done, progress.safe_in_all) == (7, 7)
    assert progress.describe_outcomes() == "2 already in the cache, 5 stored"
    progress(DownloadStarted(tiles=10, already_stored=7, estimated_bytes=0))
    for _ in range(3):
        progress(TileProcessed(TileFate.STORED, 1_024))
    progress(TilesStored(tiles=3))
    assert (progress.done, progress.total, progress.safe_in_all) == (10, 10, 10)
    assert progress.describe_outcomes() == "2 already in the cache, 8 stored"


def test_signal_between_passes_interrupts_at_once() -> None:
    stop = StopSignals()
    progress = DownloadProgress(stop)
    progress(DownloadStarted(tiles=10, already_stored=0, estimated_bytes=0))
    stop.asked = True
    scheduled = PassScheduled(
        number=2,
        reason="timeout",
        rule=RetryReason.BACKOFF,
        tiles_left=None,
        delay_s=4.0,
        gives_up_in_s=60.0,
    )
    with pytest.raises(KeyboardInterrupt):
        progress(scheduled)
