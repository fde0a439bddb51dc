"""Spec 5, AC-1 to AC-11, over real HTTP into a real cache.

AC-12, a kill in the middle, is in tests/e2e/test_download_crash.py.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.download_env import (
    DERKACHI,
    NOW_S,
    ZOOM,
    DownloadEnv,
    NewDownloadEnv,
    open_memory_download_env,
)
from support.scripted_provider import KEY, TILES, ScriptedProvider, tile_content, tile_path

from tileferry.adapters.system import SystemClock
from tileferry.application import DownloadSettings, GroupLimits
from tileferry.application.ports import TileDownloader
from tileferry.application.ports.progress import ProgressEvent, TileProcessed
from tileferry.domain.errors import (
    CacheBudgetExceededError,
    CacheLockError,
    RateLimitedError,
    SatelliteProviderError,
)
from tileferry.domain.tiles import DownloadOutcome, FreshnessLabel, ProviderFault, SectorClass
from tileferry.domain.tiles.selection import FetchMode


def create_answer(status: int, text: str = "", **headers: str) -> Callable[[Any], httpx.Response]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _request: httpx.Response(status, text=text, headers=named)


def find_log_records(caplog: pytest.LogCaptureFixture, kind: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "kind", None) == kind]


def test_spec5_ac1_accepted_tiles_are_written(
    new_download_env: NewDownloadEnv, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    site = new_download_env(100)
    report = site.create_downloader().download_tiles_for_area(site.create_request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.SUCCESS, 100)
    stored = site.list_stored()
    assert set(stored) == set(site.provider.tiles)
    for tile in site.provider.tiles:
        assert site.tile_store.tile_exists(tile)
        assert site.tile_store.read_tile(tile) == tile_content(tile)
    assert {row.flight_id for row in stored.values()} == {"F1"}
    assert report.bytes_downloaded == sum(len(tile_content(tile)) for tile in stored)
    (start,) = find_log_records(caplog, "c11.download.session.start")
    (end,) = find_log_records(caplog, "c11.download.session.end")
    assert vars(start)["tiles_requested"] == vars(end)["tiles_downloaded"] == 100
    assert vars(end)["outcome"] == "success"
    # First of all what a dead run left behind, and at last our own.
    assert site.budget.calls == ["release", "reserve", "release"]


@pytest.mark.parametrize("told_by", ["listing", "header"])
def test_spec5_ac2_sub_spec_tiles_are_rejected_and_never_written(
    new_download_env: NewDownloadEnv, told_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    site = new_download_env(50)
    coarse = site.provider.tiles[::5]
    for tile in coarse:
        if told_by == "listing":
            site.provider.lines[tile] = {"resolution_m_per_px": 0.3}
        else:
            site.provider.headers[tile] = {"x-resolution-m-per-px": "0.3"}
    report = site.create_downloader().download_tiles_for_area(site.create_request())
    assert report.tiles_rejected_resolution == 10
    assert (report.tiles_downloaded, report.outcome) == (40, DownloadOutcome.SUCCESS)
    assert len(site.tile_store.written) == 40
    assert not set(coarse) & set(site.tile_store.written)
    warned = find_log_records(caplog, "c11.download.resolution_rejected")
    assert {vars(record)["tile_id"] for record in warned} == {str(tile) for tile in coarse}
    assert len(warned) == 10
    assert all(record.levelno == logging.WARNING for record in warned)


def test_spec5_ac3_stale_tiles_are_rejected_and_the_run_continues(
    new_download_env: NewDownloadEnv, caplog: pytest.LogCaptureFixture
) -> None:
    site = new_download_env(20)
    stale = site.provider.tiles[3:8]
    for tile in stale:
        site.provider.headers[tile] = {"x-produced-at": "2020-01-01T00:00:00Z"}
    request = site.create_request(sector_class=SectorClass.ACTIVE_CONFLICT)
    report = site.create_downloader().download_tiles_for_area(request)
    assert (report.tiles_rejected_freshness, report.tiles_downloaded) == (5, 15)
    assert report.outcome is DownloadOutcome.SUCCESS
    assert set(site.list_stored()) == set(site.provider.tiles) - set(stale)
    (warned,) = find_log_records(caplog, "c11.download.freshness_rejected")
    assert (warned.levelno, vars(warned)["tiles_rejected_freshness"]) == (logging.WARNING, 5)


def test_spec5_ac4_stale_tiles_of_a_stable_rear_sector_are_downgraded(
    new_download_env: NewDownloadEnv,
) -> None:
    site = new_download_env(10)
    stale = site.provider.tiles[:3]
    for tile in stale:
        site.provider.headers[tile] = {"x-produced-at": "2020-01-01T00:00:00Z"}
    report = site.create_downloader().download_tiles_for_area(site.create_request())
    assert (report.tiles_downgraded, report.tiles_downloaded) == (3, 10)
    stored = site.list_stored()
    assert {tile for tile, row in stored.items() if row.freshness is FreshnessLabel.DOWNGRADED} == (
        set(stale)
    )


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_spec5_ac5_retry_after_of_a_429_is_respected(
    new_download_env: NewDownloadEnv, form: str
) -> None:
    site = new_download_env(5)
    when = datetime.fromtimestamp(NOW_S, UTC) + timedelta(seconds=30)
    told = "30" if form == "seconds" else format_datetime(when, usegmt=True)
    path = tile_path(site.provider.tiles[2])
    site.provider.once[path] = [create_answer(429, retry_after=told)]
    report = site.create_downloader().download_tiles_for_area(site.create_request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.SUCCESS, 5)
    assert report.retry_count == 1
    assert sum(site.clock.slept) >= 30


def test_spec5_ac5_second_429_raises(new_download_env: NewDownloadEnv) -> None:
    site = new_download_env(5)
    site.provider.always[tile_path(site.provider.tiles[0])] = create_answer(429, retry_after="7")
    with pytest.raises(RateLimitedError) as failure:
        site.create_downloader().download_tiles_for_area(site.create_request())
    assert (failure.value.attempts, failure.value.retry_after_s) == (2, 7.0)


def test_spec5_ac6_persistent_5xx_ends_the_run_and_keeps_stored_tiles(
    new_download_env: NewDownloadEnv, caplog: pytest.LogCaptureFixture
) -> None:
    site = new_download_env(40)
    broken = site.provider.tiles[30]
    site.provider.always[tile_path(broken)] = create_answer(503, "maintenance\x1b[2J")
    downloader = site.create_downloader()
    with pytest.raises(SatelliteProviderError) as failure:
        downloader.download_tiles_for_area(site.create_request())
    error = failure.value
    assert (error.status, error.attempts, error.fault) == (503, 5, ProviderFault.UNAVAILABLE)
    assert error.body_excerpt == "maintenance\\x1b[2J"
    assert error.url is not None
    assert error.url.endswith(tile_path(broken))
    assert [wait for wait in site.clock.slept if wait] == [1.0, 2.0, 4.0, 4.0]
    (end,) = find_log_records(caplog, "c11.download.provider_failed")
    assert end.levelno == logging.ERROR
    kept = set(site.list_stored())
    assert 1 <= len(kept) < 40
    # The run is resumable: what was kept is not asked for again.
    site.provider.always.clear()
    site.provider.requests.clear()
    report = site.create_downloader().download_tiles_for_area(site.create_request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.SUCCESS, 40)
    assert set(site.provider.tile_gets) == {
        tile_path(tile) for tile in site.provider.tiles if tile not in kept
    }


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("where", ["listing", "tile"])
def test_spec5_ac7_authentication_error_is_not_retried(
    new_download_env: NewDownloadEnv, status: int, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    site = new_download_env(3)
    path = TILES if where == "listing" else tile_path(site.provider.tiles[0])
    site.provider.always[path] = lambda request: httpx.Response(
        status, text=f"bad key: {request.headers['authorization']}"
    )
    with pytest.raises(SatelliteProviderError) as failure:
        site.create_downloader().download_tiles_for_area(site.create_request())
    assert (failure.value.status, failure.value.attempts) == (status, 1)
    assert failure.value.fault is ProviderFault.UNAUTHORIZED
    assert site.clock.slept == []
    assert len([each for each in site.provider.requests if each.url.path == path]) == 1
    assert "***" in (failure.value.body_excerpt or "")
    assert KEY not in f"{failure.value!r} {failure.value} {caplog.text}"


def test_spec5_ac8_a_complete_download_is_not_repeated(new_download_env: NewDownloadEnv) -> None:
    site = new_download_env(100)
    site.create_downloader().download_tiles_for_area(site.create_request())
    site.provider.requests.clear()
    site.tile_store.written.clear()
    report = site.create_downloader().download_tiles_for_area(site.create_request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.IDEMPOTENT_NO_OP, 100)
    assert (report.tiles_requested, report.bytes_downloaded) == (0, 0)
    assert (site.provider.requests, site.tile_store.written) == ([], [])


def test_spec5_ac9_nothing_is_fetched_when_the_budget_is_exceeded(
    new_download_env: NewDownloadEnv, caplog: pytest.LogCaptureFixture
) -> None:
    site = new_download_env(10)
    site.budget.available_bytes = 100
    with pytest.raises(CacheBudgetExceededError) as failure:
        site.create_downloader().download_tiles_for_area(site.create_request())
    needed = sum(len(tile_content(tile)) for tile in site.provider.tiles)
    assert (failure.value.requested_bytes, failure.value.shortfall_bytes) == (needed, needed - 100)
    assert (site.provider.tile_gets, site.tile_store.written) == ([], [])
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [vars(record)["kind"] for record in errors] == ["c11.download.budget_exceeded"]


def test_spec5_ac10_downloader_implements_the_protocol(new_download_env: NewDownloadEnv) -> None:
    assert isinstance(new_download_env(1).create_downloader(), TileDownloader)

    class Partial:
        def download_tiles_for_area(self, request: object) -> None: ...

    assert not isinstance(Partial(), TileDownloader)


def test_spec5_ac11_api_key_is_never_logged(
    new_download_env: NewDownloadEnv, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    site = new_download_env(10)
    site.provider.once[tile_path(site.provider.tiles[0])] = [create_answer(503), create_answer(429)]
    site.create_downloader().download_tiles_for_area(site.create_request())
    assert len(caplog.records) > 3
    everything = caplog.text + repr([vars(record) for record in caplog.records])
    assert KEY not in everything
    assert KEY not in repr(site.create_downloader())


def wait_for_late_requests(site: DownloadEnv) -> None:
    """Let the workers of a run that ended finish what they had begun to ask."""
    before = -1
    while len(site.provider.requests) != before:
        before = len(site.provider.requests)
        SystemClock.sleep(0.3)


def test_journaled_tiles_are_not_fetched_again(new_download_env: NewDownloadEnv) -> None:
    site = new_download_env(100)
    crash = 30

    class Killed(BaseException):
        """As sudden as it gets without losing the test."""

    seen = 0

    def die(event: ProgressEvent) -> None:
        nonlocal seen
        seen += isinstance(event, TileProcessed)
        if seen > crash and isinstance(event, TileProcessed):
            raise Killed

    settings = DownloadSettings(group=GroupLimits(tiles_max=10))
    with pytest.raises(Killed):
        site.create_downloader(progress=die, settings=settings).download_tiles_for_area(
            site.create_request()
        )
    journaled = len(site.list_stored())
    # A batch of results is stored before its tiles are reported; the last group is not flushed.
    assert 0 < journaled < 70
    wait_for_late_requests(site)
    site.provider.requests.clear()
    report = site.create_downloader().download_tiles_for_area(site.create_request())
    assert (report.tiles_downloaded, report.outcome) == (100, DownloadOutcome.SUCCESS)
    assert len(site.provider.tile_gets) == len(set(site.provider.tile_gets)) == 100 - journaled


# Beyond the criteria


def test_listing_reads_all_pages(new_download_env: NewDownloadEnv) -> None:
    site = new_download_env(25)
    site.provider.page_size = 10
    listed = site.create_downloader().enumerate_remote_coverage(DERKACHI, [ZOOM])
    assert [line.tile_id for line in listed] == list(site.provider.tiles)
    assert (listed[0].resolution_m_per_px, listed[0].produced_at) == (
        0.6,
        datetime(2026, 10, 1, tzinfo=UTC),
    )
    assert len(site.provider.requests) == 3


def test_listed_tile_answering_404_is_counted_as_missing(new_download_env: NewDownloadEnv) -> None:
    site = new_download_env(10)
    for tile in site.provider.tiles[:2]:
        site.provider.always[tile_path(tile)] = create_answer(404)
    report = site.create_downloader().download_tiles_for_area(site.create_request())
    assert (report.outcome, report.tiles_missing) == (DownloadOutcome.SUCCESS, 2)
    assert (report.tiles_downloaded, report.retry_count) == (8, 0)
    assert report.next_retry_at_s is None, "a retry would be answered the same way"
    site.provider.always.clear()
    site.provider.requests.clear()
    again = site.create_downloader().download_tiles_for_area(site.create_request())
    assert (again.outcome, again.tiles_downloaded) == (DownloadOutcome.SUCCESS, 10)
    assert len(site.provider.tile_gets) == 2


def test_finished_download_is_repeated_on_request(new_download_env: NewDownloadEnv) -> None:
    site = new_download_env(5)
    site.create_downloader().download_tiles_for_area(site.create_request())
    site.provider.requests.clear()
    again = site.create_downloader(settings=DownloadSettings(mode=FetchMode.AGAIN))
    report = again.download_tiles_for_area(site.create_request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.SUCCESS, 5)
    assert len(site.provider.tile_gets) == 5


def test_invariant_39_other_flight_and_sector_fetch_nothing_again(
    new_download_env: NewDownloadEnv,
) -> None:
    site = new_download_env(10)
    site.create_downloader().download_tiles_for_area(site.create_request())
    site.provider.requests.clear()
    other = site.create_request(flight_id="F2", sector_class=SectorClass.ACTIVE_CONFLICT)
    report = site.create_downloader().download_tiles_for_area(other)
    assert (report.tiles_downloaded, report.tiles_reused) == (10, 10)
    assert (site.provider.tile_gets, site.budget.asked[-1]) == ([], 0)
    repeated = site.create_downloader().download_tiles_for_area(other)
    assert (repeated.outcome, repeated.tiles_downloaded) == (DownloadOutcome.IDEMPOTENT_NO_OP, 10)


def test_download_without_the_lock_is_rejected(tmp_path: Path) -> None:
    provider = ScriptedProvider.for_area(DERKACHI, ZOOM, 1)
    with open_memory_download_env(tmp_path, provider) as site:
        elsewhere = site.create_request(cache_root=tmp_path / "elsewhere")
        with pytest.raises(CacheLockError, match="acquire the lock first"):
            site.create_downloader().download_tiles_for_area(elsewhere)
    assert provider.requests == []
