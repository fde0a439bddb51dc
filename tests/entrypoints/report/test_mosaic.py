"""One picture of many tiles: the right zoom level, every place, a bounded size."""

import io
from base64 import b64decode

import pytest
from PIL import Image

from tileferry.domain.tiles import BBox, TileCoverage, TileId, TileRange
from tileferry.entrypoints.report.cells import Rectangle
from tileferry.entrypoints.report.mosaic import (
    SIDE_PX,
    Mosaic,
    build_mosaic,
    choose_zoom,
    list_parts,
)

BOX = BBox(west=36.1, south=49.9, east=36.4, north=50.1)
ACROSS = BBox(west=179.9, south=0.0, east=-179.9, north=0.1)
RED, GREY = (200, 30, 30), (128, 128, 128)


def draw(colour: tuple[int, int, int], size: int = 256) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (size, size), colour).save(out, "PNG")
    return out.getvalue()


def open_picture(mosaic: Mosaic) -> Image.Image:
    head, _, body = mosaic.data_uri.partition(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(b64decode(body)))


def build(coverage: TileCoverage, content: bytes | None) -> Mosaic:
    found = build_mosaic(coverage, "sat", lambda _: content)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("zooms", "chosen"),
    [([9, 12, 13, 14], 12), ([8, 9], 9), ([16, 17], 16), ([18, 19], None)],
)
def test_fewest_tiles_that_fill_the_picture_are_drawn(zooms: list[int], chosen: int | None) -> None:
    assert choose_zoom(TileCoverage(bbox=BOX, zoom_levels=zooms)) == chosen


def test_picture_shows_the_tiles_and_is_bounded() -> None:
    mosaic = build(TileCoverage(bbox=BOX, zoom_levels=[14]), draw(RED))
    picture = open_picture(mosaic)
    assert picture.size == (mosaic.width, mosaic.height)
    assert max(picture.size) <= SIDE_PX
    shown = picture.getpixel((5, 5))
    assert isinstance(shown, tuple)
    assert all(abs(got - want) < 12 for got, want in zip(shown, RED, strict=True))


@pytest.mark.parametrize("content", [None, b"", b"no picture", draw(RED)[:60]])
def test_tile_that_cannot_be_drawn_stays_grey(content: bytes | None) -> None:
    picture = open_picture(build(TileCoverage(bbox=BOX, zoom_levels=[12]), content))
    shown = picture.getpixel((5, 5))
    assert isinstance(shown, tuple)
    assert all(abs(got - want) < 12 for got, want in zip(shown, GREY, strict=True))


def test_area_that_is_too_large_has_no_picture() -> None:
    coverage = TileCoverage(bbox=BOX, zoom_levels=[19])
    assert build_mosaic(coverage, "sat", lambda _: None) is None


def test_tiles_of_other_zoom_levels_are_located() -> None:
    coverage = TileCoverage(bbox=BOX, zoom_levels=[12])
    mosaic = build(coverage, None)
    (part,) = coverage.ranges
    child = TileRange(
        zoom=13,
        x_min=2 * part.x_min + 1,
        x_max=2 * part.x_min + 1,
        y_min=2 * part.y_min,
        y_max=2 * part.y_min,
    )
    half = mosaic.tile_px / 2
    assert mosaic.locate(child) == Rectangle(half, 0, half, half)
    parent = TileRange(zoom=0, x_min=0, x_max=0, y_min=0, y_max=0)
    assert mosaic.locate(parent) == Rectangle(0, 0, mosaic.width, mosaic.height)
    beyond = TileRange(zoom=12, x_min=0, x_max=0, y_min=0, y_max=0)
    assert mosaic.locate(beyond).width == 0


def test_area_across_the_antimeridian_is_drawn_from_west_to_east() -> None:
    coverage = TileCoverage(bbox=ACROSS, zoom_levels=[12])
    west, east = list_parts(coverage, 12)
    assert west.x_max == 2**12 - 1
    assert east.x_min == 0
    mosaic = build(coverage, None)
    place = mosaic.locate(east)
    assert place.x == (west.x_max - west.x_min + 1) * mosaic.tile_px
    seen: list[TileId] = []
    build_mosaic(coverage, "sat", seen.append)
    assert len(seen) == coverage.count
