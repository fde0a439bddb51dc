"""What a download says of the cache is so: with fakes, and over real HTTP into a real cache."""

import logging
from collections.abc import Sequence

import pytest
from support.download_site import DownloadSite, NewSite
from support.scripted_provider import answering_with, path_of

from tileferry.adapters.memory import MemoryCacheLedger, MemoryTileMetadataStore
from tileferry.adapters.postgres import PostgresCacheLedger, PostgresTileMetadataStore
from tileferry.application import DownloadSettings, GroupLimits
from tileferry.domain.errors import SatelliteProviderError, StorageError
from tileferry.domain.tiles import DownloadOutcome, TileId


def interrupted(site: DownloadSite) -> None:
    """Have a download end in the middle, with some of its tiles journaled."""
    broken = path_of(site.provider.tiles[30])
    site.provider.always[broken] = answering_with(403)
    with pytest.raises(SatelliteProviderError):
        site.downloader().download_tiles_for_area(site.request())
    site.provider.always.clear()
    site.provider.requests.clear()


def evict(site: DownloadSite, tiles: Sequence[TileId]) -> None:
    """Remove tiles as making room for another area does."""
    ledger: MemoryCacheLedger | PostgresCacheLedger
    if isinstance(site.metadata, MemoryTileMetadataStore):
        ledger = MemoryCacheLedger(tiles=site.metadata)
    else:
        assert isinstance(site.metadata, PostgresTileMetadataStore)
        ledger = PostgresCacheLedger(database=site.metadata.database)
    with ledger.exclusively() as books:
        books.evict(tiles)


def test_invariant_01_a_journaled_tile_that_was_evicted_is_fetched_again(
    new_site: NewSite, caplog: pytest.LogCaptureFixture
) -> None:
    site = new_site(40)
    interrupted(site)
    kept = sorted(site.stored(), key=str)
    evicted, still_there = kept[:5], kept[5:]
    assert still_there
    evict(site, evicted)
    report = site.downloader().download_tiles_for_area(site.request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.SUCCESS, 40)
    assert set(site.stored()) == set(site.provider.tiles)
    fetched = set(site.provider.tile_gets)
    assert {path_of(tile) for tile in evicted} <= fetched
    assert not {path_of(tile) for tile in still_there} & fetched
    (gone,) = of_kind(caplog, "c11.journal.tiles_gone")
    assert vars(gone)["tiles"] == 5
    # The journal's count is of tiles, also of those that were fetched twice.
    again = site.downloader().download_tiles_for_area(site.request())
    assert (again.outcome, again.tiles_downloaded) == (DownloadOutcome.IDEMPOTENT_NO_OP, 40)


def test_a_complete_journal_of_another_cache_is_not_believed(new_site: NewSite) -> None:
    site = new_site(8)
    site.downloader().download_tiles_for_area(site.request())
    evict(site, site.provider.tiles)  # as in a database that was made anew
    report = site.downloader().download_tiles_for_area(site.request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.SUCCESS, 8)
    assert set(site.stored()) == set(site.provider.tiles)


def test_what_is_stored_of_the_area_is_not_evicted_for_the_rest(new_site: NewSite) -> None:
    site = new_site(40)
    interrupted(site)
    kept = set(site.stored())
    site.downloader().download_tiles_for_area(site.request())
    assert {tile for tile in site.provider.tiles if tile in site.budget.kept[-1]} == kept


def test_a_listing_without_a_tile_is_not_remembered_as_done(new_site: NewSite) -> None:
    site = new_site(3)
    tiles, site.provider.tiles = site.provider.tiles, []
    report = site.downloader().download_tiles_for_area(site.request())
    assert (report.outcome, report.tiles_requested) == (DownloadOutcome.SUCCESS, 0)
    site.provider.tiles = tiles
    report = site.downloader().download_tiles_for_area(site.request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.SUCCESS, 3)


def test_the_report_of_a_failed_run_counts_what_is_safe(
    new_site: NewSite, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    site = new_site(40)
    flushes = iter([site.tile_store.flush])

    def until_the_disk_is_full() -> None:
        for flush in flushes:
            flush()
            return
        raise StorageError(action="write", path="seg", problem="No space left", remedy="free some")

    monkeypatch.setattr(site.tile_store, "flush", until_the_disk_is_full, raising=False)
    settings = DownloadSettings(group=GroupLimits(tiles_max=4, age_ms_max=1e9))
    with pytest.raises(StorageError):
        site.downloader(settings=settings).download_tiles_for_area(site.request())
    (end,) = of_kind(caplog, "c11.download.session.end")
    assert vars(end)["tiles_downloaded"] == len(site.stored()) == 4


def test_why_a_tile_failed_by_itself_is_told(
    new_site: NewSite, caplog: pytest.LogCaptureFixture
) -> None:
    site = new_site(5)
    site.provider.headers[site.provider.tiles[2]] = {"content-type": "text/html"}
    report = site.downloader().download_tiles_for_area(site.request())
    assert (report.outcome, report.tiles_failed) == (DownloadOutcome.PARTIAL, 1)
    (warning,) = of_kind(caplog, "c11.download.tile_failed")
    assert path_of(site.provider.tiles[2]) in warning.getMessage()
    assert "'text/html' is not image/" in warning.getMessage()


def of_kind(caplog: pytest.LogCaptureFixture, kind: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "kind", None) == kind]
