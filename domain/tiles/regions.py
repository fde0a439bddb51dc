"""Scattered tiles as a few rectangles, for maps."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.tiles.tile_range import TileRange


@frozen(kw_only=True)
class TileRegion:
    """A rectangle that encloses some tiles; it has no others unless it is drawn coarsely."""

    tiles: TileRange
    count: int


def find_tile_regions(tiles: Iterable[TileId], *, limit: int) -> Sequence[TileRegion]:
    """Return rectangles that enclose all tiles, at most ``limit`` for each zoom level.

    If there are more, neighbours are merged into larger and larger blocks; ``count`` stays exact.
    The sources of the tiles are ignored, and no tile may occur twice.
    """
    by_zoom: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for tile in tiles:
        by_zoom[tile.zoom].append((tile.x, tile.y))
    found: list[TileRegion] = []
    for zoom, places in sorted(by_zoom.items()):
        shift = 0
        while len(regions := list(_merge(zoom, places, shift))) > limit:
            shift += 1
        found += regions
    return found


def _merge(zoom: int, places: list[tuple[int, int]], shift: int) -> Iterator[TileRegion]:
    """Yield rectangles of blocks with sides of ``2 ** shift`` tiles, each as wide as possible."""
    cells = Counter((x >> shift, y >> shift) for x, y in places)
    columns: dict[int, list[int]] = defaultdict(list)
    for x, y in sorted(cells):
        columns[x].append(y)
    begun: dict[tuple[int, int], tuple[int, int]] = {}
    # The first column and the number of tiles of each rectangle that may go on, by its rows.
    previous = -1
    for x, rows in columns.items():
        spans = {
            (first, last): sum(cells[x, y] for y in range(first, last + 1))
            for first, last in _find_spans(rows)
        }
        going_on = begun.keys() & spans.keys() if x == previous + 1 else set()
        for span in sorted(begun.keys() - going_on):
            yield _build_region(zoom, shift, previous, span, begun[span])
        begun = {
            span: (begun[span][0], begun[span][1] + count) if span in going_on else (x, count)
            for span, count in spans.items()
        }
        previous = x
    for span, found in begun.items():
        yield _build_region(zoom, shift, previous, span, found)


def _find_spans(rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of each run of consecutive numbers."""
    first = last = rows[0]
    for row in rows[1:]:
        if row != last + 1:
            yield first, last
            first = row
        last = row
    yield first, last


def _build_region(
    zoom: int, shift: int, x_last: int, rows: tuple[int, int], found: tuple[int, int]
) -> TileRegion:
    (x_first, count), (y_first, y_last) = found, rows
    end = (1 << shift) - 1
    return TileRegion(
        tiles=TileRange(
            zoom=zoom,
            x_min=x_first << shift,
            x_max=(x_last << shift) + end,
            y_min=y_first << shift,
            y_max=(y_last << shift) + end,
        ),
        count=count,
    )
