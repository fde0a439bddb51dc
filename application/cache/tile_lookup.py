"""Look up many tiles in the cache, one column at a time, and track which are stored."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TypeVar

from attrs import define, field, frozen

from tileferry.application.ports.tiles import TileCatalogue, TileStore
from tileferry.domain.archives import zxy_to_number
from tileferry.domain.errors import DamagedTileError, TileNotFoundError
from tileferry.domain.tiles import TileCoverage, TileId, TileMetadata, TileRange

Item = TypeVar("Item")
BATCH_TILES_MAX = 256
BATCH_BYTES_MAX = 16 * 1024 * 1024
"""Items that wait for their lookup are held in memory, up to this size."""


def query_area(
    store: TileCatalogue, coverage: TileCoverage, *, source: str
) -> Iterator[TileMetadata]:
    """Yield the visible tiles of an area, column by column."""
    if coverage.shape is None:
        return store.query_by_bbox(coverage.bbox, coverage.zoom_levels, source=source)
    return (
        row
        for block in coverage.iter_blocks()
        for row in store.query_by_bbox(block.bounds, [block.zoom], source=source)
        if coverage.contains(row.tile_id)
    )


def lookup_metadata(
    items: Iterable[Item],
    store: TileCatalogue,
    *,
    get_tile: Callable[[Item], TileId],
    get_size: Callable[[Item], int] = lambda _: 0,
) -> Iterator[tuple[Item, TileMetadata | None]]:
    """Yield each item with the cached metadata of its tile.

    Consecutive items of one column are looked up together. This is fast for input ordered by
    column, and correct for any order.
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
    """Return whether the cache has a tile's bytes, not only its row."""
    try:
        store.read_tile(known.tile_id, blob=known.blob)
    except (TileNotFoundError, DamagedTileError):
        return False
    return True


@frozen
class VerifiedTile:
    """The row and the bytes of a tile, of the same version."""

    metadata: TileMetadata
    content: bytes


def read_verified_tile(
    row: TileMetadata, store: TileStore, catalogue: TileCatalogue
) -> VerifiedTile | None:
    """Read a tile, or a later version of it; ``None`` if it was removed meanwhile."""
    try:
        content = store.read_tile(row.tile_id, blob=row.blob)
    except TileNotFoundError:
        return None
    except DamagedTileError:
        moved = catalogue.get_metadata(row.tile_id)
        if moved is None or moved.blob == row.blob:
            raise
        return read_verified_tile(moved, store, catalogue)  # compaction moved it meanwhile
    digest = sha256(content).hexdigest()
    current: TileMetadata | None = row
    if digest != row.blob.sha256:  # a download may have stored another version
        current = catalogue.get_metadata(row.tile_id)
    if current is None:
        return None
    if digest != current.blob.sha256:
        raise DamagedTileError(tile=str(row.tile_id), problem="sha256 mismatch")
    if not content:
        raise DamagedTileError(tile=str(row.tile_id), problem="it has no bytes")
    return VerifiedTile(current, content)


@define
class RecentDigests:
    """The digests of recently added tiles that a lookup may not return yet.

    A tile is visible to lookups that begin after its group is committed.
    """

    group_tiles_max: int
    _digests: dict[TileId, str] = field(factory=dict, init=False)

    def add(self, tile: TileId, digest: str) -> None:
        """Add a tile, and drop the oldest once it must be visible to lookups."""
        self._digests[tile] = digest
        if len(self._digests) > self.group_tiles_max + BATCH_TILES_MAX:
            del self._digests[next(iter(self._digests))]

    def get_digest(self, tile: TileId) -> str | None:
        """Return the digest of a recently added tile."""
        return self._digests.get(tile)


USE_INTERVAL = timedelta(minutes=15)
_USED_TILES = 1_000


@define
class UseMarks:
    """Marks tiles as used or confirmed, in groups; not again if that was done a moment ago.

    Updating a row costs more than reading it, so a repeated download would spend most of its time
    here.
    """

    store: TileCatalogue
    now: datetime
    _used: list[TileId] = field(factory=list, init=False)
    _confirmed: list[TileId] = field(factory=list, init=False)

    def add(self, tile: TileMetadata, *, is_confirmed: bool = False) -> None:
        """Mark a tile with the next group; ``is_confirmed``: the provider still has it."""
        if is_confirmed and self.now - tile.confirmed_at >= USE_INTERVAL:
            self._confirmed.append(tile.tile_id)
        elif self.now - tile.last_used_at >= USE_INTERVAL:
            self._used.append(tile.tile_id)
        if max(len(self._used), len(self._confirmed)) >= _USED_TILES:
            self.flush()

    def flush(self) -> None:
        """Mark the tiles that wait."""
        if self._used:
            self.store.mark_used(self._used)
        if self._confirmed:
            self.store.mark_used(self._confirmed, confirmed=True)
        self._used, self._confirmed = [], []


@define
class StoredTiles:
    """The stored tiles of one source, to protect from eviction; eight bytes for each tile."""

    source: str
    _numbers: "array[int]" = field(factory=lambda: array("Q"), init=False)

    def add(self, tile: TileId) -> None:
        self._numbers.append(zxy_to_number(tile.zoom, tile.x, tile.y))

    def sort(self) -> None:
        """Sort the tiles; call this before testing for membership."""
        self._numbers = array("Q", sorted(self._numbers))

    def __contains__(self, tile: object) -> bool:
        if not isinstance(tile, TileId) or tile.source != self.source:
            return False
        number = zxy_to_number(tile.zoom, tile.x, tile.y)
        at = bisect_left(self._numbers, number)
        return at < len(self._numbers) and self._numbers[at] == number
