"""The Hilbert order of tiles, held to the numbers of an independent implementation."""

from hypothesis import given
from hypothesis import strategies as st
from pmtiles.tile import tileid_to_zxy, zxy_to_tileid

from tileferry.domain.archives import block_start, block_tiles, tile_number, tile_of_number
from tileferry.domain.archives.curve import level_start
from tileferry.domain.tiles import TileCoverage, TileRange
from tileferry.domain.tiles.tile_id import ZOOM_MAX

NUMBER_MAX = level_start(ZOOM_MAX + 1) - 1


@st.composite
def places(draw: st.DrawFn) -> tuple[int, int, int]:
    zoom = draw(st.integers(0, ZOOM_MAX))
    index = st.integers(0, (1 << zoom) - 1)
    return zoom, draw(index), draw(index)


@given(places())
def test_numbers_are_those_of_pmtiles(place: tuple[int, int, int]) -> None:
    assert tile_number(*place) == zxy_to_tileid(*place)


@given(st.integers(0, NUMBER_MAX))
def test_a_number_leads_back_to_its_tile(number: int) -> None:
    assert tile_of_number(number) == tileid_to_zxy(number)
    assert tile_number(*tile_of_number(number)) == number


@given(places())
def test_a_block_is_a_stretch_of_the_curve(place: tuple[int, int, int]) -> None:
    start = block_start(*place)
    zoom, columns, rows = block_tiles(start)
    assert place[0] == zoom
    assert place[1] in columns
    assert place[2] in rows
    assert len(columns) == len(rows) == min(32, 1 << zoom)
    assert start <= tile_number(*place) < start + len(columns) * len(rows)


def test_all_tiles_of_a_block_follow_each_other() -> None:
    zoom, columns, rows = block_tiles(block_start(9, 300, 200))
    numbers = sorted(tile_number(zoom, x, y) for x in columns for y in rows)
    start = block_start(9, 300, 200)
    assert numbers == list(range(start, start + 1_024))


@given(places())
def test_the_box_of_a_block_asks_for_its_tiles_and_no_others(place: tuple[int, int, int]) -> None:
    zoom, columns, rows = block_tiles(block_start(*place))
    block = TileRange(zoom=zoom, x_min=columns[0], x_max=columns[-1], y_min=rows[0], y_max=rows[-1])
    assert TileCoverage(bbox=block.bounds, zoom_levels=[zoom]).ranges == (block,)
