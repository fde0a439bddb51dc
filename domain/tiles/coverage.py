"""The tiles of an area, as a few ranges instead of a list of millions."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby

from attrs import define, field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.bbox import BBox
from tileferry.domain.tiles.limits import AREA_TILES_MAX
from tileferry.domain.tiles.mercator import (
    first_index,
    last_index,
    latitude_to_fraction,
    longitude_to_fraction,
)
from tileferry.domain.tiles.shape import Place, Shape
from tileferry.domain.tiles.shape_tiles import compute_shape_ranges
from tileferry.domain.tiles.tile_id import TileId, check_zoom, normalize_zooms
from tileferry.domain.tiles.tile_range import TileRange

BLOCK_TILES = 1_024
_BLOCK_WASTE_MAX = 2


def compute_tile_ranges(bbox: BBox, zoom: int) -> tuple[TileRange, ...]:
    """Return the ranges that cover the box at one zoom level: one, or two across the antimeridian.

    The ranges are disjoint and ascending, so no tile occurs twice. A tile that only touches the
    box's east or south edge is not included.
    """
    if not isinstance(bbox, BBox):
        raise InvalidValueError(
            field="bbox", value=bbox, problem="must be a BBox", remedy="see BBox.parse"
        )
    tiles = 1 << check_zoom(zoom)
    y_min = first_index(latitude_to_fraction(bbox.north), tiles)
    y_max = last_index(latitude_to_fraction(bbox.south), tiles, first=y_min)
    return tuple(
        TileRange(zoom=zoom, x_min=x_min, x_max=x_max, y_min=y_min, y_max=y_max)
        for x_min, x_max in _columns(bbox, tiles)
    )


def _columns(bbox: BBox, tiles: int) -> tuple[tuple[int, int], ...]:
    west, east = longitude_to_fraction(bbox.west), longitude_to_fraction(bbox.east)
    x_min = first_index(west, tiles)
    if not bbox.crosses_antimeridian:
        return ((x_min, last_index(east, tiles, first=x_min)),)
    # A part with zero width at the antimeridian has no tiles. At most one of the two parts can be
    # so.
    if east == 0.0:
        return ((x_min, tiles - 1),)
    x_max = last_index(east, tiles, first=0)
    if west == 1.0:
        return ((0, x_max),)
    if (
        x_max + 1 >= x_min
    ):  # the parts meet on the far side and cover the full circle, as at zoom 0 and 1
        return ((0, tiles - 1),)
    return ((0, x_max), (x_min, tiles - 1))


@frozen(kw_only=True)
class TileCoverage:
    """The tiles of a box, or of a shape in it, at some zoom levels.

    Use ``count``, or iterate over ``tiles(source)``.
    """

    bbox: BBox
    zoom_levels: tuple[int, ...] = field(converter=normalize_zooms)
    shape: Shape | None = None
    ranges: tuple[TileRange, ...] = field(init=False, repr=False, eq=False)
    """Disjoint rectangles, ascending by zoom level, column and row."""
    _keys: list[tuple[int, int, int]] = field(init=False, repr=False, eq=False)
    starts: list[int] = field(init=False, repr=False, eq=False)
    """How many tiles come before each range, and at last their number."""

    @ranges.default
    def _compute_ranges(self) -> tuple[TileRange, ...]:
        check_shape_box(self.bbox, self.shape)
        found: list[TileRange] = []
        for zoom in self.zoom_levels:
            if self.shape is None:
                found += compute_tile_ranges(self.bbox, zoom)
            else:
                found += compute_shape_ranges(self.shape, zoom, ranges_before=len(found))
        return tuple(found)

    @_keys.default
    def _compute_keys(self) -> list[tuple[int, int, int]]:
        return [(part.zoom, part.x_min, part.y_min) for part in self.ranges]

    @starts.default
    def _compute_starts(self) -> list[int]:
        return [0, *accumulate(part.count for part in self.ranges)]

    @classmethod
    def from_place(cls, place: Place, zoom_levels: Iterable[int]) -> "TileCoverage":
        """Return the tiles of a box or a shape."""
        if isinstance(place, Shape):
            return cls(bbox=place.bbox, zoom_levels=zoom_levels, shape=place)
        return cls(bbox=place, zoom_levels=zoom_levels)

    @property
    def place(self) -> Place:
        """The shape, or else the box."""
        return self.bbox if self.shape is None else self.shape

    @property
    def count(self) -> int:
        """The number of tiles, computed without listing them."""
        return self.starts[-1]

    def find_range(self, zoom: int, x: int, y: int) -> int | None:
        """Return the position of the range that contains a tile; ``None`` if it is outside."""
        # Ranges of one column are apart, and a range of several columns has them for itself: no
        # other range than the last one that starts before the tile can contain it.
        position = bisect_right(self._keys, (zoom, x, y)) - 1
        if position < 0:
            return None
        part = self.ranges[position]
        is_inside = part.zoom == zoom and x <= part.x_max and part.y_min <= y <= part.y_max
        return position if is_inside else None

    def contains(self, tile: TileId) -> bool:
        """Return whether the area includes the tile. Its source is ignored."""
        return self.find_range(tile.zoom, tile.x, tile.y) is not None

    def includes(self, tiles: TileRange) -> bool:
        """Return whether all tiles of a rectangle are in the area."""
        x = tiles.x_min
        while x <= tiles.x_max:
            position = self.find_range(tiles.zoom, x, tiles.y_min)
            if position is None or self.ranges[position].y_max < tiles.y_max:
                return False
            x = self.ranges[position].x_max + 1
        return True

    def tiles(self, source: str, *, start: int = 0) -> Iterator[TileId]:
        """Yield the tiles lazily in ascending order, skipping the first ``start``."""
        first = bisect_right(self.starts, start) - 1
        for position in range(first, len(self.ranges)):
            part = self.ranges[position]
            yield from part.tiles(source, start=max(0, start - self.starts[position]))

    def iter_blocks(self) -> Iterator[TileRange]:
        """Yield rectangles that contain all tiles, ascending and disjoint; few are enough.

        Those of a box are its ranges. The blocks of a shape join neighbouring columns, and at most
        half of the tiles of a larger block are outside the shape.
        """
        if self.shape is None:
            yield from self.ranges
            return
        columns = groupby(self.ranges, lambda part: (part.zoom, part.x_min))
        block: TileRange | None = None
        inside = 0
        for parts in (list(group) for _, group in columns):
            column = parts[0].join(parts[-1])
            inside += sum(part.count for part in parts)
            if block is not None and block.zoom == column.zoom:
                joined = block.join(column)
                if joined.count <= max(BLOCK_TILES, _BLOCK_WASTE_MAX * inside):
                    block = joined
                    continue
            if block is not None:
                yield block
            block, inside = column, sum(part.count for part in parts)
        assert block is not None  # noqa: S101  # a shape has tiles at every zoom level
        yield block


def check_shape_box(bbox: BBox, shape: Shape | None) -> None:
    """Raise if a box is not the one around a shape."""
    if shape is not None and shape.bbox != bbox:
        raise InvalidValueError(
            field="bbox", value=str(bbox), problem=f"is not the box of the shape, {shape.bbox}"
        )


def check_area_size(coverage: TileCoverage) -> None:
    """Reject an area of more than ``AREA_TILES_MAX`` tiles."""
    if coverage.count > AREA_TILES_MAX:
        raise InvalidValueError(
            field="area",
            value=coverage.count,
            problem=f"has more than {AREA_TILES_MAX:,} tiles",
            remedy="request a smaller area or fewer zoom levels",
        )


@define
class TileSet:
    """A set of tiles of one area and one source, stored as one bit per tile."""

    coverage: TileCoverage
    _bits: bytearray = field(init=False)
    _size: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        check_area_size(self.coverage)
        self._bits = bytearray((self.coverage.count + 7) // 8)

    def add(self, tile: TileId) -> bool:
        """Add a tile; return whether it is in the area."""
        index = self._index(tile)
        if index is None:
            return False
        byte, bit = divmod(index, 8)
        if not self._bits[byte] >> bit & 1:
            self._bits[byte] |= 1 << bit
            self._size += 1
        return True

    def __contains__(self, tile: object) -> bool:
        index = self._index(tile) if isinstance(tile, TileId) else None
        return index is not None and bool(self._bits[index // 8] >> index % 8 & 1)

    def __len__(self) -> int:
        return self._size

    def iter_missing(self, source: str) -> Iterator[TileId]:
        """Yield the tiles of the area that are not in the set."""
        return (tile for tile in self.coverage.tiles(source) if tile not in self)

    def _index(self, tile: TileId) -> int | None:
        coverage = self.coverage
        position = coverage.find_range(tile.zoom, tile.x, tile.y)
        if position is None:
            return None
        part = coverage.ranges[position]
        column, row = tile.x - part.x_min, tile.y - part.y_min
        return coverage.starts[position] + column * (part.y_max - part.y_min + 1) + row
