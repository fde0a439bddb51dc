"""The tiles of an area, as a few ranges instead of a list of millions."""

from collections.abc import Iterator

from attrs import define, field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.bbox import BBox
from tileferry.domain.tiles.limits import AREA_TILES_MAX
from tileferry.domain.tiles.mercator import (
    block_bounds,
    first_index,
    last_index,
    latitude_to_fraction,
    longitude_to_fraction,
)
from tileferry.domain.tiles.tile_id import TileId, check_zoom, normalize_zooms


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
                    problem=f"must be integers in ascending order, from 0 to {last}",
                )

    @property
    def count(self) -> int:
        return (self.x_max - self.x_min + 1) * (self.y_max - self.y_min + 1)

    @property
    def bounds(self) -> BBox:
        """The box that the tiles cover, up to their outer edges."""
        return block_bounds(
            self.zoom, x_min=self.x_min, x_max=self.x_max, y_min=self.y_min, y_max=self.y_max
        )

    def includes(self, other: "TileRange") -> bool:
        """Return whether all tiles of another range are in this one."""
        return (
            other.zoom == self.zoom
            and self.x_min <= other.x_min
            and other.x_max <= self.x_max
            and self.y_min <= other.y_min
            and other.y_max <= self.y_max
        )

    def contains(self, tile: TileId) -> bool:
        """Return whether the tile is in the range. Its source is ignored."""
        return (
            tile.zoom == self.zoom
            and self.x_min <= tile.x <= self.x_max
            and self.y_min <= tile.y <= self.y_max
        )

    def tiles(self, source: str, *, start: int = 0) -> Iterator[TileId]:
        """Yield the tiles lazily in ascending order, skipping the first ``start``."""
        columns, rows = divmod(start, self.y_max - self.y_min + 1)
        y_first = self.y_min + rows
        for x in range(self.x_min + columns, self.x_max + 1):
            for y in range(y_first, self.y_max + 1):
                yield TileId(source=source, zoom=self.zoom, x=x, y=y)
            y_first = self.y_min


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
    """The tiles of a box at some zoom levels. Use ``count``, or iterate over ``tiles(source)``."""

    bbox: BBox
    zoom_levels: tuple[int, ...] = field(converter=normalize_zooms)
    ranges: tuple[TileRange, ...] = field(init=False, repr=False, eq=False)

    @ranges.default
    def _compute_ranges(self) -> tuple[TileRange, ...]:
        return tuple(
            part for zoom in self.zoom_levels for part in compute_tile_ranges(self.bbox, zoom)
        )

    @property
    def count(self) -> int:
        """The number of tiles, computed without listing them."""
        return sum(part.count for part in self.ranges)

    def contains(self, tile: TileId) -> bool:
        """Return whether the area includes the tile. Its source is ignored."""
        return any(part.contains(tile) for part in self.ranges)

    def tiles(self, source: str, *, start: int = 0) -> Iterator[TileId]:
        """Yield the tiles lazily in ascending order, skipping the first ``start``."""
        for part in self.ranges:
            if start < part.count:
                yield from part.tiles(source, start=start)
            start = max(0, start - part.count)


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
    _starts: dict[int, list[tuple[int, TileRange]]] = field(factory=dict, init=False)
    _size: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        start = 0
        check_area_size(self.coverage)
        for tiles in self.coverage.ranges:
            self._starts.setdefault(tiles.zoom, []).append((start, tiles))
            start += tiles.count
        self._bits = bytearray((start + 7) // 8)

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
        for start, tiles in self._starts.get(tile.zoom, ()):
            if tiles.contains(tile):
                column, row = tile.x - tiles.x_min, tile.y - tiles.y_min
                return start + column * (tiles.y_max - tiles.y_min + 1) + row
        return None
