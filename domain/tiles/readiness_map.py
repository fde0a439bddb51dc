"""A map of the flaws of an area, stored as one byte per tile."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from attrs import define, field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.coverage import TileCoverage, check_area_size
from tileferry.domain.tiles.readiness import NO_TILES, Flaw, ReadinessCount
from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.tiles.tile_range import TileRange

REGIONS_MIN = (
    2  # an area that crosses the antimeridian has two parts, which cannot form one rectangle
)
_PRESENT = 1
_BITS = {
    Flaw.DAMAGED: 2,
    Flaw.STALE: 4,
    Flaw.SUB_SPEC: 8,
    Flaw.DOWNGRADED: 16,
    Flaw.UNCONFIRMED: 32,
    Flaw.ABSENT: 128,
}
_MARKS = [0, _BITS[Flaw.ABSENT], *range(_PRESENT, 64, 2)]
"""All possible marks of a tile: a hole, absent, or the present bit with any flaw bits."""
_RUN = re.compile(rb"\x01+")


def _has_flaw(mark: int, flaw: Flaw) -> bool:
    return not mark if flaw is Flaw.HOLE else bool(mark & _BITS[flaw])


def _rank(mark: int) -> int:
    """Return the rank of the worst flaw in a mark; 0 if there is none."""
    return max((len(Flaw) - n for n, flaw in enumerate(Flaw) if _has_flaw(mark, flaw)), default=0)


_HAS = {flaw: bytes(_has_flaw(mark, flaw) for mark in range(256)) for flaw in Flaw}
_RANKS = bytes(map(_rank, range(256)))
_FLAW_BY_RANK = (None, *reversed(Flaw))


@frozen(kw_only=True)
class FlawRegion:
    """A rectangle of tiles with a flaw. All of its tiles have it, or some if drawn coarsely."""

    flaw: Flaw
    tiles: TileRange
    flawed: int

    @property
    def is_exact(self) -> bool:
        """Whether every tile of the rectangle has the flaw."""
        return self.flawed == self.tiles.count


@frozen(kw_only=True)
class MapPreview:
    """A zoom level drawn in few cells, north up and west left. A cell shows its worst flaw."""

    zoom: int
    side: int
    """The width and height of a cell, in tiles."""
    rows: tuple[tuple[Flaw | None, ...], ...]


@frozen
class _Grid:
    """The marks of one rectangle of tiles, column by column."""

    tiles: TileRange
    marks: bytearray

    @property
    def height(self) -> int:
        return self.tiles.y_max - self.tiles.y_min + 1

    @property
    def width(self) -> int:
        return self.tiles.x_max - self.tiles.x_min + 1

    def index(self, tile: TileId) -> int:
        return (tile.x - self.tiles.x_min) * self.height + tile.y - self.tiles.y_min

    def column(self, x: int) -> bytearray:
        start = (x - self.tiles.x_min) * self.height
        return self.marks[start : start + self.height]

    def columns(self, x: int, side: int) -> Iterator[bytearray]:
        return map(self.column, range(x, min(x + side, self.tiles.x_max + 1)))

    def count(self) -> ReadinessCount:
        of_mark = [(mark, self.marks.count(mark)) for mark in _MARKS]
        return ReadinessCount(
            tiles=self.tiles.count,
            flaws={flaw: sum(n for mark, n in of_mark if _has_flaw(mark, flaw)) for flaw in Flaw},
        )

    def find_regions(self, flaw: Flaw, side: int) -> Iterator[FlawRegion]:
        """Yield rectangles of blocks that have the flaw, each as wide as possible."""
        begun: dict[tuple[int, int], int] = {}
        for x in range(self.tiles.x_min, self.tiles.x_max + 1, side):
            spans = self._find_spans(flaw, x, side)
            for span in sorted(begun.keys() - spans):
                yield self._build_region(flaw, begun.pop(span), x - 1, span)
            for span in spans:
                begun.setdefault(span, x)
        for span, x in begun.items():
            yield self._build_region(flaw, x, self.tiles.x_max, span)

    def _find_spans(self, flaw: Flaw, x: int, side: int) -> list[tuple[int, int]]:
        """Return the row spans in which a column of blocks has the flaw."""
        merged = 0
        for column in self.columns(x, side):
            merged |= int.from_bytes(column.translate(_HAS[flaw]), "big")
        spans: list[tuple[int, int]] = []
        for run in _RUN.finditer(merged.to_bytes(self.height, "big")):
            begin = run.start() // side * side
            end = min(-(-run.end() // side) * side, self.height)
            if spans and begin <= spans[-1][1]:  # the spans share a block, or their blocks touch
                begin, _ = spans.pop()
            spans.append((begin, end))
        return spans

    def _build_region(
        self, flaw: Flaw, x_min: int, x_max: int, span: tuple[int, int]
    ) -> FlawRegion:
        begin, end = span
        columns = self.columns(x_min, x_max - x_min + 1)
        north = self.tiles.y_min
        return FlawRegion(
            flaw=flaw,
            tiles=TileRange(
                zoom=self.tiles.zoom,
                x_min=x_min,
                x_max=x_max,
                y_min=north + begin,
                y_max=north + end - 1,
            ),
            flawed=sum(column[begin:end].translate(_HAS[flaw]).count(1) for column in columns),
        )

    def build_cells(self, side: int) -> list[list[Flaw | None]]:
        """Return columns of cells, each with the worst flaw of its tiles."""
        return [
            self._build_cell_column(x, side)
            for x in range(self.tiles.x_min, self.tiles.x_max + 1, side)
        ]

    def _build_cell_column(self, x: int, side: int) -> list[Flaw | None]:
        rows = range(0, self.height, side)
        ranks = [0] * len(rows)
        for column in self.columns(x, side):
            ranked = column.translate(_RANKS)
            ranks = [max(rank, *ranked[y : y + side]) for rank, y in zip(ranks, rows, strict=True)]
        return [_FLAW_BY_RANK[rank] for rank in ranks]


@define
class ReadinessMap:
    """The flaws of the tiles of an area, for one source. A tile that was never marked is a hole."""

    coverage: TileCoverage
    _grids: dict[int, list[_Grid]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        check_area_size(self.coverage)
        for tiles in self.coverage.ranges:
            self._grids.setdefault(tiles.zoom, []).append(_Grid(tiles, bytearray(tiles.count)))

    def mark(self, tile: TileId, flaws: Iterable[Flaw]) -> bool:
        """Mark a tile as present with these flaws; return whether it is in the area."""
        for grid in self._grids.get(tile.zoom, ()):
            if grid.tiles.contains(tile):
                grid.marks[grid.index(tile)] |= _PRESENT
                for flaw in flaws:
                    grid.marks[grid.index(tile)] |= _BITS[flaw]
                return True
        return False

    def mark_absent(self, tile: TileId) -> bool:
        """Mark a tile of the area as absent, unless it is present; return whether it was marked."""
        for grid in self._grids.get(tile.zoom, ()):
            if grid.tiles.contains(tile) and not grid.marks[grid.index(tile)]:
                grid.marks[grid.index(tile)] = _BITS[Flaw.ABSENT]
                return True
        return False

    def fill_hole(self, tile: TileId) -> bool:
        """Mark a hole as present; return whether the tile was one."""
        for grid in self._grids.get(tile.zoom, ()):
            if grid.tiles.contains(tile) and not grid.marks[grid.index(tile)]:
                grid.marks[grid.index(tile)] = _PRESENT
                return True
        return False

    def count_by_zoom(self) -> dict[int, ReadinessCount]:
        """Return the tile counts of each zoom level, in total and by flaw."""
        return {
            zoom: sum((grid.count() for grid in grids), NO_TILES)
            for zoom, grids in self._grids.items()
        }

    def find_regions(self, zoom: int, flaw: Flaw, *, limit: int) -> list[FlawRegion]:
        """Return the regions with a flaw as at most ``limit`` rectangles.

        If there are more, neighbours are merged into larger and larger blocks. The result still
        covers every tile with the flaw, and ``flawed`` is the exact count.
        """
        if limit < REGIONS_MIN:
            raise InvalidValueError(
                field="limit", value=limit, problem=f"must be at least {REGIONS_MIN}"
            )
        side = 1
        while True:
            every = (patch for grid in self._grids[zoom] for patch in grid.find_regions(flaw, side))
            found = list(islice(every, limit + 1))
            if len(found) <= limit:
                return found
            side *= 2

    def draw_preview(self, zoom: int, *, columns_max: int, rows_max: int) -> MapPreview:
        """Draw a zoom level in at most ``columns_max`` by ``rows_max`` cells."""
        grids = self._grids[zoom]
        if self.coverage.bbox.crosses_antimeridian:
            grids = grids[::-1]  # the part that ends at 180 degrees is west of the other
        side = 1
        while (
            sum(-(-grid.width // side) for grid in grids) > max(columns_max, len(grids))
            or -(-grids[0].height // side) > rows_max
        ):
            side += 1
        columns = [column for grid in grids for column in grid.build_cells(side)]
        return MapPreview(zoom=zoom, side=side, rows=tuple(zip(*columns, strict=True)))
