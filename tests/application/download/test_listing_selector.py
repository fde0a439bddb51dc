"""Tiles that are in the cache are not fetched again, whoever brought them."""

from datetime import UTC, datetime, timedelta

import pytest
from support.download_env import RecordingListener
from support.memory_download_env import (
    NOW_S,
    PRODUCED,
    MemoryDownloadEnv,
    create_fault,
    create_request,
    tile_content,
)

from tileferry.application import AreaDownload, DownloadSettings, GroupLimits
from tileferry.application.download import listing_selector
from tileferry.application.download.area_download import SESSION_MAX
from tileferry.application.ports.downloads import TileFate
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.tiles import (
    DownloadBatchReport,
    DownloadOutcome,
    ProviderFault,
    SectorClass,
    TileId,
    TileValidators,
)
from tileferry.domain.tiles.selection import FetchMode

SUCCESS = DownloadOutcome.SUCCESS
OTHER_FLIGHT = create_request(flight_id="F2")


def download(area: MemoryDownloadEnv, mode: FetchMode = FetchMode.MISSING) -> DownloadBatchReport:
    return create_download(area, mode).download_tiles_for_area(create_request())


def create_download(area: MemoryDownloadEnv, mode: FetchMode) -> AreaDownload:
    return area.create_download(settings=DownloadSettings(mode=mode))


@pytest.fixture
def area() -> MemoryDownloadEnv:
    """An area of ten tiles, all of which flight F1 has downloaded."""
    env = MemoryDownloadEnv.with_tiles(10)
    env.provider.page_size = 7
    download(env)
    env.provider.asked.clear()
    env.room.asked.clear()
    return env


def test_tiles_of_other_flight_are_reused(
    area: MemoryDownloadEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_selector, "LOOKUP_TILES_MAX", 3)
    watcher = RecordingListener()
    area.bench.clock.advance(3_600)
    report = area.create_download(progress=watcher).download_tiles_for_area(OTHER_FLIGHT)
    assert (report.outcome, report.tiles_downloaded, report.tiles_reused) == (SUCCESS, 10, 10)
    assert (area.provider.fetched, report.bytes_downloaded) == ([], 0)
    assert area.room.asked == [0], "space is reserved for new tiles only"
    assert watcher.started is not None
    assert watcher.started.already_stored == 10
    used = {tile.last_used_at - tile.stored_at for tile in area.metadata.all_tiles()}
    assert used == {timedelta(hours=1)}
    asked = len(area.provider.asked)
    repeated = area.create_download().download_tiles_for_area(OTHER_FLIGHT)
    assert (repeated.outcome, repeated.tiles_downloaded) == (DownloadOutcome.IDEMPOTENT_NO_OP, 10)
    assert len(area.provider.asked) == asked


def test_only_newer_tiles_are_fetched_for_other_flight(area: MemoryDownloadEnv) -> None:
    newer = area.provider.tiles[3:5]
    for tile in newer:
        area.provider.lines[tile] = {"produced_at": PRODUCED + timedelta(days=1)}
    report = area.create_download().download_tiles_for_area(OTHER_FLIGHT)
    assert (report.tiles_downloaded, report.tiles_reused) == (10, 8)
    assert area.provider.fetched == newer


def test_reused_tile_is_downgraded_if_the_sector_says_so(area: MemoryDownloadEnv) -> None:
    area.bench.clock.advance(400 * 86_400)
    report = area.create_download().download_tiles_for_area(OTHER_FLIGHT)
    assert (report.tiles_reused, report.tiles_downgraded) == (10, 10)


def test_stored_and_listed_tile_too_old_for_the_sector_is_refused_unfetched(
    area: MemoryDownloadEnv,
) -> None:
    area.bench.clock.advance(200 * 86_400)
    request = create_request(sector_class=SectorClass.ACTIVE_CONFLICT)
    report = area.create_download().download_tiles_for_area(request)
    assert (report.outcome, report.tiles_rejected_freshness) == (SUCCESS, 10)
    assert area.provider.fetched == []


def test_area_with_refused_tiles_is_not_complete(area: MemoryDownloadEnv) -> None:
    refused = area.provider.tiles[0]
    area.provider.lines[refused] = {
        "resolution_m_per_px": 0.3,
        "produced_at": PRODUCED + timedelta(days=1),
    }
    report = area.create_download().download_tiles_for_area(OTHER_FLIGHT)
    assert (report.outcome, report.tiles_rejected_resolution) == (SUCCESS, 1)
    area.provider.lines.clear()
    later = area.create_download().download_tiles_for_area(OTHER_FLIGHT)
    assert (later.outcome, later.tiles_downloaded, area.provider.fetched) == (SUCCESS, 10, [])


# Repair


def damage(area: MemoryDownloadEnv, tile: TileId) -> None:
    row = area.metadata.get_metadata(tile)
    assert row is not None
    area.store._contents.pop(row.blob)


def test_repair_fetches_missing_stale_and_damaged_tiles_only(area: MemoryDownloadEnv) -> None:
    tiles = area.provider.tiles
    damage(area, tiles[1])
    damage(area, tiles[8])
    area.metadata.forget([tiles[4]])
    area.provider.lines[tiles[6]] = {"produced_at": PRODUCED + timedelta(days=1)}
    assert download(area).outcome is DownloadOutcome.IDEMPOTENT_NO_OP
    report = download(area, FetchMode.REPAIR)
    assert (report.outcome, report.tiles_downloaded, report.tiles_reused) == (SUCCESS, 10, 6)
    assert area.provider.fetched == [tiles[1], tiles[4], tiles[6], tiles[8]]
    assert download(area).outcome is DownloadOutcome.IDEMPOTENT_NO_OP


def test_interrupted_repair_resumes(area: MemoryDownloadEnv) -> None:
    tiles = area.provider.tiles
    for tile in tiles[:4]:
        damage(area, tile)
    area.provider.faults[tiles[2]] = [create_fault(ProviderFault.UNAUTHORIZED)]
    with pytest.raises(SatelliteProviderError):
        download(area, FetchMode.REPAIR)
    damage(area, tiles[0])  # once more
    area.provider.asked.clear()
    report = download(area, FetchMode.REPAIR)
    assert (report.outcome, report.tiles_downloaded) == (SUCCESS, 10)
    assert area.provider.fetched == [tiles[0], tiles[2], tiles[3]]
    journal = area.journals.open(create_request().journal_name(area.provider.key_hash))
    assert (journal.complete, journal.count) == (True, 10)


# Refresh


def test_refresh_confirms_unchanged_tiles_by_the_listing(area: MemoryDownloadEnv) -> None:
    changed = area.provider.tiles[3]
    area.provider.lines[changed] = {"produced_at": PRODUCED + timedelta(days=1)}
    area.bench.clock.advance(3 * 86_400)
    report = download(area, FetchMode.REFRESH)
    assert (report.outcome, report.tiles_downloaded, report.tiles_reused) == (SUCCESS, 10, 9)
    assert area.provider.fetched == [changed]
    now = datetime.fromtimestamp(area.bench.clock.now(), UTC)
    assert {tile.confirmed_at for tile in area.metadata.all_tiles()} == {now}
    assert download(area).outcome is DownloadOutcome.IDEMPOTENT_NO_OP


@pytest.fixture
def plain_area() -> MemoryDownloadEnv:
    """Ten stored tiles of a server whose listing shows no versions; the last has no ETag."""
    env = MemoryDownloadEnv.with_tiles(10)
    env.provider.lists_versions = False
    for tile in env.provider.tiles[:-1]:
        env.provider.answers[tile] = {"validators": TileValidators(etag=f'"{tile}"')}
    download(env)
    env.provider.asked.clear()
    env.room.asked.clear()
    env.bench.clock.advance(3 * 86_400)
    return env


def test_refresh_of_plain_server_transfers_only_what_changed(
    plain_area: MemoryDownloadEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_selector, "LOOKUP_TILES_MAX", 3)
    tiles = plain_area.provider.tiles
    plain_area.provider.answers[tiles[0]] = {"validators": TileValidators(etag='"new"')}
    watcher = RecordingListener()
    settings = DownloadSettings(mode=FetchMode.REFRESH, group=GroupLimits(tiles_max=4))
    report = plain_area.create_download(
        progress=watcher, settings=settings
    ).download_tiles_for_area(create_request())
    assert (report.outcome, report.tiles_downloaded, report.tiles_reused) == (SUCCESS, 10, 8)
    assert (watcher.fates.count(TileFate.UNCHANGED), watcher.safe[-1]) == (8, 10)
    assert plain_area.provider.fetched == tiles, "each is asked for once"
    assert report.bytes_downloaded == sum(len(tile_content(tile)) for tile in (tiles[0], tiles[-1]))
    assert plain_area.room.asked == [0], "a new version takes the place of the old one"
    rows = plain_area.metadata.find_stored(tiles)
    now = datetime.fromtimestamp(plain_area.bench.clock.now(), UTC)
    assert {row.confirmed_at for row in rows.values()} == {now}
    assert rows[tiles[0]].validators == TileValidators(etag='"new"')


def test_interrupted_refresh_resumes(plain_area: MemoryDownloadEnv) -> None:
    tiles = plain_area.provider.tiles
    plain_area.provider.faults[tiles[5]] = [create_fault(ProviderFault.UNAUTHORIZED)]
    with pytest.raises(SatelliteProviderError):
        download(plain_area, FetchMode.REFRESH)
    plain_area.provider.asked.clear()
    report = download(plain_area, FetchMode.REFRESH)
    assert (report.outcome, report.tiles_reused) == (SUCCESS, 9)
    assert plain_area.provider.fetched == tiles[5:]


def test_lost_tile_is_fetched_whole_by_refresh(plain_area: MemoryDownloadEnv) -> None:
    lost = plain_area.provider.tiles[2]
    damage(plain_area, lost)
    report = download(plain_area, FetchMode.REFRESH)
    assert (report.outcome, report.tiles_reused) == (SUCCESS, 8)
    assert plain_area.store.read_tile(lost) == tile_content(lost)


# Again


def test_again_fetches_every_tile_and_resumes(area: MemoryDownloadEnv) -> None:
    tiles = area.provider.tiles
    area.provider.faults[tiles[6]] = [create_fault(ProviderFault.UNAUTHORIZED)]
    with pytest.raises(SatelliteProviderError):
        download(area, FetchMode.AGAIN)
    assert area.provider.fetched == tiles[:7]
    area.provider.asked.clear()
    report = download(area, FetchMode.AGAIN)
    assert (report.outcome, report.tiles_downloaded, report.tiles_reused) == (SUCCESS, 10, 6)
    assert area.provider.fetched == tiles[6:]
    area.provider.asked.clear()
    assert download(area, FetchMode.AGAIN).tiles_reused == 0, "a finished one starts over"
    assert area.provider.fetched == tiles
    assert download(area).outcome is DownloadOutcome.IDEMPOTENT_NO_OP


def test_again_that_was_interrupted_long_ago_starts_over(area: MemoryDownloadEnv) -> None:
    tiles = area.provider.tiles
    area.provider.faults[tiles[6]] = [create_fault(ProviderFault.UNAUTHORIZED)]
    with pytest.raises(SatelliteProviderError):
        download(area, FetchMode.AGAIN)
    area.bench.clock.advance(SESSION_MAX.total_seconds())
    area.provider.asked.clear()
    assert download(area, FetchMode.AGAIN).tiles_downloaded == 10
    assert area.provider.fetched == tiles
    assert area.bench.clock.now() > NOW_S
