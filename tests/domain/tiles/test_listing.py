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


LIMITS = ListingLimits(idle_pages_max=3, bytes_max=1_000, deadline_s=60.0)


def test_default_limits_of_a_whole_listing() -> None:
    limits = ListingLimits()
    assert (limits.idle_pages_max, limits.deadline_s) == (64, 3_600.0)
    assert limits.bytes_max == 4 * 1024**3


def test_invariant_29_pages_without_new_tile_are_limited() -> None:
    progress = ListingProgress(coverage=COVERAGE, limits=LIMITS)
    for page in range(4):  # each second page has a new tile
        progress.add_page(ListingPage(tiles=(make_summary(page),), next=f"new {page}"))
        progress.add_page(ListingPage(tiles=(make_summary(page),), next=f"old {page}"))
    progress.add_page(ListingPage(tiles=(make_summary(0),), next="old"))
    with pytest.raises(InvalidValueError, match="limit of 3 pages in a row without a new tile"):
        progress.add_page(ListingPage(tiles=(make_summary(1),), next="older"))


def test_invariant_29_size_of_whole_listing_is_limited() -> None:
    progress = ListingProgress(coverage=COVERAGE, limits=LIMITS)
    progress.add_page(ListingPage(tiles=(make_summary(0),), next="a", size_bytes=1_000))
    with pytest.raises(InvalidValueError, match="limit of 1000 B for a whole listing"):
        progress.add_page(ListingPage(tiles=(make_summary(1),), next="b", size_bytes=1))


def test_invariant_29_time_of_whole_listing_is_limited() -> None:
    progress = ListingProgress(coverage=COVERAGE, limits=LIMITS)
    progress.add_page(ListingPage(tiles=(make_summary(0),), next="a"), elapsed_s=59.9)
    with pytest.raises(InvalidValueError, match="limit of 60 s for a whole listing"):
        progress.add_page(ListingPage(tiles=(make_summary(1),), next="b"), elapsed_s=60.0)


def test_last_page_is_never_too_much() -> None:
    progress = ListingProgress(coverage=COVERAGE, limits=LIMITS)
    last = ListingPage(tiles=(make_summary(0),), next=None, size_bytes=10**9)
    assert progress.add_page(last, elapsed_s=1e6) == [make_summary(0)]
