"""Value noise on the whole world: neighbouring tiles fit together, and zoom levels agree.

Random values stand on grids over the Web Mercator square, ``2**level`` cells a side. A tile cuts
its part out and lets Pillow interpolate, so that a place does not depend on who looks at it.
"""

import math
from functools import lru_cache
from hashlib import shake_128
from typing import Any

from PIL import Image, ImageMath

Corner = tuple[int, int]

TILE_PX = 256
_BLOCK = 32
_MARGIN = 3  # bicubic interpolation looks two points to each side
_COARSE_PX = 64
_FINEST = 4  # levels below the tile: 16 cells across it, 4 coarse samples each


@lru_cache(maxsize=4_096)
def _block(name: str, level: int, column: int, row: int) -> bytes:
    return shake_128(f"{name}/{level}/{column}/{row}".encode()).digest(_BLOCK * _BLOCK)


def value_at(name: str, level: int, x: int, y: int) -> int:
    """Return the value, 0 to 255, of one point; the world is round from west to east."""
    column, inner_x = divmod(x % (1 << level), _BLOCK)
    row, inner_y = divmod(y, _BLOCK)
    return _block(name, level, column, row)[inner_y * _BLOCK + inner_x]


def _points(name: str, level: int, *, corner: Corner, size: Corner) -> Image.Image:
    (west, north), (width, height) = corner, size
    if 1 << level < _BLOCK:  # the world is smaller than a block
        values = bytes(
            value_at(name, level, west + x, north + y) for y in range(height) for x in range(width)
        )
        return Image.frombytes("L", (width, height), values)
    first_column, first_row = west // _BLOCK, north // _BLOCK
    columns = (west + width - 1) // _BLOCK - first_column + 1
    rows = (north + height - 1) // _BLOCK - first_row + 1
    sheet = Image.new("L", (columns * _BLOCK, rows * _BLOCK))
    around = (1 << level) // _BLOCK
    for column in range(columns):
        for row in range(rows):
            content = _block(name, level, (first_column + column) % around, first_row + row)
            block = Image.frombytes("L", (_BLOCK, _BLOCK), content)
            sheet.paste(block, (column * _BLOCK, row * _BLOCK))
    left, top = west - first_column * _BLOCK, north - first_row * _BLOCK
    return sheet.crop((left, top, left + width, top + height))


def noise(
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
    points = _points(name, level, corner=(first_x, first_y), size=(width, height)).convert("F")
    left, top = west - first_x, north - first_y
    size = px + 2 * border
    box = (left, top, left + span, top + span)
    return points.resize((size, size), Image.Resampling.BICUBIC, box)


def fractal(name: str, levels: range, zoom: int, x: int, y: int) -> Image.Image:
    """Add octaves up, each finer one half as strong; values lie around -128 to 128.

    Octaves too fine to be seen at this zoom are left out: the picture stays the same without them.
    The sum is made on coarse samples and enlarged once, at a fifth of the cost.
    """
    size = _COARSE_PX + 2 * _MARGIN
    total = Image.new("F", (size, size), 0.0)
    for step, level in enumerate(level for level in levels if level <= zoom + _FINEST):
        octave = noise(name, level, zoom, x, y, px=_COARSE_PX, border=_MARGIN)
        weight = 0.5**step
        weighted = octave.point(lambda value, by=weight: value * by - 128.0 * by)
        total = ImageMath.lambda_eval(_sum, total=total, octave=weighted)
    box = (_MARGIN, _MARGIN, _MARGIN + _COARSE_PX, _MARGIN + _COARSE_PX)
    return total.resize((TILE_PX, TILE_PX), Image.Resampling.BICUBIC, box)


def above(values: Image.Image, threshold: float, softness: float) -> Image.Image:
    """Return a mask: white where values exceed the threshold, with a soft edge."""
    scale = 255.0 / softness
    offset = 127.5 - threshold * scale
    return values.point(lambda value: value * scale + offset).convert("L")


def _sum(its: dict[str, Any]) -> Any:
    return its["total"] + its["octave"]
