"""A made-up landscape from above: fields, woods, a river with its banks, roads and farms.

Everything is placed by global coordinates. Fields are the cells of a bent grid, roads run along
some of its lines, and the river follows where a slow noise passes zero.
"""

import math
from collections.abc import Iterator
from functools import lru_cache

from PIL import Image, ImageChops, ImageDraw

from tileferry.entrypoints.provider.noise import TILE_PX, above, fractal, noise, value_at

Point = tuple[float, float]
Colour = tuple[int, int, int]

FIELD_LEVEL = 17
"""A field is one cell of 2**17 across the world: 200 m at 50 degrees of latitude."""
FIELDS_ZOOM_MIN = 13
"""Further out, single fields would be a few pixels; their mean colour is drawn."""
COVER_ZOOM_MIN = 9
"""Further out still, woods and rivers are too small to be seen."""
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
def _corner(column: int, row: int) -> Point:
    """Return where a corner of the fields' grid has been bent to, in cells."""
    east = value_at("bend-x", FIELD_LEVEL, column, row) / 255 - 0.5
    south = value_at("bend-y", FIELD_LEVEL, column, row) / 255 - 0.5
    return column + 2 * _BEND * east, row + 2 * _BEND * south


class Landscape:
    """One tile's part of it, drawn layer by layer."""

    def __init__(self, zoom: int, x: int, y: int) -> None:
        self._zoom, self._x, self._y = zoom, x, y
        self._cells = 2.0 ** (FIELD_LEVEL - zoom)
        self._px = TILE_PX / self._cells
        self._image = Image.new("RGB", (TILE_PX, TILE_PX), _FAR)

    def drawn(self) -> Image.Image:
        """Return the picture."""
        near, seen = self._zoom >= FIELDS_ZOOM_MIN, self._zoom >= COVER_ZOOM_MIN
        if near:
            self._fields()
        if seen:
            self._woods()
        if near:
            self._roads(eastwards=True)
            self._farms()
        if seen:
            self._river()
        self._grain()
        if near:
            self._roads(eastwards=False)  # these have bridges
        return self._image

    def _softness(self, level: int) -> float:
        """Return the step of a noise's value over about two pixels: an edge that looks sharp."""
        return 2.0 ** (level - self._zoom) * 255.0 / TILE_PX * 3.0

    def _place(self, point: Point) -> Point:
        """Return a point, given in cells, in pixels of this tile."""
        return (
            point[0] * self._px - self._x * TILE_PX,
            point[1] * self._px - self._y * TILE_PX,
        )

    def _grid(self) -> Iterator[tuple[int, int]]:
        first_x, first_y = (math.floor(index * self._cells) for index in (self._x, self._y))
        last_x, last_y = (math.ceil((index + 1) * self._cells) for index in (self._x, self._y))
        for column in range(first_x - 1, last_x + 1):
            for row in range(first_y - 1, last_y + 1):
                yield column, row

    def _fields(self) -> None:
        # Drawn at twice the size: Pillow's polygons have hard edges.
        sheet = Image.new("RGB", (2 * TILE_PX, 2 * TILE_PX))
        draw = ImageDraw.Draw(sheet)
        width = max(1, round(self._px / 24))
        for column, row in self._grid():
            around = ((0, 0), (1, 0), (1, 1), (0, 1))
            corners = [_corner(column + right, row + down) for right, down in around]
            outline = [(2 * a, 2 * b) for a, b in map(self._place, corners)]
            if not _visible(outline, 2 * TILE_PX):
                continue
            crop = _CROPS[value_at("crop", FIELD_LEVEL, column, row) % len(_CROPS)]
            draw.polygon(outline, fill=crop)
            self._furrows(draw, outline, crop, value_at("furrows", FIELD_LEVEL, column, row))
            draw.line([*outline, outline[0]], fill=_TRACK, width=width)
        self._image = sheet.resize((TILE_PX, TILE_PX), Image.Resampling.BOX)

    def _furrows(
        self, draw: ImageDraw.ImageDraw, outline: list[Point], crop: Colour, chance: int
    ) -> None:
        """Draw the lines of the plough, along the field's own sides."""
        if chance % 3 == 0:
            return
        first, second, third, fourth = outline if chance % 2 else [*outline[1:], outline[0]]
        darker = (crop[0] - 9, crop[1] - 9, crop[2] - 8)
        count = 6 + chance % 5
        for step in range(1, count):
            share = step / count
            draw.line(
                [_between(first, fourth, share), _between(second, third, share)],
                fill=darker,
                width=max(1, round(self._px / 40)),
            )

    def _grain(self) -> None:
        """Let the ground vary: broad differences of soil, and the fine grain of everything."""
        soil = noise("soil", self._zoom + 2, self._zoom, self._x, self._y)
        grain = noise("grain", self._zoom + 6, self._zoom, self._x, self._y)
        for values, strength in ((soil, 0.10), (grain, 0.16)):
            light = values.point(lambda value, by=strength: value * by + 128.0 * (1.0 - by))
            layer = light.convert("L")
            self._image = ImageChops.overlay(self._image, Image.merge("RGB", (layer,) * 3))

    def _woods(self) -> None:
        cover = fractal("woods", range(14, 19), self._zoom, self._x, self._y)
        mask = above(cover, 42.0, 4 * self._softness(14))
        crowns = noise("crowns", 20, self._zoom, self._x, self._y)
        dark = Image.new("RGB", self._image.size, _WOOD)
        light = Image.new("RGB", self._image.size, _WOOD_LIGHT)
        trees = Image.composite(light, dark, above(crowns, 140.0, 180.0))
        self._image.paste(trees, mask=mask)

    def _river(self) -> None:
        levels = range(_RIVER_LEVEL, _RIVER_LEVEL + 4)
        river = fractal("river", levels, self._zoom, self._x, self._y)
        soft = self._softness(_RIVER_LEVEL)
        for half_width, colour in ((15.0, _BANK), (11.0, _SHALLOW), (9.5, _WATER)):
            mask = ImageChops.darker(
                above(river, -half_width, soft),
                ImageChops.invert(above(river, half_width, soft)),
            )
            self._image.paste(Image.new("RGB", self._image.size, colour), mask=mask)

    def _roads(self, *, eastwards: bool) -> None:
        draw = ImageDraw.Draw(self._image)
        width = max(1, round(self._px / 22))
        for column, row in self._grid():
            if (row if eastwards else column) % _ROAD_EVERY == 0:
                begin = _corner(column, row)
                end = _corner(column + 1, row) if eastwards else _corner(column, row + 1)
                draw.line([self._place(begin), self._place(end)], fill=_ROAD, width=width)

    def _farms(self) -> None:
        draw = ImageDraw.Draw(self._image)
        for column, row in self._grid():
            chance = value_at("farms", FIELD_LEVEL, column, row)
            if row % _ROAD_EVERY or chance > _FARMS_OF_256:
                continue
            begin, end = _corner(column, row), _corner(column + 1, row)
            for number in range(1 + chance % 5):
                along = _between(begin, end, 0.12 + 0.16 * number)
                aside = 0.07 if (chance >> number) & 1 else -0.13
                west, north = self._place((along[0], along[1] + aside))
                size = self._px * (0.05 + 0.012 * ((chance + number) % 4))
                roof = _ROOFS[(chance + number) % len(_ROOFS)]
                draw.rectangle((west, north, west + size * 1.5, north + size), fill=roof)


def _visible(outline: list[Point], size: int) -> bool:
    across, down = ([point[axis] for point in outline] for axis in (0, 1))
    return max(across) >= 0 <= max(down) and min(across) <= size >= min(down)


def _between(one: Point, other: Point, share: float) -> Point:
    return one[0] + (other[0] - one[0]) * share, one[1] + (other[1] - one[1]) * share
