"""The pictures: recognisable, always the same, and of one landscape."""

import io
import math
from statistics import fmean

import pytest
from PIL import Image, ImageChops, ImageStat

from tileferry.domain.tiles import TileId, tile_at
from tileferry.entrypoints.provider.imagery import TileImageCache, compute_repr_digest, draw_tile
from tileferry.entrypoints.provider.landscape import Landscape

X, Y = tile_at(36.2, 50.1, 15)
"""A tile among fields."""


def draw_unlabelled(zoom: int, x: int, y: int) -> Image.Image:
    """A picture without its name on it."""
    return Landscape(zoom, x, y).draw()


def difference(one: Image.Image, other: Image.Image) -> float:
    return fmean(ImageStat.Stat(ImageChops.difference(one, other)).mean)


def column(image: Image.Image, x: int) -> Image.Image:
    return image.crop((x, 0, x + 1, 256))


def row(image: Image.Image, y: int) -> Image.Image:
    return image.crop((0, y, 256, y + 1))


@pytest.mark.parametrize("zoom", [0, 5, 11, 15, 18, 21])
def test_tile_is_256_px_jpeg(zoom: int) -> None:
    scale = 2.0 ** (zoom - 15)
    content = draw_tile(zoom, math.floor(X * scale), math.floor(Y * scale))
    image = Image.open(io.BytesIO(content))
    image.load()
    assert (image.format, image.size) == ("JPEG", (256, 256))
    assert 5_000 < len(content) < 30_000


def test_tiles_of_common_zooms_have_typical_byte_size() -> None:
    sizes = [
        len(draw_tile(zoom, (X + step) << (zoom - 15), Y << (zoom - 15)))
        for zoom in (15, 16, 17, 18)
        for step in range(5)
    ]
    assert min(sizes) > 10_000
    assert max(sizes) < 25_000


def test_tile_drawing_is_deterministic_and_unique() -> None:
    tiles = [TileId(source="a", zoom=16, x=2 * X + step, y=2 * Y) for step in range(4)]
    first = [TileImageCache().get_or_draw(tile).content for tile in tiles]
    assert [draw_tile(tile.zoom, tile.x, tile.y) for tile in tiles] == first
    assert len(set(first)) == len(tiles)


def test_tile_name_is_drawn_in_corner() -> None:
    labelled = Image.open(io.BytesIO(draw_tile(15, X, Y)))
    plain = draw_unlabelled(15, X, Y)
    corner, rest = (0, 0, 130, 30), (0, 40, 256, 256)
    assert difference(labelled.crop(corner), plain.crop(corner)) > 10
    assert difference(labelled.crop(rest), plain.crop(rest)) < 5  # what JPEG takes away


@pytest.mark.parametrize("zoom", [10, 13, 15, 17])
def test_neighbouring_tiles_match_at_edges(zoom: int) -> None:
    x, y = tile_at(36.2, 50.1, zoom)
    here, east, south = (
        draw_unlabelled(zoom, x, y),
        draw_unlabelled(zoom, x + 1, y),
        draw_unlabelled(zoom, x, y + 1),
    )
    inside = fmean(difference(column(here, at), column(here, at + 1)) for at in range(0, 255, 5))
    assert difference(column(here, 255), column(east, 0)) < 2 * inside
    assert difference(row(here, 255), row(south, 0)) < 2 * inside
    far = draw_unlabelled(zoom, x + 7, y)
    assert difference(column(here, 255), column(far, 0)) > 2 * inside


def test_tiles_match_across_antimeridian() -> None:
    last = draw_unlabelled(15, 2**15 - 1, Y)
    first = draw_unlabelled(15, 0, Y)
    inside = fmean(difference(column(last, at), column(last, at + 1)) for at in range(0, 255, 5))
    assert difference(column(last, 255), column(first, 0)) < 2 * inside


@pytest.mark.parametrize("zoom", [13, 14, 15, 16])
def test_tile_matches_its_four_children(zoom: int) -> None:
    x, y = tile_at(36.25, 50.05, zoom)
    children = Image.new("RGB", (512, 512))
    for right in (0, 1):
        for down in (0, 1):
            child = draw_unlabelled(zoom + 1, 2 * x + right, 2 * y + down)
            children.paste(child, (256 * right, 256 * down))
    # Grain belongs to a zoom, the landscape does not: compare what is left of 8 pixels a side.
    seen, shown = (
        image.resize((32, 32), Image.Resampling.BOX)
        for image in (draw_unlabelled(zoom, x, y), children)
    )
    elsewhere = draw_unlabelled(zoom, x + 5, y).resize((32, 32), Image.Resampling.BOX)
    assert difference(seen, shown) < 8
    assert difference(seen, shown) < difference(seen, elsewhere) / 2


def test_image_cache_keeps_most_recently_used() -> None:
    imagery = TileImageCache(kept_max=2)
    tiles = [TileId(source="a", zoom=15, x=X + step, y=Y) for step in range(3)]
    imagery.get_or_draw(tiles[0])
    imagery.get_or_draw(tiles[1])
    assert imagery.find(tiles[0]) is not None  # used again, so the other is the oldest
    imagery.get_or_draw(tiles[2])
    assert [imagery.find(tile) is not None for tile in tiles] == [True, False, True]


def test_repr_digest_follows_rfc_9530() -> None:
    # The example of the RFC's appendix A: {"hello": "world"} and a line feed.
    assert (
        compute_repr_digest(b'{"hello": "world"}\n')
        == "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"
    )
