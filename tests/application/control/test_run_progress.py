"""The progress of a run, counted from the events of its work."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tileferry.adapters.memory import ManualClock
from tileferry.application.control.run_progress import RunProgressTracker
from tileferry.application.ports.downloads import TileFate
from tileferry.application.ports.progress import (
    BatchAnswered,
    CacheAwaited,
    DownloadStarted,
    ListingProgressed,
    ProgressEvent,
    RetryScheduled,
    RunStarted,
    TileProcessed,
    UploadStarted,
)
from tileferry.domain.retry import RetryReason
from tileferry.domain.runs import RunId, RunKind, RunProgress
from tileferry.domain.tiles import PerTileStatus, TileId, TileUploadStatus

R1 = RunId("r1")
STARTED = RunStarted(run_id=R1, kind=RunKind.DOWNLOAD_AREA)
RETRY = RetryScheduled(
    operation="GET",
    reason="HTTP 503",
    category="API_REQUEST",
    rule=RetryReason.BACKOFF,
    is_rate_limited=False,
    attempt=1,
    max_attempts=5,
    delay_s=4.0,
)


def feed(tracker: RunProgressTracker, *events: ProgressEvent) -> None:
    for event in events:
        tracker(event)


def test_download_is_counted_with_rate_and_time_left() -> None:
    clock = ManualClock()
    heard: list[ProgressEvent] = []
    tracker = RunProgressTracker(clock=clock, listener=heard.append)
    assert tracker.get_progress(R1) is None
    feed(tracker, STARTED, ListingProgressed(tiles=40))
    assert tracker.get_progress(R1) == RunProgress()
    feed(tracker, DownloadStarted(tiles=40, already_stored=10, estimated_bytes=1))
    clock.advance(5)
    feed(tracker, *[TileProcessed(TileFate.STORED, 100)] * 10)
    progress = tracker.get_progress(R1)
    assert progress == RunProgress(
        tiles_done=20, tiles_total=40, tiles_before=10, size_bytes=1_000, elapsed_s=5.0
    )
    assert (progress.tiles_per_s, progress.left_s) == (2.0, 10.0)
    assert tracker.get_progress(RunId("other")) is None
    assert len(heard) == 13


def test_waits_are_told_until_they_are_over() -> None:
    clock = ManualClock()
    tracker = RunProgressTracker(clock=clock)
    feed(tracker, STARTED, RETRY)
    assert tracker.get_progress(R1) == RunProgress(waiting="HTTP 503")
    clock.advance(4)
    assert tracker.get_progress(R1) == RunProgress()
    feed(tracker, CacheAwaited(problem="process 7 holds it"), RETRY)
    assert tracker.get_progress(R1) == RunProgress(waiting="the cache: process 7 holds it")


def test_upload_counts_acknowledged_tiles() -> None:
    tracker = RunProgressTracker(clock=ManualClock())
    tile = TileId(source="satellite", zoom=1, x=0, y=0)
    answers = tuple(PerTileStatus(tile_id=tile, status=status) for status in TileUploadStatus)
    feed(
        tracker,
        STARTED,
        UploadStarted(flight_id="F1", tiles=5),
        BatchAnswered(answers=answers, size_bytes=7),
    )
    assert tracker.get_progress(R1) == RunProgress(tiles_done=2, tiles_total=5, size_bytes=7)


def test_next_run_starts_from_zero() -> None:
    tracker = RunProgressTracker(clock=ManualClock())
    feed(tracker, STARTED, DownloadStarted(tiles=4, already_stored=4, estimated_bytes=0))
    feed(tracker, RunStarted(run_id=RunId("r2"), kind=RunKind.UPLOAD_FLIGHT))
    assert tracker.get_progress(R1) is None
    assert tracker.get_progress(RunId("r2")) == RunProgress()


@given(
    st.integers(0, 10**6),
    st.none() | st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.floats(0, 1e6),
    st.none() | st.just("rain"),
)
def test_progress_survives_json_and_never_lasts_negative(
    done: int, total: int | None, before: int, elapsed_s: float, waiting: str | None
) -> None:
    progress = RunProgress(
        tiles_done=done,
        tiles_total=total,
        tiles_before=before,
        elapsed_s=elapsed_s,
        waiting=waiting,
    )
    assert RunProgress.from_json(progress.as_json()) == progress
    assert progress.left_s is None or progress.left_s >= 0


def test_unreadable_progress_is_ignored() -> None:
    broken: tuple[Any, ...] = (None, [], {}, {**RunProgress().as_json(), "tiles_done": -1})
    for bad in broken:
        assert RunProgress.from_json(bad) is None
