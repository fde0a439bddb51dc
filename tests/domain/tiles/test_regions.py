"""Scattered tiles as rectangles."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.tiles import TileId
from tileferry.domain.tiles.regions import TileRegion, find_tile_regions

PLACES = st.sets(st.tuples(st.integers(3, 4), st.integers(0, 7), st.integers(0, 7)), max_size=40)


def make_tiles(places: Iterable[tuple[int, int, int]]) -> list[TileId]:
    return [TileId(source="sat", zoom=zoom, x=x, y=y) for zoom, x, y in places]


def list_places(regions: Iterable[TileRegion]) -> list[tuple[int, int, int]]:
    return [(tile.zoom, tile.x, tile.y) for region in regions for tile in region.tiles.tiles("sat")]


@given(places=PLACES)
def test_rectangles_have_exactly_the_tiles(places: set[tuple[int, int, int]]) -> None:
    regions = find_tile_regions(make_tiles(places), limit=1_000)
    assert sorted(list_places(regions)) == sorted(places)
    assert all(region.count == region.tiles.count for region in regions)


@given(places=PLACES, limit=st.integers(1, 5))
def test_few_rectangles_enclose_all_tiles(places: set[tuple[int, int, int]], limit: int) -> None:
    regions = find_tile_regions(make_tiles(places), limit=limit)
    zooms = [region.tiles.zoom for region in regions]
    assert all(zooms.count(zoom) <= limit for zoom in zooms)
    found = list_places(regions)
    assert len(found) == len({*found})
    assert places <= {*found}
    assert sum(region.count for region in regions) == len(places)


def test_neighbours_form_one_rectangle() -> None:
    block = [(5, x, y) for x in range(4, 8) for y in range(2, 5)]
    (region,) = find_tile_regions(make_tiles(block), limit=10)
    tiles = region.tiles
    assert (tiles.x_min, tiles.x_max, tiles.y_min, tiles.y_max) == (4, 7, 2, 4)
    assert find_tile_regions([], limit=10) == []
