"""A rectangle of tiles."""

from collections.abc import Iterator

from attrs import frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.bbox import BBox
from tileferry.domain.tiles.mercator import block_bounds
from tileferry.domain.tiles.tile_id import TileId, check_zoom


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

    def join(self, other: "TileRange") -> "TileRange":
        """Return the smallest rectangle around both, at the same zoom level."""
        return TileRange(
            zoom=self.zoom,
            x_min=min(self.x_min, other.x_min),
            x_max=max(self.x_max, other.x_max),
            y_min=min(self.y_min, other.y_min),
            y_max=max(self.y_max, other.y_max),
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
