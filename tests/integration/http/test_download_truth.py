"""What a download says of the cache is so: with fakes, and over real HTTP into a real cache."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.download_site import DERKACHI, ZOOM, DownloadSite, memory_site, real_site
from support.scripted_provider import ScriptedProvider, answering_with, path_of

from tileferry.adapters.memory import MemoryCacheLedger, MemoryTileMetadataStore
from tileferry.adapters.postgres import PostgresCacheLedger, PostgresTileMetadataStore
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.tiles import DownloadOutcome, TileId

NewSite = Callable[[int], DownloadSite]


@pytest.fixture(params=["fakes", "real"])
def new_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewSite]:
    database = request.getfixturevalue("database") if request.param == "real" else None
    with ExitStack() as stack:

        def site(count: int) -> DownloadSite:
            provider = ScriptedProvider.of_area(DERKACHI, ZOOM, count)
            if database is None:
                return stack.enter_context(memory_site(tmp_path, provider))
            return stack.enter_context(real_site(tmp_path, provider, database))

        yield site


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
    (gone,) = (record for record in caplog.records if "tiles_gone" in vars(record).get("kind", ""))
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
