"""Value noise over the whole world: neighbouring tiles fit together and zoom levels agree.

Random values lie on grids over the Web Mercator square, ``2**level`` cells a side. A tile cuts out
its part and lets Pillow interpolate, so a place looks the same in every tile that shows it.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from hashlib import shake_128
from typing import Any

from PIL import Image, ImageChops, ImageDraw, ImageMath

Corner = tuple[int, int]

TILE_PX = 256
_BLOCK = 32
_MARGIN = 3  # bicubic interpolation looks two points to each side
_COARSE_PX = 64
_FINEST = 4  # levels below the tile: 16 cells across it, 4 coarse samples each


@lru_cache(maxsize=4_096)
def _random_block(name: str, level: int, column: int, row: int) -> bytes:
    return shake_128(f"{name}/{level}/{column}/{row}".encode()).digest(_BLOCK * _BLOCK)


def get_noise_value(name: str, level: int, x: int, y: int) -> int:
    """Return the value of one point, 0 to 255; the world wraps from west to east."""
    column, inner_x = divmod(x % (1 << level), _BLOCK)
    row, inner_y = divmod(y, _BLOCK)
    return _random_block(name, level, column, row)[inner_y * _BLOCK + inner_x]


def _read_points(name: str, level: int, *, corner: Corner, size: Corner) -> Image.Image:
    (west, north), (width, height) = corner, size
    if 1 << level < _BLOCK:  # the world is smaller than a block
        values = bytes(
            get_noise_value(name, level, west + x, north + y)
            for y in range(height)
            for x in range(width)
        )
        return Image.frombytes("L", (width, height), values)
    first_column, first_row = west // _BLOCK, north // _BLOCK
    columns = (west + width - 1) // _BLOCK - first_column + 1
    rows = (north + height - 1) // _BLOCK - first_row + 1
    sheet = Image.new("L", (columns * _BLOCK, rows * _BLOCK))
    around = (1 << level) // _BLOCK
    for column in range(columns):
        for row in range(rows):
            content = _random_block(name, level, (first_column + column) % around, first_row + row)
            block = Image.frombytes("L", (_BLOCK, _BLOCK), content)
            sheet.paste(block, (column * _BLOCK, row * _BLOCK))
    left, top = west - first_column * _BLOCK, north - first_row * _BLOCK
    return sheet.crop((left, top, left + width, top + height))


def sample_noise(
    name: str, level: int, zoom: int, x: int, y: int, *, px: int = TILE_PX, border: int = 0
) -> Image.Image:
    """Return one octave over a tile, as floating-point values around 0 to 255.

    ``px`` samples span the tile; ``border`` more on each side overlap its neighbours.
    """
    cells = 2.0 ** (level - zoom)
    beyond = cells * border / px
    west, north = x * cells - beyond, y * cells - beyond
    span = cells + 2 * beyond
    first_x, first_y = math.floor(west) - _MARGIN, math.floor(north) - _MARGIN
    width = math.ceil(west + span) + _MARGIN - first_x
    height = math.ceil(north + span) + _MARGIN - first_y
    points = _read_points(name, level, corner=(first_x, first_y), size=(width, height)).convert("F")
    left, top = west - first_x, north - first_y
    size = px + 2 * border
    box = (left, top, left + span, top + span)
    return points.resize((size, size), Image.Resampling.BICUBIC, box)


def sample_fractal(name: str, levels: range, zoom: int, x: int, y: int) -> Image.Image:
    """Return the sum of octaves, each finer one half as strong; values lie around -128 to 128.

    Octaves too fine to be seen at this zoom are skipped. The sum is computed on coarse samples and
    enlarged once, at a fifth of the cost.
    """
    size = _COARSE_PX + 2 * _MARGIN
    total = Image.new("F", (size, size), 0.0)
    for step, level in enumerate(level for level in levels if level <= zoom + _FINEST):
        octave = sample_noise(name, level, zoom, x, y, px=_COARSE_PX, border=_MARGIN)
        weight = 0.5**step
        weighted = octave.point(lambda value, by=weight: value * by - 128.0 * by)
        total = ImageMath.lambda_eval(_add_octave, total=total, octave=weighted)
    box = (_MARGIN, _MARGIN, _MARGIN + _COARSE_PX, _MARGIN + _COARSE_PX)
    return total.resize((TILE_PX, TILE_PX), Image.Resampling.BICUBIC, box)


def mask_above(values: Image.Image, threshold: float, softness: float) -> Image.Image:
    """Return a mask: white where values exceed the threshold, with a soft edge."""
    scale = 255.0 / softness
    offset = 127.5 - threshold * scale
    return values.point(lambda value: value * scale + offset).convert("L")


def _add_octave(its: dict[str, Any]) -> Any:
    return its["total"] + its["octave"]


Point = tuple[float, float]
Colour = tuple[int, int, int]

FIELD_LEVEL = 17
"""A field is one cell of 2**17 across the world: 200 m at 50 degrees latitude."""
FIELDS_ZOOM_MIN = 13
"""At lower zooms a field is only a few pixels, so its mean colour is drawn."""
COVER_ZOOM_MIN = 9
"""At lower zooms woods and rivers are too small to be seen."""
_ROAD_EVERY = 4
_BEND = 0.38
_FARMS_OF_256 = 110
_RIVER_LEVEL = 13

_CROPS: tuple[Colour, ...] = (
    (139, 148, 84), (117, 135, 71), (164, 154, 96), (184, 167, 112), (97, 122, 62), (150, 128, 88),
    (128, 141, 92), (172, 160, 108), (108, 128, 78), (146, 118, 82), (120, 146, 76), (190, 176, 99),
)  # fmt: skip
_FAR: Colour = (136, 141, 86)
_WOOD: Colour = (48, 71, 42)
_WOOD_LIGHT: Colour = (74, 97, 56)
_WATER: Colour = (44, 78, 92)
_SHALLOW: Colour = (84, 118, 118)
_BANK: Colour = (120, 132, 88)
_ROAD: Colour = (206, 198, 180)
_TRACK: Colour = (120, 116, 78)
_ROOFS: tuple[Colour, ...] = ((158, 92, 72), (182, 176, 168), (120, 112, 106), (196, 190, 180))


@lru_cache(maxsize=8_192)
def _bend_corner(column: int, row: int) -> Point:
    """Return the displaced position of a corner of the field grid, in cells."""
    east = get_noise_value("bend-x", FIELD_LEVEL, column, row) / 255 - 0.5
    south = get_noise_value("bend-y", FIELD_LEVEL, column, row) / 255 - 0.5
    return column + 2 * _BEND * east, row + 2 * _BEND * south


class Landscape:
    """One tile's part of the landscape, drawn layer by layer."""

    def __init__(self, zoom: int, x: int, y: int) -> None:
        self._zoom, self._x, self._y = zoom, x, y
        self._cells = 2.0 ** (FIELD_LEVEL - zoom)
        self._px = TILE_PX / self._cells
        self._image = Image.new("RGB", (TILE_PX, TILE_PX), _FAR)

    def draw(self) -> Image.Image:
        """Return the image."""
        near, seen = self._zoom >= FIELDS_ZOOM_MIN, self._zoom >= COVER_ZOOM_MIN
        if near:
            self._draw_fields()
        if seen:
            self._draw_woods()
        if near:
            self._draw_roads(eastwards=True)
            self._draw_farms()
        if seen:
            self._draw_river()
        self._draw_grain()
        if near:
            self._draw_roads(eastwards=False)  # these get bridges
        return self._image

    def _softness(self, level: int) -> float:
        """Return the change of the noise value over about two pixels, for edges that look sharp."""
        return 2.0 ** (level - self._zoom) * 255.0 / TILE_PX * 3.0

    def _to_pixels(self, point: Point) -> Point:
        """Convert a point from cells to pixels of this tile."""
        return (
            point[0] * self._px - self._x * TILE_PX,
            point[1] * self._px - self._y * TILE_PX,
        )

    def _list_cells(self) -> Iterator[tuple[int, int]]:
        first_x, first_y = (math.floor(index * self._cells) for index in (self._x, self._y))
        last_x, last_y = (math.ceil((index + 1) * self._cells) for index in (self._x, self._y))
        for column in range(first_x - 1, last_x + 1):
            for row in range(first_y - 1, last_y + 1):
                yield column, row

    def _draw_fields(self) -> None:
        # Drawn at twice the size: Pillow's polygons have hard edges.
        sheet = Image.new("RGB", (2 * TILE_PX, 2 * TILE_PX))
        draw = ImageDraw.Draw(sheet)
        width = max(1, round(self._px / 24))
        for column, row in self._list_cells():
            around = ((0, 0), (1, 0), (1, 1), (0, 1))
            corners = [_bend_corner(column + right, row + down) for right, down in around]
            outline = [(2 * a, 2 * b) for a, b in map(self._to_pixels, corners)]
            if not _is_visible(outline, 2 * TILE_PX):
                continue
            crop = _CROPS[get_noise_value("crop", FIELD_LEVEL, column, row) % len(_CROPS)]
            draw.polygon(outline, fill=crop)
            self._draw_furrows(
                draw, outline, crop, get_noise_value("furrows", FIELD_LEVEL, column, row)
            )
            draw.line([*outline, outline[0]], fill=_TRACK, width=width)
        self._image = sheet.resize((TILE_PX, TILE_PX), Image.Resampling.BOX)

    def _draw_furrows(
        self, draw: ImageDraw.ImageDraw, outline: list[Point], crop: Colour, chance: int
    ) -> None:
        """Draw plough lines parallel to the field's sides."""
        if chance % 3 == 0:
            return
        first, second, third, fourth = outline if chance % 2 else [*outline[1:], outline[0]]
        darker = (crop[0] - 9, crop[1] - 9, crop[2] - 8)
        count = 6 + chance % 5
        for step in range(1, count):
            share = step / count
            draw.line(
                [_interpolate(first, fourth, share), _interpolate(second, third, share)],
                fill=darker,
                width=max(1, round(self._px / 40)),
            )

    def _draw_grain(self) -> None:
        """Add broad differences of soil and a fine grain."""
        soil = sample_noise("soil", self._zoom + 2, self._zoom, self._x, self._y)
        grain = sample_noise("grain", self._zoom + 6, self._zoom, self._x, self._y)
        for values, strength in ((soil, 0.10), (grain, 0.16)):
            light = values.point(lambda value, by=strength: value * by + 128.0 * (1.0 - by))
            layer = light.convert("L")
            self._image = ImageChops.overlay(self._image, Image.merge("RGB", (layer,) * 3))

    def _draw_woods(self) -> None:
        cover = sample_fractal("woods", range(14, 19), self._zoom, self._x, self._y)
        mask = mask_above(cover, 42.0, 4 * self._softness(14))
        crowns = sample_noise("crowns", 20, self._zoom, self._x, self._y)
        dark = Image.new("RGB", self._image.size, _WOOD)
        light = Image.new("RGB", self._image.size, _WOOD_LIGHT)
        trees = Image.composite(light, dark, mask_above(crowns, 140.0, 180.0))
        self._image.paste(trees, mask=mask)

    def _draw_river(self) -> None:
        levels = range(_RIVER_LEVEL, _RIVER_LEVEL + 4)
        river = sample_fractal("river", levels, self._zoom, self._x, self._y)
        soft = self._softness(_RIVER_LEVEL)
        for half_width, colour in ((15.0, _BANK), (11.0, _SHALLOW), (9.5, _WATER)):
            mask = ImageChops.darker(
                mask_above(river, -half_width, soft),
                ImageChops.invert(mask_above(river, half_width, soft)),
            )
            self._image.paste(Image.new("RGB", self._image.size, colour), mask=mask)

    def _draw_roads(self, *, eastwards: bool) -> None:
        draw = ImageDraw.Draw(self._image)
        width = max(1, round(self._px / 22))
        for column, row in self._list_cells():
            if (row if eastwards else column) % _ROAD_EVERY == 0:
                begin = _bend_corner(column, row)
                end = _bend_corner(column + 1, row) if eastwards else _bend_corner(column, row + 1)
                draw.line([self._to_pixels(begin), self._to_pixels(end)], fill=_ROAD, width=width)

    def _draw_farms(self) -> None:
        draw = ImageDraw.Draw(self._image)
        for column, row in self._list_cells():
            chance = get_noise_value("farms", FIELD_LEVEL, column, row)
            if row % _ROAD_EVERY or chance > _FARMS_OF_256:
                continue
            begin, end = _bend_corner(column, row), _bend_corner(column + 1, row)
            for number in range(1 + chance % 5):
                along = _interpolate(begin, end, 0.12 + 0.16 * number)
                aside = 0.07 if (chance >> number) & 1 else -0.13
                west, north = self._to_pixels((along[0], along[1] + aside))
                size = self._px * (0.05 + 0.012 * ((chance + number) % 4))
                roof = _ROOFS[(chance + number) % len(_ROOFS)]
                draw.rectangle((west, north, west + size * 1.5, north + size), fill=roof)


def _is_visible(outline: list[Point], size: int) -> bool:
    across, down = ([point[axis] for point in outline] for axis in (0, 1))
    return max(across) >= 0 <= max(down) and min(across) <= size >= min(down)


def _interpolate(one: Point, other: Point, share: float) -> Point:
    return one[0] + (other[0] - one[0]) * share, one[1] + (other[1] - one[1]) * share
