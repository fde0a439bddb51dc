"""Decide which listed tiles to fetch, with one lookup in the cache for many tiles."""

from collections.abc import Callable, Container, Iterator, Sequence

from attrs import define, frozen

from tileferry.application.ports.tiles import TileCatalogue
from tileferry.domain.tiles import TileId, TileMetadata, TileSet, TileSummary
from tileferry.domain.tiles.selection import Disposition, TileSelection

LOOKUP_TILES_MAX = 2_000
"""A page may have more tiles; this bounds the rows in memory."""


def iter_stored(
    page: Sequence[TileSummary], store: TileCatalogue, *, skip: Container[TileId] = ()
) -> Iterator[tuple[TileSummary, TileMetadata | None]]:
    """Yield the tiles of a page, each with the tile that the cache has; some are not looked up."""
    for start in range(0, len(page), LOOKUP_TILES_MAX):
        part = page[start : start + LOOKUP_TILES_MAX]
        known = store.find_stored([tile.tile_id for tile in part if tile.tile_id not in skip])
        for tile in part:
            yield tile, known.get(tile.tile_id)


@frozen
class SelectedTile:
    """A listed tile, what to do with it, and the stored tile that was considered."""

    listed: TileSummary
    disposition: Disposition
    stored: TileMetadata | None = None


@define(kw_only=True)
class ListingSelector:
    """Applies the selection rule to a listing, page by page."""

    rule: TileSelection
    tile_metadata_store: TileCatalogue
    done: TileSet
    """Tiles that an earlier run of the same request stored; they are reused as they are."""
    is_intact: Callable[[TileMetadata], bool] = lambda _tile: True
    """Whether the bytes of a stored tile are readable; a damaged tile is fetched again."""

    def iter_selected(self, page: Sequence[TileSummary]) -> Iterator[SelectedTile]:
        """Yield the tiles of a page with what to do with them, in the order of the listing."""
        for tile, stored in iter_stored(page, self.tile_metadata_store, skip=self.done):
            if tile.tile_id in self.done:
                yield SelectedTile(tile, Disposition.REUSE)
            else:
                yield self._select(tile, stored)

    def _select(self, listed: TileSummary, stored: TileMetadata | None) -> SelectedTile:
        found = self.rule.select(listed, stored)
        if found.is_reuse and stored is not None and not self.is_intact(stored):
            stored = None
            found = self.rule.select(listed, stored)
        return SelectedTile(listed, found, stored)
