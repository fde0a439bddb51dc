"""The tiles of the cache as a map server reads them: by place, in any source."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):  # for annotations
    from tileferry.domain.tiles import BlobRef, TileId, TileMetadata
    from tileferry.domain.tiles.map_layer import MapLayer


class FoundTile(NamedTuple):
    """A visible tile: its id, the location of its bytes, and the time of its imagery."""

    tile_id: TileId
    blob: BlobRef
    produced_at: datetime


class MapIndex(Protocol):
    """Finds visible tiles by their place, each in one query."""

    def find_tile(self, source: str | None, zoom: int, x: int, y: int) -> FoundTile | None:
        """Return the tile of a source; without one, the most recent tile of any source.

        Of tiles with the same time, the one of the first source by name is returned.
        """
        ...

    def find_tiles(self, tile_ids: Sequence[TileId]) -> Sequence[FoundTile | None]:
        """Return each of these tiles, in their order, in one query; pass a hundred at most."""
        ...

    def find_versions(
        self, source: str | None, zoom: int, x: int, y: int
    ) -> Sequence[TileMetadata]:
        """Return the tile of a source; without one, those of all sources, freshest first.

        Tiles with the same time are sorted by source; there are a few at most.
        """
        ...

    def list_layers(self) -> Sequence[MapLayer]:
        """Return the layer of each source that has tiles, sorted by name."""
        ...

    def find_flights(self, source: str | None, zoom: int, x: int, y: int) -> Sequence[str]:
        """Return the flights that have a place in their areas, sorted; a few at most."""
        ...
