"""Decide which listed tiles to fetch, with one lookup in the cache for many tiles."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice

from attrs import define, frozen

from tileferry.application.ports.tiles import AbsentTiles, TileCatalogue
from tileferry.domain.tiles import TileId, TileMetadata, TileSet, TileSummary, TileValidators
from tileferry.domain.tiles.selection import Disposition, FetchMode, TileSelection

LOOKUP_TILES_MAX = 2_000
"""A page may have more tiles; this bounds the rows in memory."""


@frozen
class SelectedTile:
    """A listed tile, what to do with it, and what was known of it."""

    listed: TileSummary
    disposition: Disposition
    stored: TileMetadata | None = None
    absent_at: datetime | None = None
    """When the provider last did not have it."""


@define(kw_only=True)
class ListingSelector:
    """Applies the selection rule to a listing, page by page."""

    rule: TileSelection
    tile_metadata_store: TileCatalogue
    done: TileSet
    """Tiles that an earlier run of the same request stored; they are reused as they are."""
    absent_tiles: AbsentTiles | None = None
    """``None``: it is not remembered which tiles the provider does not have."""
    is_intact: Callable[[TileMetadata], bool] = lambda _tile: True
    """Whether the bytes of a stored tile are readable; a damaged tile is fetched again."""

    def iter_selected(self, page: Sequence[TileSummary]) -> Iterator[SelectedTile]:
        """Yield the tiles of a page with what to do with them, in the order of the listing."""
        for start in range(0, len(page), LOOKUP_TILES_MAX):
            yield from self._select_part(page[start : start + LOOKUP_TILES_MAX])

    def iter_with_validators(
        self, listed: Iterable[TileSummary]
    ) -> Iterator[tuple[TileSummary, TileValidators | None]]:
        """Yield the tiles to fetch; with the validators of the stored one, if it may be current."""
        if self.rule.mode is not FetchMode.REFRESH or self.rule.lists_versions:
            yield from ((tile, None) for tile in listed)
            return
        tiles = iter(listed)
        while part := list(islice(tiles, LOOKUP_TILES_MAX)):
            stored = self.tile_metadata_store.find_stored([tile.tile_id for tile in part])
            for tile in part:
                found = self._select(tile, stored.get(tile.tile_id), None)
                is_compared = found.disposition is Disposition.REVALIDATE
                yield tile, found.stored.validators if found.stored and is_compared else None

    def _select_part(self, part: Sequence[TileSummary]) -> Iterator[SelectedTile]:
        new = [tile.tile_id for tile in part if tile.tile_id not in self.done]
        stored = self.tile_metadata_store.find_stored(new)
        absent: Mapping[TileId, datetime] = {}
        if self.absent_tiles is not None:
            absent = self.absent_tiles.find_absent([tile for tile in new if tile not in stored])
        for tile in part:
            tile_id = tile.tile_id
            if tile_id in self.done:
                yield SelectedTile(tile, Disposition.REUSE)
            else:
                yield self._select(tile, stored.get(tile_id), absent.get(tile_id))

    def _select(
        self, listed: TileSummary, stored: TileMetadata | None, absent_at: datetime | None
    ) -> SelectedTile:
        found = self.rule.select(listed, stored, absent_at)
        needs_bytes = found.is_reuse or found is Disposition.REVALIDATE
        if needs_bytes and stored is not None and not self.is_intact(stored):
            stored = None
            found = self.rule.select(listed, stored, absent_at)
        return SelectedTile(listed, found, stored, absent_at)
