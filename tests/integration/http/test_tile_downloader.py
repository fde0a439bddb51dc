"""Spec 5, AC-1 to AC-11, twice: with fakes, and over real HTTP into a real cache.

AC-12, a kill in the middle, is in tests/e2e/test_download_crash.py, and here with fakes.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.download_site import DERKACHI, NOW_S, ZOOM, DownloadSite, NewSite, memory_site
from support.scripted_provider import KEY, TILES, ScriptedProvider, path_of, picture_of

from tileferry.adapters.system import SystemClock
from tileferry.application import DownloadSettings, GroupLimits
from tileferry.application.ports import TileDownloader
from tileferry.domain.errors import (
    CacheBudgetExceededError,
    CacheLockError,
    RateLimitedError,
    SatelliteProviderError,
)
from tileferry.domain.tiles import DownloadOutcome, FreshnessLabel, ProviderFault, SectorClass


def answer(status: int, text: str = "", **headers: str) -> Callable[[Any], httpx.Response]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _request: httpx.Response(status, text=text, headers=named)


def of_kind(caplog: pytest.LogCaptureFixture, kind: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "kind", None) == kind]


def test_spec5_ac1_accepted_tiles_are_written(
    new_site: NewSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    site = new_site(100)
    report = site.downloader().download_tiles_for_area(site.request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.SUCCESS, 100)
    stored = site.stored()
    assert set(stored) == set(site.provider.tiles)
    for tile in site.provider.tiles:
        assert site.tile_store.tile_exists(tile)
        assert site.tile_store.read_tile(tile) == picture_of(tile)
    assert {row.flight_id for row in stored.values()} == {"F1"}
    assert report.bytes_downloaded == sum(len(picture_of(tile)) for tile in stored)
    (start,) = of_kind(caplog, "c11.download.session.start")
    (end,) = of_kind(caplog, "c11.download.session.end")
    assert vars(start)["tiles_requested"] == vars(end)["tiles_downloaded"] == 100
    assert vars(end)["outcome"] == "success"
    # First of all what a dead run left behind, and at last our own.
    assert site.budget.calls == ["release", "reserve", "release"]


@pytest.mark.parametrize("told_by", ["listing", "header"])
def test_spec5_ac2_sub_spec_tiles_are_refused_and_never_written(
    new_site: NewSite, told_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    site = new_site(50)
    coarse = site.provider.tiles[::5]
    for tile in coarse:
        if told_by == "listing":
            site.provider.lines[tile] = {"resolution_m_per_px": 0.3}
        else:
            site.provider.headers[tile] = {"x-resolution-m-per-px": "0.3"}
    report = site.downloader().download_tiles_for_area(site.request())
    assert report.tiles_rejected_resolution == 10
    assert (report.tiles_downloaded, report.outcome) == (40, DownloadOutcome.SUCCESS)
    assert len(site.tile_store.written) == 40
    assert not set(coarse) & set(site.tile_store.written)
    warned = of_kind(caplog, "c11.download.resolution_rejected")
    assert {vars(record)["tile_id"] for record in warned} == {str(tile) for tile in coarse}
    assert len(warned) == 10
    assert all(record.levelno == logging.WARNING for record in warned)


def test_spec5_ac3_stale_tiles_are_counted_and_the_run_goes_on(
    new_site: NewSite, caplog: pytest.LogCaptureFixture
) -> None:
    site = new_site(20)
    stale = site.provider.tiles[3:8]
    for tile in stale:
        site.provider.headers[tile] = {"x-produced-at": "2020-01-01T00:00:00Z"}
    request = site.request(sector_class=SectorClass.ACTIVE_CONFLICT)
    report = site.downloader().download_tiles_for_area(request)
    assert (report.tiles_rejected_freshness, report.tiles_downloaded) == (5, 15)
    assert report.outcome is DownloadOutcome.SUCCESS
    assert set(site.stored()) == set(site.provider.tiles) - set(stale)
    (warned,) = of_kind(caplog, "c11.download.freshness_rejected")
    assert (warned.levelno, vars(warned)["tiles_rejected_freshness"]) == (logging.WARNING, 5)


def test_spec5_ac4_stale_tiles_of_a_stable_rear_are_downgraded(new_site: NewSite) -> None:
    site = new_site(10)
    stale = site.provider.tiles[:3]
    for tile in stale:
        site.provider.headers[tile] = {"x-produced-at": "2020-01-01T00:00:00Z"}
    report = site.downloader().download_tiles_for_area(site.request())
    assert (report.tiles_downgraded, report.tiles_downloaded) == (3, 10)
    stored = site.stored()
    assert {tile for tile, row in stored.items() if row.freshness is FreshnessLabel.DOWNGRADED} == (
        set(stale)
    )


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_spec5_ac5_a_429_is_waited_out_as_told(new_site: NewSite, form: str) -> None:
    site = new_site(5)
    when = datetime.fromtimestamp(NOW_S, UTC) + timedelta(seconds=30)
    told = "30" if form == "seconds" else format_datetime(when, usegmt=True)
    path = path_of(site.provider.tiles[2])
    site.provider.once[path] = [answer(429, retry_after=told)]
    report = site.downloader().download_tiles_for_area(site.request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.SUCCESS, 5)
    assert report.retry_count == 1
    assert sum(site.clock.slept) >= 30


def test_spec5_ac5_a_second_429_is_an_error(new_site: NewSite) -> None:
    site = new_site(5)
    site.provider.always[path_of(site.provider.tiles[0])] = answer(429, retry_after="7")
    with pytest.raises(RateLimitedError) as failure:
        site.downloader().download_tiles_for_area(site.request())
    assert (failure.value.attempts, failure.value.retry_after_s) == (2, 7.0)


def test_spec5_ac6_a_persistent_5xx_ends_the_run_and_keeps_what_came(
    new_site: NewSite, caplog: pytest.LogCaptureFixture
) -> None:
    site = new_site(40)
    broken = site.provider.tiles[30]
    site.provider.always[path_of(broken)] = answer(503, "maintenance\x1b[2J")
    downloader = site.downloader()
    with pytest.raises(SatelliteProviderError) as failure:
        downloader.download_tiles_for_area(site.request())
    error = failure.value
    assert (error.status, error.attempts, error.fault) == (503, 5, ProviderFault.UNAVAILABLE)
    assert error.body_excerpt == "maintenance\\x1b[2J"
    assert error.url is not None
    assert error.url.endswith(path_of(broken))
    assert [wait for wait in site.clock.slept if wait] == [1.0, 2.0, 4.0, 4.0]
    (end,) = of_kind(caplog, "c11.download.provider_failed")
    assert end.levelno == logging.ERROR
    kept = set(site.stored())
    assert 1 <= len(kept) < 40
    # The run is resumable: what was kept is not asked for again.
    site.provider.always.clear()
    site.provider.requests.clear()
    report = site.downloader().download_tiles_for_area(site.request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.SUCCESS, 40)
    assert set(site.provider.tile_gets) == {
        path_of(tile) for tile in site.provider.tiles if tile not in kept
    }


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("where", ["listing", "tile"])
def test_spec5_ac7_authentication_fails_at_once(
    new_site: NewSite, status: int, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    site = new_site(3)
    path = TILES if where == "listing" else path_of(site.provider.tiles[0])
    site.provider.always[path] = lambda request: httpx.Response(
        status, text=f"bad key: {request.headers['authorization']}"
    )
    with pytest.raises(SatelliteProviderError) as failure:
        site.downloader().download_tiles_for_area(site.request())
    assert (failure.value.status, failure.value.attempts) == (status, 1)
    assert failure.value.fault is ProviderFault.UNAUTHORIZED
    assert site.clock.slept == []
    assert len([each for each in site.provider.requests if each.url.path == path]) == 1
    assert "***" in (failure.value.body_excerpt or "")
    assert KEY not in f"{failure.value!r} {failure.value} {caplog.text}"


def test_spec5_ac8_a_complete_download_is_not_repeated(new_site: NewSite) -> None:
    site = new_site(100)
    site.downloader().download_tiles_for_area(site.request())
    site.provider.requests.clear()
    site.tile_store.written.clear()
    report = site.downloader().download_tiles_for_area(site.request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.IDEMPOTENT_NO_OP, 100)
    assert (report.tiles_requested, report.bytes_downloaded) == (0, 0)
    assert (site.provider.requests, site.tile_store.written) == ([], [])


def test_spec5_ac9_without_room_nothing_is_fetched(
    new_site: NewSite, caplog: pytest.LogCaptureFixture
) -> None:
    site = new_site(10)
    site.budget.available_bytes = 100
    with pytest.raises(CacheBudgetExceededError) as failure:
        site.downloader().download_tiles_for_area(site.request())
    needed = sum(len(picture_of(tile)) for tile in site.provider.tiles)
    assert (failure.value.requested_bytes, failure.value.shortfall_bytes) == (needed, needed - 100)
    assert (site.provider.tile_gets, site.tile_store.written) == ([], [])
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [vars(record)["kind"] for record in errors] == ["c11.download.budget_exceeded"]


def test_spec5_ac10_it_is_a_downloader(new_site: NewSite) -> None:
    assert isinstance(new_site(1).downloader(), TileDownloader)

    class Partial:
        def download_tiles_for_area(self, request: object) -> None: ...

    assert not isinstance(Partial(), TileDownloader)


def test_spec5_ac11_the_key_is_in_no_log(
    new_site: NewSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    site = new_site(10)
    site.provider.once[path_of(site.provider.tiles[0])] = [answer(503), answer(429)]
    site.downloader().download_tiles_for_area(site.request())
    assert len(caplog.records) > 3
    everything = caplog.text + repr([vars(record) for record in caplog.records])
    assert KEY not in everything
    assert KEY not in repr(site.downloader())


def wait_for_late_requests(site: DownloadSite) -> None:
    """Let the workers of a run that ended finish what they had begun to ask."""
    before = -1
    while len(site.provider.requests) != before:
        before = len(site.provider.requests)
        SystemClock.sleep(0.3)


def test_spec5_ac12_what_is_journaled_is_not_fetched_again(new_site: NewSite) -> None:
    site = new_site(100)
    crash = 30

    class Killed(BaseException):
        """As sudden as it gets without losing the test."""

    class DyingObserver:
        def __init__(self) -> None:
            self.seen = 0

        def tile(self, *_args: object) -> None:
            self.seen += 1
            if self.seen > crash:
                raise Killed

        def __getattr__(self, _name: str) -> Callable[..., None]:
            return lambda *_args, **_named: None

    settings = DownloadSettings(group=GroupLimits(tiles_max=10))
    with pytest.raises(Killed):
        site.downloader(observer=DyingObserver(), settings=settings).download_tiles_for_area(
            site.request()
        )
    journaled = len(site.stored())
    assert journaled == 30
    wait_for_late_requests(site)
    site.provider.requests.clear()
    report = site.downloader().download_tiles_for_area(site.request())
    assert (report.tiles_downloaded, report.outcome) == (100, DownloadOutcome.SUCCESS)
    assert len(site.provider.tile_gets) == 70
    assert len(set(site.provider.tile_gets)) == 70


# Beyond the criteria


def test_the_listing_goes_on_over_its_pages(new_site: NewSite) -> None:
    site = new_site(25)
    site.provider.page_size = 10
    listed = site.downloader().enumerate_remote_coverage(DERKACHI, [ZOOM])
    assert [line.tile_id for line in listed] == list(site.provider.tiles)
    assert (listed[0].resolution_m_per_px, listed[0].produced_at) == (
        0.6,
        datetime(2026, 10, 1, tzinfo=UTC),
    )
    assert len(site.provider.requests) == 3


def test_a_listed_tile_that_is_not_there_is_missing_and_no_outage(new_site: NewSite) -> None:
    site = new_site(10)
    for tile in site.provider.tiles[:2]:
        site.provider.always[path_of(tile)] = answer(404)
    report = site.downloader().download_tiles_for_area(site.request())
    assert (report.outcome, report.tiles_missing) == (DownloadOutcome.PARTIAL, 2)
    assert (report.tiles_downloaded, report.retry_count) == (8, 0)
    assert report.next_retry_at_s is not None
    site.provider.always.clear()
    site.provider.requests.clear()
    again = site.downloader().download_tiles_for_area(site.request())
    assert (again.outcome, again.tiles_downloaded) == (DownloadOutcome.SUCCESS, 10)
    assert len(site.provider.tile_gets) == 2


def test_a_finished_download_is_repeated_when_it_is_asked_for(new_site: NewSite) -> None:
    site = new_site(5)
    site.downloader().download_tiles_for_area(site.request())
    site.provider.requests.clear()
    site.downloader().start_over(site.request())
    report = site.downloader().download_tiles_for_area(site.request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.SUCCESS, 5)
    assert len(site.provider.tile_gets) == 5


def test_without_the_lock_it_does_not_start(tmp_path: Path) -> None:
    provider = ScriptedProvider.of_area(DERKACHI, ZOOM, 1)
    with memory_site(tmp_path, provider) as site:
        elsewhere = site.request(cache_root=tmp_path / "elsewhere")
        with pytest.raises(CacheLockError, match="start through the tileferry command"):
            site.downloader().download_tiles_for_area(elsewhere)
    assert provider.requests == []
