"""The Hilbert order of tiles, held to the numbers of an independent implementation."""

from hypothesis import given
from hypothesis import strategies as st
from pmtiles.tile import tileid_to_zxy, zxy_to_tileid

from tileferry.domain.archives import (
    find_block_start,
    get_block_tiles,
    number_to_zxy,
    zxy_to_number,
)
from tileferry.domain.archives.curve import get_level_start
from tileferry.domain.tiles import TileCoverage, TileRange
from tileferry.domain.tiles.tile_id import ZOOM_MAX

NUMBER_MAX = get_level_start(ZOOM_MAX + 1) - 1


@st.composite
def places(draw: st.DrawFn) -> tuple[int, int, int]:
    zoom = draw(st.integers(0, ZOOM_MAX))
    index = st.integers(0, (1 << zoom) - 1)
    return zoom, draw(index), draw(index)


@given(places())
def test_tile_numbers_match_pmtiles_library(place: tuple[int, int, int]) -> None:
    assert zxy_to_number(*place) == zxy_to_tileid(*place)


@given(st.integers(0, NUMBER_MAX))
def test_tile_number_round_trips(number: int) -> None:
    assert number_to_zxy(number) == tileid_to_zxy(number)
    assert zxy_to_number(*number_to_zxy(number)) == number


@given(places())
def test_block_is_contiguous_on_curve(place: tuple[int, int, int]) -> None:
    start = find_block_start(*place)
    zoom, columns, rows = get_block_tiles(start)
    assert place[0] == zoom
    assert place[1] in columns
    assert place[2] in rows
    assert len(columns) == len(rows) == min(32, 1 << zoom)
    assert start <= zxy_to_number(*place) < start + len(columns) * len(rows)


def test_tiles_of_block_have_consecutive_numbers() -> None:
    zoom, columns, rows = get_block_tiles(find_block_start(9, 300, 200))
    numbers = sorted(zxy_to_number(zoom, x, y) for x in columns for y in rows)
    start = find_block_start(9, 300, 200)
    assert numbers == list(range(start, start + 1_024))


@given(places())
def test_block_bounds_cover_exactly_its_tiles(place: tuple[int, int, int]) -> None:
    zoom, columns, rows = get_block_tiles(find_block_start(*place))
    block = TileRange(zoom=zoom, x_min=columns[0], x_max=columns[-1], y_min=rows[0], y_max=rows[-1])
    assert TileCoverage(bbox=block.bounds, zoom_levels=[zoom]).ranges == (block,)
