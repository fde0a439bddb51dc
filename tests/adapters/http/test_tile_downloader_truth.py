"""A download's report agrees with the cache, over real HTTP into a real cache."""

import logging
from collections.abc import Sequence

import pytest
from support.download_env import DownloadEnv, NewDownloadEnv
from support.scripted_provider import create_answer, tile_path

from tileferry.adapters.postgres import PostgresCacheLedger, PostgresTileMetadataStore
from tileferry.application import DownloadSettings, GroupLimits
from tileferry.domain.errors import SatelliteProviderError, StorageError
from tileferry.domain.tiles import DownloadOutcome, TileId


def interrupt_download(site: DownloadEnv) -> None:
    """Have a download end in the middle, with some of its tiles journaled."""
    broken = tile_path(site.provider.tiles[30])
    site.provider.always[broken] = create_answer(403)
    with pytest.raises(SatelliteProviderError):
        site.create_downloader().download_tiles_for_area(site.create_request())
    site.provider.always.clear()
    site.provider.requests.clear()


def evict(site: DownloadEnv, tiles: Sequence[TileId]) -> None:
    """Remove tiles as making room for another area does."""
    assert isinstance(site.metadata, PostgresTileMetadataStore)
    ledger = PostgresCacheLedger(database=site.metadata.database)
    with ledger.begin_transaction() as books:
        books.evict(tiles)


def test_invariant_01_evicted_journaled_tiles_are_fetched_again(
    new_download_env: NewDownloadEnv, caplog: pytest.LogCaptureFixture
) -> None:
    site = new_download_env(40)
    interrupt_download(site)
    kept = sorted(site.list_stored(), key=str)
    evicted, still_there = kept[:5], kept[5:]
    assert still_there
    evict(site, evicted)
    report = site.create_downloader().download_tiles_for_area(site.create_request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.SUCCESS, 40)
    assert set(site.list_stored()) == set(site.provider.tiles)
    fetched = set(site.provider.tile_gets)
    assert {tile_path(tile) for tile in evicted} <= fetched
    assert not {tile_path(tile) for tile in still_there} & fetched
    (gone,) = find_log_records(caplog, "c11.journal.tiles_gone")
    assert vars(gone)["tiles"] == 5
    # The journal's count is of tiles, also of those that were fetched twice.
    again = site.create_downloader().download_tiles_for_area(site.create_request())
    assert (again.outcome, again.tiles_downloaded) == (DownloadOutcome.IDEMPOTENT_NO_OP, 40)


def test_complete_journal_without_stored_tiles_is_ignored(new_download_env: NewDownloadEnv) -> None:
    site = new_download_env(8)
    site.create_downloader().download_tiles_for_area(site.create_request())
    evict(site, site.provider.tiles)  # as in a database that was made anew
    report = site.create_downloader().download_tiles_for_area(site.create_request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.SUCCESS, 8)
    assert set(site.list_stored()) == set(site.provider.tiles)


def test_stored_tiles_of_the_area_are_protected_from_eviction(
    new_download_env: NewDownloadEnv,
) -> None:
    site = new_download_env(40)
    interrupt_download(site)
    kept = set(site.list_stored())
    site.create_downloader().download_tiles_for_area(site.create_request())
    assert {tile for tile in site.provider.tiles if tile in site.budget.kept[-1]} == kept


def test_empty_listing_does_not_complete_the_download(new_download_env: NewDownloadEnv) -> None:
    site = new_download_env(3)
    tiles, site.provider.tiles = site.provider.tiles, []
    report = site.create_downloader().download_tiles_for_area(site.create_request())
    assert (report.outcome, report.tiles_requested) == (DownloadOutcome.SUCCESS, 0)
    site.provider.tiles = tiles
    report = site.create_downloader().download_tiles_for_area(site.create_request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.SUCCESS, 3)


def test_report_of_a_failed_run_counts_only_stored_tiles(
    new_download_env: NewDownloadEnv,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO)
    site = new_download_env(40)
    flushes = iter([site.tile_store.flush])

    def until_the_disk_is_full() -> None:
        for flush in flushes:
            flush()
            return
        raise StorageError(action="write", path="seg", problem="No space left", remedy="free some")

    monkeypatch.setattr(site.tile_store, "flush", until_the_disk_is_full, raising=False)
    settings = DownloadSettings(group=GroupLimits(tiles_max=4, age_ms_max=1e9))
    with pytest.raises(StorageError):
        site.create_downloader(settings=settings).download_tiles_for_area(site.create_request())
    (end,) = find_log_records(caplog, "c11.download.session.end")
    assert 4 <= vars(end)["tiles_downloaded"] == len(site.list_stored()) < 40


def test_failed_tile_is_logged_with_its_reason(
    new_download_env: NewDownloadEnv, caplog: pytest.LogCaptureFixture
) -> None:
    site = new_download_env(5)
    site.provider.headers[site.provider.tiles[2]] = {"content-type": "text/html"}
    report = site.create_downloader().download_tiles_for_area(site.create_request())
    assert (report.outcome, report.tiles_failed) == (DownloadOutcome.PARTIAL, 1)
    (warning,) = find_log_records(caplog, "c11.download.tile_failed")
    assert tile_path(site.provider.tiles[2]) in warning.getMessage()
    assert "'text/html' is not image/" in warning.getMessage()


def find_log_records(caplog: pytest.LogCaptureFixture, kind: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "kind", None) == kind]
