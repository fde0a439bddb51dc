"""Looking many tiles up in the cache, a column at a time, and remembering which are there."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from attrs import define, field

from tileferry.application.ports.tiles import TileCatalogue, TileStore
from tileferry.domain.archives import zxy_to_number
from tileferry.domain.errors import DamagedTileError, TileNotFoundError
from tileferry.domain.tiles import TileId, TileMetadata, TileRange

Item = TypeVar("Item")
BATCH_TILES_MAX = 256
BATCH_BYTES_MAX = 16 * 1024 * 1024
"""What waits for its look-up is held in memory."""


def lookup_metadata(
    items: Iterable[Item],
    store: TileCatalogue,
    *,
    get_tile: Callable[[Item], TileId],
    get_size: Callable[[Item], int] = lambda _: 0,
) -> Iterator[tuple[Item, TileMetadata | None]]:
    """Yield each item with what the cache knows of its tile.

    Items that follow each other in one column are looked up together. So it is fast for what comes
    column by column, and right for anything.
    """
    for batch in _batch_by_column(items, get_tile, get_size):
        known = _lookup_column([get_tile(item) for item in batch], store)
        for item in batch:
            yield item, known.get(get_tile(item))


def _batch_by_column(
    items: Iterable[Item], get_tile: Callable[[Item], TileId], get_size: Callable[[Item], int]
) -> Iterator[list[Item]]:
    batch: list[Item] = []
    column, size_bytes = (-1, -1), 0
    for item in items:
        tile = get_tile(item)
        full = len(batch) >= BATCH_TILES_MAX or size_bytes >= BATCH_BYTES_MAX
        if batch and (full or column != (tile.zoom, tile.x)):
            yield batch
            batch, size_bytes = [], 0
        column = tile.zoom, tile.x
        batch.append(item)
        size_bytes += get_size(item)
    if batch:
        yield batch


def _lookup_column(tiles: list[TileId], store: TileCatalogue) -> dict[TileId, TileMetadata]:
    """Look up tiles of one column and one source."""
    first = tiles[0]
    if len(tiles) == 1:
        found = store.get_metadata(first)
        return {} if found is None else {first: found}
    wanted, rows = set(tiles), [tile.y for tile in tiles]
    stretch = TileRange(
        zoom=first.zoom, x_min=first.x, x_max=first.x, y_min=min(rows), y_max=max(rows)
    )
    visible = store.query_by_bbox(stretch.bounds, [first.zoom], source=first.source)
    return {row.tile_id: row for row in visible if row.tile_id in wanted}


def is_readable(store: TileStore, known: TileMetadata) -> bool:
    """Tell whether the cache has a tile's bytes, and not only its row."""
    try:
        store.read_tile(known.tile_id, blob=known.blob)
    except (TileNotFoundError, DamagedTileError):
        return False
    return True


@define
class RecentDigests:
    """Tiles that were taken in and that a look-up need not show yet, with their digests.

    One is shown when its group is committed, to look-ups that begin after that.
    """

    group_tiles_max: int
    _digests: dict[TileId, str] = field(factory=dict, init=False)

    def add(self, tile: TileId, digest: str) -> None:
        """Add a tile, and forget the one that is shown for sure."""
        self._digests[tile] = digest
        if len(self._digests) > self.group_tiles_max + BATCH_TILES_MAX:
            del self._digests[next(iter(self._digests))]

    def get_digest(self, tile: TileId) -> str | None:
        """Return the digest of one that was taken lately."""
        return self._digests.get(tile)


@define
class StoredTiles:
    """Tiles of one source that the cache has, in eight bytes each: they are not to be evicted."""

    source: str
    _numbers: "array[int]" = field(factory=lambda: array("Q"), init=False)

    def add(self, tile: TileId) -> None:
        """Add a tile."""
        self._numbers.append(zxy_to_number(tile.zoom, tile.x, tile.y))

    def sort(self) -> None:
        """Make it ready to be asked."""
        self._numbers = array("Q", sorted(self._numbers))

    def __contains__(self, tile: object) -> bool:
        if not isinstance(tile, TileId) or tile.source != self.source:
            return False
        number = zxy_to_number(tile.zoom, tile.x, tile.y)
        at = bisect_left(self._numbers, number)
        return at < len(self._numbers) and self._numbers[at] == number
