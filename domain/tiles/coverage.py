"""Which tiles an area consists of, as a handful of ranges instead of a list of millions."""

from collections.abc import Iterator

from attrs import field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.bbox import BBox
from tileferry.domain.tiles.mercator import across, block_bounds, down, first_index, last_index
from tileferry.domain.tiles.tile_id import TileId, check_zoom, normalised_zooms


@frozen(kw_only=True)
class TileRange:
    """A rectangle of tiles at one zoom level, both ends included."""

    zoom: int
    x_min: int
    x_max: int
    y_min: int
    y_max: int

    def __attrs_post_init__(self) -> None:
        last = (1 << check_zoom(self.zoom, field="TileRange.zoom")) - 1
        for axis, low, high in (("x", self.x_min, self.x_max), ("y", self.y_min, self.y_max)):
            if not (type(low) is int and type(high) is int and 0 <= low <= high <= last):
                raise InvalidValueError(
                    field=f"TileRange.{axis}_min, TileRange.{axis}_max",
                    value=(low, high),
                    problem=f"must be whole numbers in ascending order, from 0 to {last}",
                )

    @property
    def count(self) -> int:
        """How many tiles there are."""
        return (self.x_max - self.x_min + 1) * (self.y_max - self.y_min + 1)

    @property
    def bounds(self) -> BBox:
        """The box that the tiles cover, to their outer edges."""
        return block_bounds(
            self.zoom, x_min=self.x_min, x_max=self.x_max, y_min=self.y_min, y_max=self.y_max
        )

    def contains(self, tile: TileId) -> bool:
        """Tell whether the tile lies inside, whatever its source."""
        return (
            tile.zoom == self.zoom
            and self.x_min <= tile.x <= self.x_max
            and self.y_min <= tile.y <= self.y_max
        )

    def tiles(self, source: str, *, start: int = 0) -> Iterator[TileId]:
        """Yield the tiles in ascending order, one at a time, from the ``start``-th on."""
        columns, rows = divmod(start, self.y_max - self.y_min + 1)
        y_first = self.y_min + rows
        for x in range(self.x_min + columns, self.x_max + 1):
            for y in range(y_first, self.y_max + 1):
                yield TileId(source=source, zoom=self.zoom, x=x, y=y)
            y_first = self.y_min


def tile_ranges(bbox: BBox, zoom: int) -> tuple[TileRange, ...]:
    """Return what covers the box at one level: one range, or two across the antimeridian.

    The ranges are disjoint and ascend, so nothing comes twice. The box's east and south edges do
    not reach into a tile that only begins there.
    """
    if not isinstance(bbox, BBox):
        raise InvalidValueError(
            field="bbox", value=bbox, problem="must be a BBox", remedy="see BBox.parse"
        )
    tiles = 1 << check_zoom(zoom)
    y_min = first_index(down(bbox.north), tiles)
    y_max = last_index(down(bbox.south), tiles, first=y_min)
    return tuple(
        TileRange(zoom=zoom, x_min=x_min, x_max=x_max, y_min=y_min, y_max=y_max)
        for x_min, x_max in _columns(bbox, tiles)
    )


def _columns(bbox: BBox, tiles: int) -> tuple[tuple[int, int], ...]:
    west, east = across(bbox.west), across(bbox.east)
    x_min = first_index(west, tiles)
    if not bbox.crosses_antimeridian:
        return ((x_min, last_index(east, tiles, first=x_min)),)
    # A side that only touches the antimeridian is a line without tiles; the two are never both one.
    if east == 0.0:
        return ((x_min, tiles - 1),)
    x_max = last_index(east, tiles, first=0)
    if west == 1.0:
        return ((0, x_max),)
    if x_max + 1 >= x_min:  # they meet on the far side: a ring, as at zoom 0 and 1
        return ((0, tiles - 1),)
    return ((0, x_max), (x_min, tiles - 1))


@frozen(kw_only=True)
class TileCoverage:
    """The tiles of a box at some zoom levels: ``count`` them, or go through ``tiles(source)``."""

    bbox: BBox
    zoom_levels: tuple[int, ...] = field(converter=normalised_zooms)
    ranges: tuple[TileRange, ...] = field(init=False, repr=False, eq=False)

    @ranges.default
    def _covering(self) -> tuple[TileRange, ...]:
        return tuple(part for zoom in self.zoom_levels for part in tile_ranges(self.bbox, zoom))

    @property
    def count(self) -> int:
        """How many tiles there are, without listing them."""
        return sum(part.count for part in self.ranges)

    def contains(self, tile: TileId) -> bool:
        """Tell whether the area includes the tile, whatever its source."""
        return any(part.contains(tile) for part in self.ranges)

    def tiles(self, source: str, *, start: int = 0) -> Iterator[TileId]:
        """Yield the tiles in ascending order, one at a time, from the ``start``-th on."""
        for part in self.ranges:
            if start < part.count:
                yield from part.tiles(source, start=start)
            start = max(0, start - part.count)
