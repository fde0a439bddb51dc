"""Which tiles of an area are in a set: one bit a tile, so that a million cost 125 kB."""

from collections.abc import Iterator

from attrs import define, field

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.coverage import TileCoverage, TileRange
from tileferry.domain.tiles.tile_id import TileId

AREA_TILES_MAX = 50_000_000
"""That is 6 MB of bits, and a terabyte of tiles: more is a mistake."""


def check_area_size(coverage: TileCoverage) -> None:
    """Refuse an area that nobody can mean."""
    if coverage.count > AREA_TILES_MAX:
        raise InvalidValueError(
            field="area",
            value=coverage.count,
            problem=f"has more than {AREA_TILES_MAX:,} tiles",
            remedy="ask for a smaller area, or for fewer zoom levels at a time",
        )


@define
class TileSet:
    """Tiles of one area, of one source. What lies outside the area cannot be added."""

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
        """Put a tile into the set; tell whether it is of the area."""
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

    def missing(self, source: str) -> Iterator[TileId]:
        """Yield the tiles of the area that are not in the set."""
        return (tile for tile in self.coverage.tiles(source) if tile not in self)

    def _index(self, tile: TileId) -> int | None:
        for start, tiles in self._starts.get(tile.zoom, ()):
            if tiles.contains(tile):
                column, row = tile.x - tiles.x_min, tile.y - tiles.y_min
                return start + column * (tiles.y_max - tiles.y_min + 1) + row
        return None
