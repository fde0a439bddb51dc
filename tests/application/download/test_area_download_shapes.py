"""Downloading a shape: only its tiles are listed, fetched, journaled and resumed."""

from collections.abc import Sequence
from pathlib import PurePosixPath

import pytest
from attrs import define
from support.memory_download_env import (
    MemoryDownloadEnv,
    MemoryProvider,
    create_request,
)

from tileferry.application.cache.tile_lookup import query_area
from tileferry.application.download.area_survey import AreaSurvey
from tileferry.domain.tiles import (
    Area,
    BBox,
    DownloadOutcome,
    DownloadRequest,
    ListingPage,
    SectorClass,
    Shape,
    TileCoverage,
)

ROUTE = Shape.from_degrees(lines=[[(36.0, 50.0), (37.0, 50.6)]])
AREA = Area.from_place(ROUTE, [12, 15], SectorClass.STABLE_REAR)
TILES = list(AREA.coverage.tiles("satellite"))
REQUEST = DownloadRequest(flight_id="F1", area=AREA, cache_root=PurePosixPath("/cache"))
PAGE_TILES = 400


@define(eq=False)
class BoxProvider(MemoryProvider):
    """Has every tile, and lists those that a box touches, edges included, page by page."""

    count: int = 0
    boxes: int = 0
    listed: int = 0

    def fetch_listing_page(
        self, bbox: BBox, zoom_levels: Sequence[int], cursor: str | None
    ) -> ListingPage:
        wide = BBox(
            west=bbox.west - 1e-10,
            south=bbox.south - 1e-10,
            east=bbox.east + 1e-10,
            north=bbox.north + 1e-10,
        )
        start = int(cursor or 0)
        self._record_call(None)
        tiles = list(TileCoverage(bbox=wide, zoom_levels=zoom_levels).tiles(self.source))
        page = tiles[start : start + PAGE_TILES]
        self.boxes += cursor is None
        self.listed += len(page)
        more = start + PAGE_TILES < len(tiles)
        return ListingPage(
            tiles=tuple(map(self.create_summary, page)),
            next=str(start + PAGE_TILES) if more else None,
        )


def create_env() -> tuple[MemoryDownloadEnv, BoxProvider]:
    provider = BoxProvider()
    return MemoryDownloadEnv(provider), provider


def test_tiles_of_shape_are_downloaded_and_no_others() -> None:
    env, provider = create_env()
    report = env.create_download().download_tiles_for_area(REQUEST)
    assert report.outcome is DownloadOutcome.SUCCESS
    assert report.tiles_requested == report.tiles_downloaded == AREA.coverage.count == len(TILES)
    assert env.list_stored() == TILES
    assert sorted(provider.fetched) == TILES
    assert 1 < provider.boxes < 10
    box = TileCoverage(bbox=ROUTE.bbox, zoom_levels=[12, 15])
    assert provider.listed < box.count / 2
    provider.asked.clear()
    again = env.create_download().download_tiles_for_area(REQUEST)
    assert again.outcome is DownloadOutcome.IDEMPOTENT_NO_OP
    assert not provider.asked


def test_interrupted_download_of_shape_resumes() -> None:
    env, provider = create_env()
    last = TILES[-1]
    provider.faults[last] = [RuntimeError("killed")]
    with pytest.raises(RuntimeError, match="killed"):
        env.create_download().download_tiles_for_area(REQUEST)
    assert len(env.list_stored()) == len(TILES) - 1
    provider.asked.clear()
    report = env.create_download().download_tiles_for_area(REQUEST)
    assert provider.fetched == [last]
    assert report.outcome is DownloadOutcome.SUCCESS


def test_stored_tiles_of_shape_are_queried() -> None:
    env, _ = create_env()
    whole = create_request(bbox=ROUTE.bbox, zoom_levels=(12,))
    env.create_download().download_tiles_for_area(whole)
    found = [row.tile_id for row in query_area(env.metadata, AREA.coverage, source="satellite")]
    assert found == [tile for tile in TILES if tile.zoom == 12]
    box = [row.tile_id for row in query_area(env.metadata, whole.coverage, source="satellite")]
    assert box == list(whole.coverage.tiles("satellite"))


def test_survey_lists_the_tiles_of_a_shape() -> None:
    env, provider = create_env()
    download = env.create_download()
    survey = AreaSurvey(
        provider=provider,
        retry=download.retry,
        pace=download.pace,
        runner=download.runner,
        journals=env.journals,
        tile_metadata_store=env.metadata,
        headroom=lambda: pytest.fail("the cache is not needed"),
        settings=download.settings,
        freshness=env.metadata.freshness,
        clock=download.clock,
    )
    assert [tile.tile_id for tile in survey.list_tiles(AREA.coverage)] == TILES
