"""One small picture of many tiles, for a page that must stay small."""

import io
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from attrs import frozen

from tileferry.domain.tiles import TileCoverage, TileId, TileRange, compute_tile_ranges
from tileferry.entrypoints.report.cells import Rectangle

SIDE_PX = 1_024
"""The longer side of the picture."""
TILES_MAX = 4_096
"""More tiles than this are not read for one picture."""
_TILE_PX_MAX = 4_096
_QUALITY = 72
_NO_TILE = (128, 128, 128)


@frozen(kw_only=True)
class Mosaic:
    """A picture of one zoom level, and the size of a tile in it."""

    zoom: int
    columns: int
    rows: int
    tile_px: int
    parts: Sequence[TileRange]
    """The tiles, from west to east."""
    data_uri: str

    @property
    def width(self) -> int:
        return self.columns * self.tile_px

    @property
    def height(self) -> int:
        return self.rows * self.tile_px

    def locate(self, tiles: TileRange) -> Rectangle:
        """Return the place of some tiles of any zoom level, cut off at the edges of the picture."""
        scale = 2.0 ** (self.zoom - tiles.zoom)
        west, east = tiles.x_min * scale, (tiles.x_max + 1) * scale
        part, start = self._find_part(west, east)
        first = self.parts[0]
        left, right = (start + edge - part.x_min for edge in (west, east))
        top, bottom = ((y * scale) - first.y_min for y in (tiles.y_min, tiles.y_max + 1))
        left, right = (min(max(edge, 0.0), self.columns) for edge in (left, right))
        top, bottom = (min(max(edge, 0.0), self.rows) for edge in (top, bottom))
        px = self.tile_px
        return Rectangle(left * px, top * px, (right - left) * px, (bottom - top) * px)

    def _find_part(self, west: float, east: float) -> tuple[TileRange, int]:
        """Return the part of the picture that shows these columns, and its first column."""
        start = 0
        for part in self.parts:
            if east > part.x_min and west < part.x_max + 1:
                return part, start
            start += part.x_max - part.x_min + 1
        return self.parts[0], 0  # beyond the picture


def choose_zoom(coverage: TileCoverage) -> int | None:
    """Return the zoom level that fills the picture with the fewest tiles.

    ``None`` if even the coarsest has too many.
    """
    fitting = [
        zoom
        for zoom in coverage.zoom_levels
        if sum(part.count for part in list_parts(coverage, zoom)) <= TILES_MAX
    ]
    sharp = [zoom for zoom in fitting if max(_measure(list_parts(coverage, zoom))) * 256 >= SIDE_PX]
    return min(sharp, default=max(fitting, default=None))


def list_parts(coverage: TileCoverage, zoom: int) -> list[TileRange]:
    """Return the tiles of a zoom level, from west to east across the antimeridian."""
    parts = list(compute_tile_ranges(coverage.bbox, zoom))
    return parts[::-1] if coverage.bbox.crosses_antimeridian else parts


def build_mosaic(
    coverage: TileCoverage, source: str, read: Callable[[TileId], bytes | None]
) -> Mosaic | None:
    """Return the picture of an area; ``None`` if it is too large, or pictures cannot be read here.

    Tiles that ``read`` does not return stay grey.
    """
    try:
        from PIL import Image  # noqa: PLC0415  # an extra, which other parts do not need
    except ImportError:
        return None
    zoom = choose_zoom(coverage)
    if zoom is None:
        return None
    parts = list_parts(coverage, zoom)
    columns, rows = _measure(parts)
    tile_px = max(1, min(256, SIDE_PX // max(columns, rows)))
    canvas = Image.new("RGB", (columns * tile_px, rows * tile_px), _NO_TILE)
    for column, row, tile in _iter_places(parts, source):
        content = read(tile)
        if content is None:
            continue
        # What a provider sent may be anything; a tile that cannot be drawn stays grey.
        with (
            suppress(OSError, ValueError, SyntaxError, Image.DecompressionBombError),
            Image.open(io.BytesIO(content), formats=("PNG", "JPEG", "WEBP")) as picture,
        ):
            if max(picture.size) <= _TILE_PX_MAX:
                picture.draft("RGB", (tile_px, tile_px))
                small = picture.convert("RGB").resize((tile_px, tile_px))
                canvas.paste(small, (column * tile_px, row * tile_px))
    out = io.BytesIO()
    canvas.save(out, "JPEG", quality=_QUALITY, optimize=True)
    return Mosaic(
        zoom=zoom,
        columns=columns,
        rows=rows,
        tile_px=tile_px,
        parts=parts,
        data_uri=f"data:image/jpeg;base64,{b64encode(out.getvalue()).decode('ascii')}",
    )


def _measure(parts: Sequence[TileRange]) -> tuple[int, int]:
    """Return the number of columns and rows."""
    columns = sum(part.x_max - part.x_min + 1 for part in parts)
    return columns, parts[0].y_max - parts[0].y_min + 1


def _iter_places(parts: Sequence[TileRange], source: str) -> Iterator[tuple[int, int, TileId]]:
    """Yield each tile with its column and row in the picture."""
    start = 0
    for part in parts:
        for tile in part.tiles(source):
            yield start + tile.x - part.x_min, tile.y - part.y_min, tile
        start += part.x_max - part.x_min + 1
