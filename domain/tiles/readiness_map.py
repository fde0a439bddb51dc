"""A map of the flaws of an area, stored as one byte per tile."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import TypeAlias

from attrs import define, field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.coverage import TileCoverage, check_area_size
from tileferry.domain.tiles.readiness import NO_TILES, Flaw, ReadinessCount
from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.tiles.tile_range import TileRange

REGIONS_MIN = (
    2  # an area that crosses the antimeridian has two parts, which cannot form one rectangle
)
_OUTSIDE = 64
"""The mark of a tile within a rectangle, but outside the shape of the area."""
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


class Outside(Enum):
    """A part of a map where the area has no tiles."""

    OUTSIDE = "outside"


MapCell: TypeAlias = Flaw | Outside | None
"""The worst flaw of the tiles in a cell; ``None`` if they have none."""


def _rank(mark: int) -> int:
    """Return the rank of the worst flaw in a mark; 1 if there is none, 0 if it is outside."""
    ranks = (len(Flaw) + 1 - n for n, flaw in enumerate(Flaw) if _has_flaw(mark, flaw))
    return max(ranks, default=0 if mark == _OUTSIDE else 1)


_HAS = {flaw: bytes(_has_flaw(mark, flaw) for mark in range(256)) for flaw in Flaw}
_RANKS = bytes(map(_rank, range(256)))
_CELL_BY_RANK: tuple[MapCell, ...] = (Outside.OUTSIDE, None, *reversed(Flaw))


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
    rows: tuple[tuple[MapCell, ...], ...]


@frozen
class _Grid:
    """The marks of one rectangle of tiles, column by column."""

    tiles: TileRange
    marks: bytearray

    @property
    def height(self) -> int:
        return self.tiles.y_max - self.tiles.y_min + 1

    def index(self, x: int, y: int) -> int:
        return (x - self.tiles.x_min) * self.height + y - self.tiles.y_min

    def column(self, x: int) -> bytearray:
        start = (x - self.tiles.x_min) * self.height
        return self.marks[start : start + self.height]

    def columns(self, x: int, side: int) -> Iterator[bytearray]:
        return map(self.column, range(x, min(x + side, self.tiles.x_max + 1)))

    def count(self) -> ReadinessCount:
        of_mark = [(mark, self.marks.count(mark)) for mark in _MARKS]
        return ReadinessCount(
            tiles=self.tiles.count - self.marks.count(_OUTSIDE),
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

    def rank_cells(self, columns: range, side: int, *, north: int, rows: int) -> list[int]:
        """Return the ranks of a column of cells; ``north`` is the first row of the first cell."""
        ranks = [0] * rows
        skipped = self.tiles.y_min - north
        for column in map(self.column, columns):
            ranked = column.translate(_RANKS)
            for cell in range(skipped // side, -(-(skipped + self.height) // side)):
                begin = max(cell * side - skipped, 0)
                worst = max(ranked[begin : (cell + 1) * side - skipped])
                ranks[cell] = max(ranks[cell], worst)
        return ranks


@define
class ReadinessMap:
    """The flaws of the tiles of an area, for one source. A tile that was never marked is a hole."""

    coverage: TileCoverage
    _grids: dict[int, list[_Grid]] = field(factory=dict, init=False)
    """By zoom level, from west to east; no two grids have a column in common."""
    _starts: dict[int, list[int]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        check_area_size(self.coverage)
        is_box = self.coverage.shape is None
        for tiles in self.coverage.iter_blocks():
            marks = bytearray(tiles.count if is_box else bytes([_OUTSIDE]) * tiles.count)
            self._grids.setdefault(tiles.zoom, []).append(_Grid(tiles, marks))
        self._starts = {
            zoom: [grid.tiles.x_min for grid in grids] for zoom, grids in self._grids.items()
        }
        for part in () if is_box else self.coverage.ranges:
            grid = self._find_grid(part.zoom, part.x_min)
            for x in range(part.x_min, part.x_max + 1):
                begin = grid.index(x, part.y_min)
                end = begin + part.y_max - part.y_min + 1
                grid.marks[begin:end] = bytes(end - begin)

    def _find_grid(self, zoom: int, x: int) -> _Grid:
        """Return the last grid that starts at or before a column, or else the first one."""
        return self._grids[zoom][max(bisect_right(self._starts[zoom], x) - 1, 0)]

    def _find_mark(self, tile: TileId) -> tuple[bytearray, int] | None:
        """Return the marks and the position of a tile of the area."""
        if tile.zoom not in self._grids:
            return None
        grid = self._find_grid(tile.zoom, tile.x)
        if not grid.tiles.contains(tile):
            return None
        index = grid.index(tile.x, tile.y)
        return None if grid.marks[index] == _OUTSIDE else (grid.marks, index)

    def mark(self, tile: TileId, flaws: Iterable[Flaw]) -> bool:
        """Mark a tile as present with these flaws; return whether it is in the area."""
        found = self._find_mark(tile)
        if found is None:
            return False
        marks, index = found
        marks[index] |= _PRESENT
        for flaw in flaws:
            marks[index] |= _BITS[flaw]
        return True

    def mark_absent(self, tile: TileId) -> bool:
        """Mark a tile of the area as absent, unless it is present; return whether it was marked."""
        return self._replace_hole(tile, _BITS[Flaw.ABSENT])

    def fill_hole(self, tile: TileId) -> bool:
        """Mark a hole as present; return whether the tile was one."""
        return self._replace_hole(tile, _PRESENT)

    def _replace_hole(self, tile: TileId, mark: int) -> bool:
        found = self._find_mark(tile)
        if found is None or found[0][found[1]]:
            return False
        found[0][found[1]] = mark
        return True

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
        side, grids = 1, self._grids[zoom]
        while True:
            every = (patch for grid in grids for patch in grid.find_regions(flaw, side))
            found = list(islice(every, limit + 1))
            if len(found) <= limit:
                return found
            if side >= 1 << zoom:  # one region for each grid, and there are too many grids
                every = (patch for grid in grids for patch in grid.find_regions(flaw, side))
                return _join_regions(list(every), limit)
            side *= 2

    def draw_preview(self, zoom: int, *, columns_max: int, rows_max: int) -> MapPreview:
        """Draw a zoom level in at most ``columns_max`` by ``rows_max`` cells."""
        parts = self._group_grids(zoom)
        widths = [part[-1].tiles.x_max - part[0].tiles.x_min + 1 for part in parts]
        north = min(grid.tiles.y_min for part in parts for grid in part)
        height = max(grid.tiles.y_max for part in parts for grid in part) - north + 1
        side = 1
        while (
            sum(-(-width // side) for width in widths) > max(columns_max, len(parts))
            or -(-height // side) > rows_max
        ):
            side += 1
        columns: list[list[MapCell]] = []
        for part, width in zip(parts, widths, strict=True):
            rows = -(-height // side)
            ranks = [[0] * rows for _ in range(-(-width // side))]
            west = part[0].tiles.x_min
            for grid in part:
                for cell in range(
                    (grid.tiles.x_min - west) // side, (grid.tiles.x_max - west) // side + 1
                ):
                    inside = range(
                        max(west + cell * side, grid.tiles.x_min),
                        min(west + (cell + 1) * side, grid.tiles.x_max + 1),
                    )
                    ranked = grid.rank_cells(inside, side, north=north, rows=rows)
                    ranks[cell] = list(map(max, ranks[cell], ranked))
            columns += ([_CELL_BY_RANK[rank] for rank in column] for column in ranks)
        return MapPreview(zoom=zoom, side=side, rows=tuple(zip(*columns, strict=True)))

    def _group_grids(self, zoom: int) -> list[list[_Grid]]:
        """Return the grids from west to east, on each side of the antimeridian."""
        grids = self._grids[zoom]
        if not self.coverage.bbox.crosses_antimeridian:
            return [grids]
        half = 1 << zoom >> 1
        # The part that ends at 180 degrees is west of the other.
        sides = (
            [g for g in grids if g.tiles.x_min >= half],
            [g for g in grids if g.tiles.x_min < half],
        )
        return [side for side in sides if side]


def _join_regions(regions: Sequence[FlawRegion], limit: int) -> list[FlawRegion]:
    """Return at most ``limit`` rectangles around neighbours, never across half of the globe."""
    size = -(-len(regions) // (limit - 1))
    joined: list[FlawRegion] = []
    count = 0
    for region in regions:
        last = joined[-1] if joined else None
        half = 1 << region.tiles.zoom >> 1
        if last is None or count == size or region.tiles.x_min - last.tiles.x_max > half:
            joined.append(region)
            count = 1
            continue
        tiles = last.tiles.join(region.tiles)
        joined[-1] = FlawRegion(flaw=region.flaw, tiles=tiles, flawed=last.flawed + region.flawed)
        count += 1
    return joined
