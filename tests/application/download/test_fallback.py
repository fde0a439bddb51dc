"""A secondary source delivers what the primary does not have, and its tiles are labelled."""

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve
from support.memory_download_env import (
    BOX,
    ZOOM,
    MemoryDownloadEnv,
    MemoryProvider,
    create_fault,
    create_request,
    tile_content,
)

from tileferry.adapters.memory import MemoryAbsentTiles, MemoryTileOrigins
from tileferry.application.download.fallback import (
    FallbackAbsentTiles,
    FallbackTileProvider,
    record_origins,
)
from tileferry.application.ports.provider import (
    FetchedTile,
    FetchOutcome,
    TileRequest,
    UnchangedTile,
)
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.tiles import ProviderFault, TileCoverage, TileId, TileValidators

HOLE = ProviderFault.NOT_FOUND
NOW = datetime(2026, 11, 1, tzinfo=UTC)
VALIDATORS = TileValidators(etag='"1"')


def create_provider(count: int = 4) -> tuple[MemoryProvider, MemoryProvider, FallbackTileProvider]:
    primary = MemoryProvider(count, source="xyz-a")
    secondary = MemoryProvider(count, source="xyz-b", key_hash="1" * 16)
    return primary, secondary, FallbackTileProvider(primary=primary, secondary=secondary)


def collect(provider: FallbackTileProvider, requests: list[TileRequest]) -> list[FetchOutcome]:
    fetches = provider.open_fetches()
    for request in requests:
        fetches.start(request)
    found: list[FetchOutcome] = []
    for _ in range(20):
        found += fetches.wait(0.0)
    fetches.close()
    assert fetches.wait(0.0) == []
    return found


def test_only_holes_are_requested_from_the_secondary() -> None:
    primary, secondary, provider = create_provider()
    tiles = primary.tiles
    for tile in tiles[1:3]:
        primary.faults[tile].append(create_fault(HOLE))
    primary.faults[tiles[3]].append(create_fault(ProviderFault.UNAVAILABLE))
    secondary.faults[tiles[2]].append(create_fault(HOLE))
    secondary.answers[tiles[1]] = {"validators": VALIDATORS}
    requests = [TileRequest(tile, VALIDATORS) for tile in tiles]
    found = {request.tile_id: result for request, result in collect(provider, requests)}
    assert secondary.fetched == list(tiles[1:3])
    first, filled, absent, failed = (found[tile] for tile in tiles)
    assert isinstance(first, FetchedTile)
    assert first.origin is None
    assert isinstance(filled, FetchedTile), "the condition is of the primary's version"
    assert filled.origin == "xyz-b"
    assert isinstance(absent, SatelliteProviderError)
    assert absent.fault is HOLE
    assert isinstance(failed, SatelliteProviderError)
    assert failed.fault is ProviderFault.UNAVAILABLE
    assert [request for request, _ in collect(provider, requests)] == requests, "the same objects"


def test_single_tile_comes_from_the_first_that_has_it() -> None:
    primary, secondary, provider = create_provider()
    tile = primary.tiles[0]
    primary.faults[tile] += [create_fault(ProviderFault.TIMED_OUT), create_fault(HOLE)]
    with pytest.raises(SatelliteProviderError):
        provider.fetch_tile(tile)
    filled = provider.fetch_tile(tile)
    own = provider.fetch_tile(tile)
    assert isinstance(filled, FetchedTile)
    assert isinstance(own, FetchedTile)
    assert (filled.origin, own.origin, secondary.fetched) == ("xyz-b", None, [tile])
    unchanged = UnchangedTile(tile_id=tile)
    assert provider.label(unchanged) is unchanged


def test_listing_and_identity() -> None:
    primary, secondary, provider = create_provider()
    page = provider.fetch_listing_page(BOX, [ZOOM], None)
    assert [tile.tile_id for tile in page.tiles] == primary.tiles
    assert (provider.source, provider.lists_versions) == ("xyz-a", True)
    swapped = FallbackTileProvider(primary=secondary, secondary=primary)
    assert len({primary.key_hash, provider.key_hash, swapped.key_hash}) == 3


def test_download_stores_filled_tiles_with_their_label_and_facts() -> None:
    env = MemoryDownloadEnv.with_tiles(3)
    primary = env.provider
    secondary = MemoryProvider(3, source="xyz-b")
    hole = primary.tiles[1]
    primary.faults[hole].append(create_fault(HOLE))
    older = datetime(2026, 9, 1, tzinfo=UTC)
    secondary.answers[hole] = {"produced_at": older, "resolution_m_per_px": 1.2}
    origins = MemoryTileOrigins()
    provider = FallbackTileProvider(primary=primary, secondary=secondary)
    download = env.create_download(provider=provider, tile_origins=origins)
    report = download.download_tiles_for_area(create_request())
    assert (report.tiles_downloaded, report.tiles_missing) == (3, 0)
    stored = env.metadata.find_stored([hole])[hole]
    assert (stored.produced_at, stored.resolution_m_per_px) == (older, 1.2)
    (label,) = origins.find_origins(primary.tiles).values()
    assert (label.tile_id, label.origin, label.sha256) == (hole, "xyz-b", stored.blob.sha256)


def test_origins_need_a_store_and_a_label() -> None:
    tile = TileId(source="a", zoom=1, x=0, y=0)
    fetched = FetchedTile(tile_id=tile, content=tile_content(tile), origin="b")
    record_origins(None, [fetched])
    origins = MemoryTileOrigins()
    record_origins(
        origins, [evolve(fetched, origin=None), ValueError(), UnchangedTile(tile_id=tile)]
    )
    assert origins.find_origins([tile]) == {}
    record_origins(origins, [fetched])
    assert origins.find_origins([tile])[tile].origin == "b"


# Absent tiles


def test_tile_is_absent_only_if_both_lack_it() -> None:
    tiles = MemoryProvider(3).tiles
    inner = MemoryAbsentTiles()
    absent = FallbackAbsentTiles(inner=inner, secondary="xyz-b")
    inner.record_absent(tiles[:2], at=NOW)
    assert absent.find_absent(tiles) == {}, "the secondary was never asked"
    absent.record_absent(tiles[:1], at=NOW + timedelta(days=1))
    inner.record_absent(tiles[:1], at=NOW + timedelta(days=2))
    assert absent.find_absent(tiles) == {tiles[0]: NOW + timedelta(days=1)}
    coverage = TileCoverage(bbox=BOX, zoom_levels=[ZOOM])
    found = dict(absent.query_absent(coverage, source=tiles[0].source))
    assert found.keys() == set(tiles[:2])
    absent.forget_absent(tiles[:1])
    assert absent.find_absent(tiles) == inner.find_absent(tiles[:1]) == {}
