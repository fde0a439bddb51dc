"""Tile maths, with mercantile as its oracle away from exact edges."""

import math

import mercantile
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import ZOOM_MAX, TileId, compute_tile_ranges, tile_at, tile_bounds

zooms = st.integers(0, ZOOM_MAX)
NEAR = 1e-9


@st.composite
def tiles(draw: st.DrawFn) -> TileId:
    zoom = draw(zooms)
    index = st.integers(0, 2**zoom - 1)
    return TileId(source="sat", zoom=zoom, x=draw(index), y=draw(index))


def mercantile_tile(lon: float, lat: float, zoom: int) -> tuple[int, int]:
    tile = mercantile.tile(lon, lat, zoom)
    return tile.x, tile.y


@given(st.floats(-179.9, 179.9), st.floats(-85, 85), zooms)
def test_tile_at_matches_mercantile(lon: float, lat: float, zoom: int) -> None:
    assume(
        mercantile_tile(lon - NEAR, lat - NEAR, zoom)
        == mercantile_tile(lon + NEAR, lat + NEAR, zoom)
    )
    assert tile_at(lon, lat, zoom) == mercantile_tile(lon, lat, zoom)


@given(tiles())
def test_tile_bounds_match_mercantile(tile: TileId) -> None:
    bounds = tile_bounds(tile)
    expected = mercantile.bounds(tile.x, tile.y, tile.zoom)
    ours = (bounds.west, bounds.south, bounds.east, bounds.north)
    assert ours == pytest.approx(tuple(expected), abs=1e-11)


@given(tiles())
def test_tile_contains_its_corner_and_centre_and_covers_its_bounds(tile: TileId) -> None:
    bounds = tile_bounds(tile)
    (covering,) = compute_tile_ranges(bounds, tile.zoom)
    assert list(covering.tiles("sat")) == [tile]
    assert tile_at(bounds.west, bounds.north, tile.zoom) == (tile.x, tile.y)
    lon, lat = (bounds.west + bounds.east) / 2, (bounds.south + bounds.north) / 2
    assert tile_at(lon, lat, tile.zoom) == (tile.x, tile.y)


@given(tiles())
def test_adjacent_tiles_share_edges(tile: TileId) -> None:
    assume(tile.x + 1 < 2**tile.zoom and tile.y + 1 < 2**tile.zoom)
    diagonal = TileId(source="sat", zoom=tile.zoom, x=tile.x + 1, y=tile.y + 1)
    ours, theirs = tile_bounds(tile), tile_bounds(diagonal)
    assert (ours.east, ours.south) == (theirs.west, theirs.north)


@given(zooms)
def test_poles_and_antimeridian_fall_into_outer_tiles(zoom: int) -> None:
    last = 2**zoom - 1
    assert tile_at(-180, 90, zoom) == (0, 0)
    assert tile_at(180, -90, zoom) == (last, last)
    assert tile_at(-180, 86, zoom) == (0, 0)
    assert tile_at(180, -86, zoom) == (last, last)


def test_tile_at_known_points() -> None:
    assert tile_at(36.25, 50.0, 15) == mercantile_tile(36.25, 50.0, 15) == (19683, 11113)
    assert tile_at(0, 0, 1) == (1, 1)
    assert tile_at(-0.001, 0.001, 1) == (0, 0)


@pytest.mark.parametrize(
    ("lon", "lat", "zoom", "field"),
    [
        (180.1, 0.0, 1, "lon"),
        (-180.1, 0.0, 1, "lon"),
        (math.nan, 0.0, 1, "lon"),
        (0.0, 90.1, 1, "lat"),
        (0.0, math.inf, 1, "lat"),
        (0.0, math.nan, 1, "lat"),
        (0.0, 0.0, 22, "zoom"),
        (0.0, 0.0, -1, "zoom"),
        (0.0, 0.0, True, "zoom"),
    ],
)
def test_invalid_point_is_rejected(lon: float, lat: float, zoom: int, field: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        tile_at(lon, lat, zoom)
    assert caught.value.field == field
