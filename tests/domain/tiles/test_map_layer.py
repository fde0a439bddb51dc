"""Layers of a map: their zoom levels, bounds, and the merged one."""

import pytest

from tileferry.domain.tiles import TileRange
from tileferry.domain.tiles.map_layer import MERGED_LAYER, LayerLevel, MapLayer, merge_layers


def make_level(zoom: int, x: int, y: int, *, width: int = 1, tiles: int = 1) -> LayerLevel:
    extent = TileRange(zoom=zoom, x_min=x, x_max=x + width - 1, y_min=y, y_max=y)
    return LayerLevel(extent=extent, tiles=tiles)


def test_layer_has_bounds_of_its_finest_level() -> None:
    layer = MapLayer(
        name="sat", levels=[make_level(1, 0, 0), make_level(3, 1, 2, width=2, tiles=2)]
    )
    assert (layer.zoom_min, layer.zoom_max, layer.tiles) == (1, 3, 3)
    assert (layer.bounds.west, layer.bounds.east) == (-135.0, -45.0)


def test_merged_layer_encloses_all_sources() -> None:
    layers = [
        MapLayer(name="a", levels=[make_level(2, 1, 1), make_level(4, 3, 3)]),
        MapLayer(name="b", levels=[make_level(2, 3, 0, tiles=1)]),
    ]
    merged = merge_layers(layers)
    assert merged is not None
    assert merged.name == MERGED_LAYER
    assert [(level.zoom, level.tiles) for level in merged.levels] == [(2, 2), (4, 1)]
    assert merged.levels[0].extent == TileRange(zoom=2, x_min=1, x_max=3, y_min=0, y_max=1)


def test_no_layers_merge_to_none() -> None:
    assert merge_layers([]) is None


def test_level_without_tiles_is_rejected() -> None:
    with pytest.raises(ValueError, match="tiles"):
        make_level(2, 1, 1, tiles=0)
