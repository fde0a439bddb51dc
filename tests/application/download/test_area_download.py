"""Downloading an area, with everything in memory and a provider that answers as it is told."""

import logging
from datetime import UTC, datetime
from typing import Any

import pytest
from support.download_env import RecordingListener
from support.managers import find_log_messages
from support.memory_download_env import (
    BOX,
    PRODUCED,
    ZOOM,
    MemoryDownloadEnv,
    create_fault,
    create_request,
    fetch_tiles,
    tile_content,
)

from tileferry.adapters.memory import (
    InlineFetchRunner,
    MemoryBlobIndex,
    MemoryCacheLock,
    MemoryTileStore,
)
from tileferry.application import DownloadSettings, GroupLimits
from tileferry.application.ports.downloads import TileFate
from tileferry.application.ports.progress import DownloadStarted
from tileferry.application.ports.provider import FetchedTile
from tileferry.domain.errors import (
    CacheBudgetExceededError,
    CacheLockError,
    NothingToResumeError,
    NotPermittedError,
    RateLimitedError,
    ResponseSchemaError,
    SatelliteProviderError,
)
from tileferry.domain.tiles import (
    DownloadOutcome,
    FreshnessLabel,
    ProviderFault,
    SectorClass,
    TileId,
)

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
SUCCESS, PARTIAL = DownloadOutcome.SUCCESS, DownloadOutcome.PARTIAL
UNAVAILABLE = ProviderFault.UNAVAILABLE


def test_area_is_downloaded_into_cache() -> None:
    area = MemoryDownloadEnv.with_tiles(5)
    area.provider.page_size = 2
    watcher = RecordingListener()
    report = area.create_download(progress=watcher).download_tiles_for_area(create_request())
    assert (report.outcome, report.tiles_downloaded, report.retry_count) == (SUCCESS, 5, 0)
    assert area.list_stored() == area.provider.tiles
    assert all(area.store.read_tile(tile) == tile_content(tile) for tile in area.provider.tiles)
    row = area.metadata.all_tiles()[0]
    assert (row.produced_at, row.resolution_m_per_px) == (PRODUCED, 0.6)  # as it was listed
    size = sum(len(tile_content(tile)) for tile in area.provider.tiles)
    assert (area.room.asked, area.room.released) == ([size], 2)
    assert watcher.listed == [2, 4, 5]
    assert watcher.started == DownloadStarted(tiles=5, already_stored=0, estimated_bytes=size)
    assert (watcher.fates, watcher.safe[-1]) == ([TileFate.STORED] * 5, 5)
    assert watcher.reports == [report]


def test_tile_metadata_overrides_listing() -> None:
    area = MemoryDownloadEnv.with_tiles(2)
    first, second = area.provider.tiles
    area.provider.answers = {
        first: {"resolution_m_per_px": 0.8, "produced_at": LONG_AGO},
        second: {"resolution_m_per_px": 0.3},
    }
    report = area.create_download().download_tiles_for_area(create_request())
    assert (report.tiles_rejected_resolution, report.tiles_downgraded) == (1, 1)
    (row,) = area.metadata.all_tiles()
    assert (row.tile_id, row.resolution_m_per_px, row.produced_at) == (first, 0.8, LONG_AGO)
    assert row.freshness is FreshnessLabel.DOWNGRADED


def test_tile_rejected_by_listed_resolution_is_not_fetched(
    caplog: pytest.LogCaptureFixture,
) -> None:
    area = MemoryDownloadEnv.with_tiles(2)
    first, second = area.provider.tiles
    area.provider.lines[first] = {"resolution_m_per_px": 0.3}
    report = area.create_download().download_tiles_for_area(create_request())
    assert (report.tiles_rejected_resolution, report.outcome) == (1, SUCCESS)
    assert area.provider.fetched == [second]
    assert len(find_log_messages(caplog, "c11.download.resolution_rejected")) == 1


def test_stale_tiles_in_active_conflict_are_rejected(caplog: pytest.LogCaptureFixture) -> None:
    area = MemoryDownloadEnv.with_tiles(3)
    area.provider.answers[area.provider.tiles[1]] = {"produced_at": LONG_AGO}
    asked = create_request(sector_class=SectorClass.ACTIVE_CONFLICT)
    report = area.create_download().download_tiles_for_area(asked)
    assert (report.tiles_rejected_freshness, report.tiles_downloaded) == (1, 2)
    assert len(find_log_messages(caplog, "c11.download.freshness_rejected")) == 1


def test_completed_download_is_no_op() -> None:
    area = MemoryDownloadEnv.with_tiles(3)
    area.create_download().download_tiles_for_area(create_request())
    area.provider.asked.clear()
    watcher = RecordingListener()
    report = area.create_download(progress=watcher).download_tiles_for_area(create_request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.IDEMPOTENT_NO_OP, 3)
    assert (watcher.reports, area.provider.asked) == ([report], [])


def test_only_a_started_download_is_resumable() -> None:
    area = MemoryDownloadEnv.with_tiles(3)
    with pytest.raises(NothingToResumeError):
        area.create_download().check_resumable(create_request())
    area.create_download().download_tiles_for_area(create_request())
    area.create_download().check_resumable(create_request())


def test_empty_listing_is_not_marked_complete() -> None:
    area = MemoryDownloadEnv.with_tiles(0)
    assert area.create_download().download_tiles_for_area(create_request()).outcome is SUCCESS
    area.provider.count = 2
    assert area.create_download().download_tiles_for_area(create_request()).tiles_downloaded == 2


def test_tiles_are_not_refetched_without_completion_mark() -> None:
    area = MemoryDownloadEnv.with_tiles(3)
    for _ in range(2):
        report = area.create_download(marks_complete=False).download_tiles_for_area(
            create_request()
        )
        assert (report.outcome, report.tiles_downloaded) == (SUCCESS, 3)
    assert area.provider.fetched == area.provider.tiles


def test_failed_tile_gives_partial_outcome_and_is_retried_next_run() -> None:
    area = MemoryDownloadEnv.with_tiles(3)
    gone = area.provider.tiles[1]
    area.provider.faults[gone] = [create_fault(ProviderFault.SCHEMA)]
    report = area.create_download().download_tiles_for_area(create_request())
    assert (report.outcome, report.tiles_failed) == (PARTIAL, 1)
    assert report.next_retry_at_s is None, "the answer would be the same"
    area.provider.asked.clear()
    watcher = RecordingListener()
    assert (
        area.create_download(progress=watcher).download_tiles_for_area(create_request()).outcome
        is SUCCESS
    )
    assert area.provider.fetched == [gone]
    assert watcher.started is not None
    assert watcher.started.already_stored == 2


def test_transient_faults_are_retried() -> None:
    area = MemoryDownloadEnv.with_tiles(2)
    area.provider.faults[None] = [create_fault(UNAVAILABLE)]
    area.provider.faults[area.provider.tiles[0]] = [create_fault(UNAVAILABLE)] * 2
    report = area.create_download().download_tiles_for_area(create_request())
    assert (report.outcome, report.retry_count) == (SUCCESS, 2)
    assert area.bench.clock.slept == [1.0, 1.0, 2.0]


def test_outage_aborts_download_and_keeps_stored_tiles(
    caplog: pytest.LogCaptureFixture,
) -> None:
    area = MemoryDownloadEnv.with_tiles(5)
    area.provider.faults[area.provider.tiles[3]] = [create_fault(UNAVAILABLE)] * 5
    watcher = RecordingListener()
    with pytest.raises(SatelliteProviderError) as failure:
        area.create_download(progress=watcher).download_tiles_for_area(create_request())
    assert failure.value.attempts == 5
    (report,) = watcher.reports
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.FAILURE, 3)
    assert (report.tiles_failed, report.retry_count) == (1, 4)
    assert len(find_log_messages(caplog, "c11.download.provider_failed")) == 1
    assert area.list_stored() == area.provider.tiles[:3]
    area.provider.asked.clear()
    assert area.create_download().download_tiles_for_area(create_request()).tiles_downloaded == 5
    assert area.provider.fetched == area.provider.tiles[3:]


def test_tiles_that_arrived_with_an_aborting_error_are_stored() -> None:
    class GatheringRunner(InlineFetchRunner):
        def run(self, work: Any, *, idle_s: float) -> Any:
            batches = super().run(work, idle_s=idle_s)
            yield [result for batch in batches for result in batch or ()]

    area = MemoryDownloadEnv.with_tiles(5)
    tiles = area.provider.tiles
    area.provider.faults[tiles[1]] = [create_fault(ProviderFault.UNAUTHORIZED)]
    area.provider.faults[tiles[3]] = [create_fault(ProviderFault.INSECURE)]
    watcher = RecordingListener()
    download = area.create_download(progress=watcher, runner=GatheringRunner())
    with pytest.raises(SatelliteProviderError) as failure:
        download.download_tiles_for_area(create_request())
    assert failure.value.fault is ProviderFault.UNAUTHORIZED
    assert area.list_stored() == [tiles[0], tiles[2], tiles[4]]
    (report,) = watcher.reports
    assert (report.tiles_downloaded, report.tiles_failed) == (3, 1)


def test_failed_tile_is_set_aside_while_others_are_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    area = MemoryDownloadEnv.with_tiles(5)
    bad = area.provider.tiles[1]
    area.provider.faults[bad] = [create_fault(UNAVAILABLE, status=503)] * 5
    watcher = RecordingListener()
    download = area.create_download(progress=watcher, runner=InlineFetchRunner(items_max=5))
    with pytest.raises(SatelliteProviderError, match="HTTP 503") as failure:
        download.download_tiles_for_area(create_request())
    assert failure.value.attempts == 5
    assert area.list_stored() == [tile for tile in area.provider.tiles if tile != bad]
    (report,) = watcher.reports
    assert (report.tiles_downloaded, report.tiles_failed, report.tiles_left) == (4, 1, 1)
    assert report.next_retry_at_s is not None
    assert len(find_log_messages(caplog, "c11.download.tile_failed")) == 1


def test_tile_failures_within_allowed_share_are_tolerated(caplog: pytest.LogCaptureFixture) -> None:
    area = MemoryDownloadEnv.with_tiles(4)
    area.provider.faults[area.provider.tiles[0]] = [create_fault(UNAVAILABLE)] * 5
    settings = DownloadSettings(max_failures_share=0.25)
    report = area.create_download(settings=settings).download_tiles_for_area(create_request())
    assert (report.outcome, report.tiles_failed, report.tiles_downloaded) == (PARTIAL, 1, 3)
    assert len(find_log_messages(caplog, "c11.download.tile_failed")) == 1


def test_second_429_raises_with_retry_after() -> None:
    area = MemoryDownloadEnv.with_tiles(2)
    busy = create_fault(ProviderFault.RATE_LIMITED, url="https://tiles", retry_after_s=7.0)
    area.provider.faults[area.provider.tiles[0]] = [busy] * 2
    watcher = RecordingListener()
    with pytest.raises(RateLimitedError) as failure:
        area.create_download(progress=watcher).download_tiles_for_area(create_request())
    assert (failure.value.url, failure.value.retry_after_s) == ("https://tiles", 7.0)
    (report,) = watcher.reports
    assert report.next_retry_at_s == area.bench.clock.now() + 7.0


def test_rate_limit_delays_all_calls() -> None:
    area = MemoryDownloadEnv.with_tiles(1)
    busy = create_fault(ProviderFault.RATE_LIMITED, retry_after_s=30.0)
    area.provider.faults[None] = [busy]
    calls = area.create_download().create_calls("one download")
    calls._classify_error(busy)  # told to another call, in another thread
    (tile,) = fetch_tiles(calls, area.provider.tiles[0])
    assert isinstance(tile, FetchedTile)
    assert tile.attempts == 1
    assert area.bench.clock.slept == [30.0]


def test_rate_limit_without_retry_after_delays_no_other_call() -> None:
    area = MemoryDownloadEnv.with_tiles(1)
    calls = area.create_download().create_calls("one download")
    calls._classify_error(create_fault(ProviderFault.RATE_LIMITED))
    fetch_tiles(calls, area.provider.tiles[0])
    assert area.bench.clock.slept == []


def test_invalid_listing_raises_schema_error() -> None:
    area = MemoryDownloadEnv.with_tiles(4)
    area.provider.page_size = 2
    elsewhere = TileId(source="satellite", zoom=ZOOM, x=1, y=1)
    area.provider.lines[area.provider.tiles[2]] = {"tile_id": elsewhere}
    with pytest.raises(ResponseSchemaError, match="response schema mismatch"):
        area.create_download().download_tiles_for_area(create_request())
    assert area.list_stored() == []


def test_coverage_is_listed_without_fetching() -> None:
    area = MemoryDownloadEnv.with_tiles(5)
    area.provider.page_size = 2
    listed = area.create_download().enumerate_remote_coverage(BOX, [ZOOM])
    assert [line.tile_id for line in listed] == area.provider.tiles
    assert area.provider.fetched == []


def test_nothing_is_fetched_without_budget_or_lock(caplog: pytest.LogCaptureFixture) -> None:
    area = MemoryDownloadEnv.with_tiles(2)
    area.room.available_bytes = 1
    with pytest.raises(CacheBudgetExceededError):
        area.create_download().download_tiles_for_area(create_request())
    assert len(find_log_messages(caplog, "c11.download.budget_exceeded")) == 1
    unlocked = area.create_download(lock=MemoryCacheLock())
    with pytest.raises(CacheLockError):
        unlocked.download_tiles_for_area(create_request())
    assert area.provider.fetched == []


def test_interrupted_download_commits_fetched_tiles(
    caplog: pytest.LogCaptureFixture,
) -> None:
    area = MemoryDownloadEnv.with_tiles(5)
    watcher = RecordingListener(interrupts_at=3)
    with pytest.raises(KeyboardInterrupt):
        area.create_download(progress=watcher).download_tiles_for_area(create_request())
    assert (area.list_stored(), watcher.safe[-1]) == (area.provider.tiles[:3], 3)
    assert len(find_log_messages(caplog, "c11.download.interrupted")) == 1
    assert watcher.reports[0].tiles_downloaded == 3


def test_programming_error_is_raised_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    area = MemoryDownloadEnv.with_tiles(3)
    area.provider.faults[area.provider.tiles[1]] = [ZeroDivisionError("a defect")]
    with pytest.raises(ZeroDivisionError, match="a defect"):
        area.create_download().download_tiles_for_area(create_request())
    assert len(find_log_messages(caplog, "c11.download.failed")) == 1
    assert area.list_stored() == area.provider.tiles[:1]


def test_not_permitted_error_is_raised_unchanged() -> None:
    area = MemoryDownloadEnv.with_tiles(1)
    refusal = NotPermittedError(what="bulk", problem="not acknowledged", remedy="do so")
    area.provider.faults[None] = [refusal]
    with pytest.raises(NotPermittedError):
        area.create_download().download_tiles_for_area(create_request())


def test_failed_download_reports_only_durable_tiles() -> None:
    class BreakingStore(MemoryTileStore):
        flushes = 0

        def flush(self) -> None:
            self.flushes += 1
            if self.flushes > 1:
                raise OSError("no disk any more")

    area = MemoryDownloadEnv.with_tiles(5)
    watcher = RecordingListener()
    store = BreakingStore(MemoryBlobIndex())
    settings = DownloadSettings(group=GroupLimits(tiles_max=2))
    download = area.create_download(
        tile_store=store,
        progress=watcher,
        settings=settings,
        runner=InlineFetchRunner(idles=False),
    )
    with pytest.raises(OSError, match="no disk any more"):
        download.download_tiles_for_area(create_request())
    assert watcher.fates == [TileFate.STORED] * 3  # the fourth broke its group
    assert watcher.reports[0].tiles_downloaded == 2
    assert area.list_stored() == area.provider.tiles[:2]
