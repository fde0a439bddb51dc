"""Downloading an area, with everything in memory and a provider that answers as it is told."""

import logging
from datetime import UTC, datetime
from typing import cast

import pytest
from support.download_watcher import Watcher
from support.managers import logged
from support.memory_area import (
    BOX,
    NOW_S,
    PRODUCED,
    ZOOM,
    InTurn,
    MemoryArea,
    fault,
    picture,
    request,
)

from tileferry.adapters.memory import (
    MemoryBlobIndex,
    MemoryCacheLock,
    MemoryTileStore,
)
from tileferry.application import DownloadSettings, GroupLimits
from tileferry.application.ports.downloads import TileFate, WorkEnded
from tileferry.application.ports.provider import FetchedTile, TileProvider
from tileferry.domain.errors import (
    CacheBudgetExceededError,
    CacheLockError,
    NotPermittedError,
    RateLimitedError,
    ResponseSchemaError,
    SatelliteProviderError,
)
from tileferry.domain.retry import RUN_POLICY
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


def test_an_area_comes_into_the_cache() -> None:
    area = MemoryArea.of(5)
    area.provider.page_size = 2
    watcher = Watcher()
    report = area.download(observer=watcher).download_tiles_for_area(request())
    assert (report.outcome, report.tiles_downloaded, report.retry_count) == (SUCCESS, 5, 0)
    assert area.stored() == area.provider.tiles
    assert all(area.store.read_tile(tile) == picture(tile) for tile in area.provider.tiles)
    row = area.metadata.all_tiles()[0]
    assert (row.produced_at, row.resolution_m_per_px) == (PRODUCED, 0.6)  # as it was listed
    size = sum(len(picture(tile)) for tile in area.provider.tiles)
    assert (area.room.asked, area.room.released) == ([size], 2)
    assert watcher.listed == [2, 4, 5]
    assert watcher.began == {"tiles": 5, "already_stored": 0, "estimated_bytes": size}
    assert (watcher.fates, watcher.safe[-1]) == ([TileFate.STORED] * 5, 5)
    assert watcher.reports == [report]


def test_what_comes_with_a_tile_counts_more_than_the_listing() -> None:
    area = MemoryArea.of(2)
    first, second = area.provider.tiles
    area.provider.answers = {
        first: {"resolution_m_per_px": 0.8, "produced_at": LONG_AGO},
        second: {"resolution_m_per_px": 0.3},
    }
    report = area.download().download_tiles_for_area(request())
    assert (report.tiles_rejected_resolution, report.tiles_downgraded) == (1, 1)
    (row,) = area.metadata.all_tiles()
    assert (row.tile_id, row.resolution_m_per_px, row.produced_at) == (first, 0.8, LONG_AGO)
    assert row.freshness is FreshnessLabel.DOWNGRADED


def test_what_the_listing_says_is_too_coarse_is_not_even_fetched(
    caplog: pytest.LogCaptureFixture,
) -> None:
    area = MemoryArea.of(2)
    first, second = area.provider.tiles
    area.provider.lines[first] = {"resolution_m_per_px": 0.3}
    report = area.download().download_tiles_for_area(request())
    assert (report.tiles_rejected_resolution, report.outcome) == (1, SUCCESS)
    assert area.provider.fetched == [second]
    assert len(logged(caplog, "c11.download.resolution_rejected")) == 1


def test_stale_tiles_of_a_conflict_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    area = MemoryArea.of(3)
    area.provider.answers[area.provider.tiles[1]] = {"produced_at": LONG_AGO}
    asked = request(sector_class=SectorClass.ACTIVE_CONFLICT)
    report = area.download().download_tiles_for_area(asked)
    assert (report.tiles_rejected_freshness, report.tiles_downloaded) == (1, 2)
    assert len(logged(caplog, "c11.download.freshness_rejected")) == 1


def test_a_download_that_was_finished_is_not_repeated_until_it_is_asked_for() -> None:
    area = MemoryArea.of(3)
    area.download().download_tiles_for_area(request())
    area.provider.asked.clear()
    watcher = Watcher()
    report = area.download(observer=watcher).download_tiles_for_area(request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.IDEMPOTENT_NO_OP, 3)
    assert (watcher.reports, area.provider.asked) == ([report], [])
    area.download().start_over(request())
    assert area.download().download_tiles_for_area(request()).outcome is SUCCESS
    assert area.provider.fetched == area.provider.tiles


def test_an_empty_listing_is_not_remembered_as_done() -> None:
    area = MemoryArea.of(0)
    assert area.download().download_tiles_for_area(request()).outcome is SUCCESS
    area.provider.count = 2
    assert area.download().download_tiles_for_area(request()).tiles_downloaded == 2


def test_where_completeness_is_not_marked_the_tiles_are_still_not_fetched_twice() -> None:
    area = MemoryArea.of(3)
    for _ in range(2):
        report = area.download(marks_complete=False).download_tiles_for_area(request())
        assert (report.outcome, report.tiles_downloaded) == (SUCCESS, 3)
    assert area.provider.fetched == area.provider.tiles


def test_a_missing_tile_is_no_outage_and_is_asked_for_again_next_time() -> None:
    area = MemoryArea.of(3)
    gone = area.provider.tiles[1]
    area.provider.faults[gone] = [fault(ProviderFault.NOT_FOUND)]
    report = area.download().download_tiles_for_area(request())
    assert (report.outcome, report.tiles_missing) == (PARTIAL, 1)
    assert report.next_retry_at_s == NOW_S + RUN_POLICY.base_delay
    area.provider.asked.clear()
    watcher = Watcher()
    assert area.download(observer=watcher).download_tiles_for_area(request()).outcome is SUCCESS
    assert area.provider.fetched == [gone]
    assert watcher.began["already_stored"] == 2


def test_a_fault_that_passes_is_tried_again() -> None:
    area = MemoryArea.of(2)
    area.provider.faults[None] = [fault(UNAVAILABLE)]
    area.provider.faults[area.provider.tiles[0]] = [fault(UNAVAILABLE)] * 2
    report = area.download().download_tiles_for_area(request())
    assert (report.outcome, report.retry_count) == (SUCCESS, 2)
    assert area.bench.clock.slept == [1.0, 1.0, 2.0]


def test_an_outage_ends_the_download_and_keeps_what_came(
    caplog: pytest.LogCaptureFixture,
) -> None:
    area = MemoryArea.of(5)
    area.provider.faults[area.provider.tiles[3]] = [fault(UNAVAILABLE)] * 5
    watcher = Watcher()
    with pytest.raises(SatelliteProviderError) as failure:
        area.download(observer=watcher).download_tiles_for_area(request())
    assert failure.value.attempts == 5
    (report,) = watcher.reports
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.FAILURE, 3)
    assert (report.tiles_failed, report.retry_count) == (1, 4)
    assert len(logged(caplog, "c11.download.provider_failed")) == 1
    assert area.stored() == area.provider.tiles[:3]
    area.provider.asked.clear()
    assert area.download().download_tiles_for_area(request()).tiles_downloaded == 5
    assert area.provider.fetched == area.provider.tiles[3:]


def test_so_many_tiles_may_fail_as_the_operator_allows(caplog: pytest.LogCaptureFixture) -> None:
    area = MemoryArea.of(4)
    area.provider.faults[area.provider.tiles[0]] = [fault(UNAVAILABLE)] * 5
    settings = DownloadSettings(max_failures_share=0.25)
    report = area.download(settings=settings).download_tiles_for_area(request())
    assert (report.outcome, report.tiles_failed, report.tiles_downloaded) == (PARTIAL, 1, 3)
    assert len(logged(caplog, "c11.download.tile_failed")) == 1


def test_a_second_429_ends_it_with_the_time_to_come_back() -> None:
    area = MemoryArea.of(2)
    busy = fault(ProviderFault.RATE_LIMITED, url="https://tiles", retry_after_s=7.0)
    area.provider.faults[area.provider.tiles[0]] = [busy] * 2
    watcher = Watcher()
    with pytest.raises(RateLimitedError) as failure:
        area.download(observer=watcher).download_tiles_for_area(request())
    assert (failure.value.url, failure.value.retry_after_s) == ("https://tiles", 7.0)
    (report,) = watcher.reports
    assert report.next_retry_at_s == area.bench.clock.now() + 7.0


def test_a_rate_limit_holds_up_every_call() -> None:
    area = MemoryArea.of(1)
    busy = fault(ProviderFault.RATE_LIMITED, retry_after_s=30.0)
    area.provider.faults[None] = [busy]
    calls = area.download().calls("one download")
    calls._class_of(busy)  # told to another call, in another thread
    assert calls.fetch(area.provider.tiles[0]).retries == 0
    assert area.bench.clock.slept == [30.0]


def test_a_rate_limit_without_a_time_holds_up_nobody_else() -> None:
    area = MemoryArea.of(1)
    calls = area.download().calls("one download")
    calls._class_of(fault(ProviderFault.RATE_LIMITED))
    calls.fetch(area.provider.tiles[0])
    assert area.bench.clock.slept == []


@pytest.mark.parametrize("answer", [[UNAVAILABLE], []], ids=["a fault", "a tile"])
def test_who_is_inside_a_call_when_the_run_ends_tries_nothing_again_and_tells_nothing(
    answer: list[ProviderFault],
) -> None:
    area = MemoryArea.of(1)
    (tile,) = area.provider.tiles
    area.provider.faults[tile] = [fault(UNAVAILABLE), *map(fault, answer)]
    calls = area.download().calls("one download")
    fetch_tile = area.provider.fetch_tile

    class EndsMeanwhile:
        def fetch_tile(self, tile_id: TileId) -> FetchedTile:
            if area.provider.asked:
                calls.close()
            return fetch_tile(tile_id)

    calls.provider = cast("TileProvider", EndsMeanwhile())
    with pytest.raises(WorkEnded):
        calls.fetch(tile)
    assert area.provider.asked == [tile, tile]
    assert len(area.bench.sink.events) == 1, "of the attempt before"


def test_a_listing_in_another_form_is_a_schema_error() -> None:
    area = MemoryArea.of(4)
    area.provider.page_size = 2
    elsewhere = TileId(source="satellite", zoom=ZOOM, x=1, y=1)
    area.provider.lines[area.provider.tiles[2]] = {"tile_id": elsewhere}
    with pytest.raises(ResponseSchemaError, match="response schema mismatch"):
        area.download().download_tiles_for_area(request())
    assert area.stored() == []


def test_coverage_is_listed_without_fetching() -> None:
    area = MemoryArea.of(5)
    area.provider.page_size = 2
    listed = area.download().enumerate_remote_coverage(BOX, [ZOOM])
    assert [line.tile_id for line in listed] == area.provider.tiles
    assert area.provider.fetched == []


def test_without_room_or_lock_nothing_is_fetched(caplog: pytest.LogCaptureFixture) -> None:
    area = MemoryArea.of(2)
    area.room.available_bytes = 1
    with pytest.raises(CacheBudgetExceededError):
        area.download().download_tiles_for_area(request())
    assert len(logged(caplog, "c11.download.budget_exceeded")) == 1
    unlocked = area.download(lock=MemoryCacheLock())
    for refused in (unlocked.download_tiles_for_area, unlocked.start_over):
        with pytest.raises(CacheLockError):
            refused(request())
    assert area.provider.fetched == []


def test_who_interrupts_it_gets_what_was_taken_made_safe(
    caplog: pytest.LogCaptureFixture,
) -> None:
    area = MemoryArea.of(5)
    watcher = Watcher(interrupts_at=3)
    with pytest.raises(KeyboardInterrupt):
        area.download(observer=watcher).download_tiles_for_area(request())
    assert (area.stored(), watcher.safe[-1]) == (area.provider.tiles[:3], 3)
    assert len(logged(caplog, "c11.download.interrupted")) == 1
    assert watcher.reports[0].tiles_downloaded == 3


def test_a_defect_ends_it_as_what_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    area = MemoryArea.of(3)
    area.provider.faults[area.provider.tiles[1]] = [ZeroDivisionError("a defect")]
    with pytest.raises(ZeroDivisionError, match="a defect"):
        area.download().download_tiles_for_area(request())
    assert len(logged(caplog, "c11.download.failed")) == 1
    assert area.stored() == area.provider.tiles[:1]


def test_what_is_not_permitted_is_told_as_that() -> None:
    area = MemoryArea.of(1)
    refusal = NotPermittedError(what="bulk", problem="not acknowledged", remedy="do so")
    area.provider.faults[None] = [refusal]
    with pytest.raises(NotPermittedError):
        area.download().download_tiles_for_area(request())


def test_after_an_error_only_those_count_that_are_safe() -> None:
    class BreakingStore(MemoryTileStore):
        flushes = 0

        def flush(self) -> None:
            self.flushes += 1
            if self.flushes > 1:
                raise OSError("no disk any more")

    area = MemoryArea.of(5)
    watcher = Watcher()
    store = BreakingStore(MemoryBlobIndex())
    settings = DownloadSettings(group=GroupLimits(tiles_max=2))
    download = area.download(
        tile_store=store, observer=watcher, settings=settings, workers=InTurn(idles=False)
    )
    with pytest.raises(OSError, match="no disk any more"):
        download.download_tiles_for_area(request())
    assert watcher.fates == [TileFate.STORED] * 3  # the fourth broke its group
    assert watcher.reports[0].tiles_downloaded == 2
    assert area.stored() == area.provider.tiles[:2]
