"""Sets of tiles: what a plain set of the area's tiles would say, at one bit a tile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BBox, TileCoverage, TileId, TileSet

KHARKIV = TileCoverage(
    bbox=BBox(west=36.1, south=49.9, east=36.3, north=50.0), zoom_levels=[11, 12, 13]
)
ACROSS_THE_ANTIMERIDIAN = TileCoverage(
    bbox=BBox(west=178.0, south=-2.0, east=-178.0, north=2.0), zoom_levels=[7, 8]
)
AREAS = [KHARKIV, ACROSS_THE_ANTIMERIDIAN]


@st.composite
def areas_and_picks(draw: st.DrawFn) -> tuple[TileCoverage, list[TileId]]:
    """An area, and tiles in and around it, some of them twice."""
    area = draw(st.sampled_from(AREAS))
    inside = st.sampled_from(list(area.tiles("sat")))
    anywhere = st.integers(0, 14).flatmap(
        lambda zoom: st.builds(
            TileId,
            source=st.just("sat"),
            zoom=st.just(zoom),
            x=st.integers(0, 2**zoom - 1),
            y=st.integers(0, 2**zoom - 1),
        )
    )
    return area, draw(st.lists(inside | anywhere, max_size=60))


@given(areas_and_picks())
def test_tile_set_matches_plain_set(picked: tuple[TileCoverage, list[TileId]]) -> None:
    area, picks = picked
    tiles, expected = TileSet(area), set[TileId]()
    for tile in picks:
        assert tiles.add(tile) == area.contains(tile)
        if area.contains(tile):
            expected.add(tile)
        assert len(tiles) == len(expected)
    for tile in [*picks, *area.tiles("sat")]:
        assert (tile in tiles) == (tile in expected)
    assert list(tiles.iter_missing("sat")) == [t for t in area.tiles("sat") if t not in expected]


@pytest.mark.parametrize("area", AREAS)
def test_every_tile_has_its_own_bit(area: TileCoverage) -> None:
    tiles = TileSet(area)
    for count, tile in enumerate(area.tiles("sat"), start=1):
        assert tile not in tiles
        assert tiles.add(tile)
        assert tile in tiles
        assert len(tiles) == count
    assert len(tiles) == area.count
    assert list(tiles.iter_missing("sat")) == []


def test_adding_twice_counts_once() -> None:
    tiles = TileSet(KHARKIV)
    tile = next(KHARKIV.tiles("sat"))
    assert tiles.add(tile)
    assert tiles.add(tile)
    assert len(tiles) == 1


def test_tile_outside_area_is_not_added() -> None:
    tiles = TileSet(KHARKIV)
    other_level = TileId(source="sat", zoom=0, x=0, y=0)
    beside = TileId(source="sat", zoom=12, x=0, y=0)
    assert not tiles.add(other_level)
    assert not tiles.add(beside)
    assert other_level not in tiles
    assert beside not in tiles
    assert len(tiles) == 0


def test_both_sides_of_antimeridian_are_included() -> None:
    tiles = TileSet(ACROSS_THE_ANTIMERIDIAN)
    west, east = TileId(source="sat", zoom=7, x=127, y=63), TileId(source="sat", zoom=7, x=0, y=63)
    assert tiles.add(west)
    assert east not in tiles
    assert tiles.add(east)
    assert len(tiles) == 2


def test_new_set_is_missing_every_tile() -> None:
    assert list(TileSet(KHARKIV).iter_missing("sat")) == list(KHARKIV.tiles("sat"))


def test_million_tiles_use_one_bit_each() -> None:
    area = TileCoverage(bbox=BBox(west=30.0, south=45.0, east=40.0, north=52.0), zoom_levels=[16])
    assert area.count > 1_000_000
    assert len(TileSet(area)._bits) == (area.count + 7) // 8


def test_oversized_area_is_rejected() -> None:
    world = TileCoverage(
        bbox=BBox(west=-180.0, south=-85.0, east=180.0, north=85.0), zoom_levels=[21]
    )
    with pytest.raises(InvalidValueError, match="area: has more than 50,000,000 tiles"):
        TileSet(world)


def test_text_is_not_contained() -> None:
    area = TileCoverage(bbox=BBox(west=30.0, south=45.0, east=31.0, north=46.0), zoom_levels=[4])
    tiles = TileSet(area)
    (tile,) = area.tiles("sat")
    tiles.add(tile)
    assert tile in tiles
    assert str(tile) not in tiles
