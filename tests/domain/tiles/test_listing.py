"""Listings that would not end, repeat themselves or leave the area."""

from datetime import UTC, datetime

import pytest
from attrs import evolve

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    BBox,
    ListingLimits,
    ListingPage,
    ListingProgress,
    TileCoverage,
    TileId,
    TileSummary,
)

TILE = TileSummary(
    tile_id=TileId(source="sat", zoom=14, x=9_830, y=5_544),
    produced_at=datetime(2026, 10, 1, 12, tzinfo=UTC),
    resolution_m_per_px=0.6,
    estimated_bytes=20_480,
)
COVERAGE = TileCoverage(bbox=BBox(west=36.0, south=50.0, east=36.3, north=50.2), zoom_levels=[14])


def make_summary(number: int) -> TileSummary:
    tiles = list(COVERAGE.tiles("sat"))
    return evolve(TILE, tile_id=tiles[number])


def test_already_listed_tiles_are_skipped() -> None:
    progress = ListingProgress(coverage=COVERAGE)
    first, second, third = (make_summary(number) for number in range(3))
    assert progress.add_page(ListingPage(tiles=(first, second, first), next="2")) == [
        first,
        second,
    ]
    assert progress.add_page(ListingPage(tiles=(second, third), next=None)) == [third]


def test_invariant_29_repeated_cursor_is_rejected() -> None:
    progress = ListingProgress(coverage=COVERAGE)
    for cursor in ("a", "b"):
        progress.add_page(ListingPage(tiles=(), next=cursor))
    with pytest.raises(InvalidValueError, match="is repeated: the listing loops") as refusal:
        progress.add_page(ListingPage(tiles=(), next="a"))
    assert refusal.value.field == "listing.next"


def test_invariant_29_listing_beyond_page_limit_is_rejected() -> None:
    progress = ListingProgress(coverage=COVERAGE, limits=ListingLimits(pages_max=3))
    for cursor in ("a", "b"):
        progress.add_page(ListingPage(tiles=(), next=cursor))
    with pytest.raises(InvalidValueError, match="exceeds the limit of 3 pages"):
        progress.add_page(ListingPage(tiles=(), next="c"))


def test_tile_outside_area_is_rejected() -> None:
    progress = ListingProgress(coverage=COVERAGE)
    elsewhere = evolve(TILE, tile_id=evolve(TILE.tile_id, x=1))
    with pytest.raises(InvalidValueError, match="is outside the requested area"):
        progress.add_page(ListingPage(tiles=(elsewhere,), next=None))
