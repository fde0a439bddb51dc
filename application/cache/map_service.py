"""Serves the tiles of a cache as a map; verifies every tile and explains missing ones."""

from collections.abc import Sequence
from enum import StrEnum
from hashlib import sha256

from attrs import define, field, frozen

from tileferry.application.ports.clock import Clock
from tileferry.application.ports.map_tiles import FoundTile, MapIndex
from tileferry.application.ports.tiles import AbsentTiles, RefusedTiles, TileStore
from tileferry.domain.archives.archive import detect_tile_kind
from tileferry.domain.errors import DamagedTileError, TileNotFoundError
from tileferry.domain.text import format_utc
from tileferry.domain.tiles import TileId, TileMetadata
from tileferry.domain.tiles.map_layer import MERGED_LAYER, MapLayer, merge_layers

LAYERS_TTL_S = 10.0
"""How long counts are reused: counting a large cache takes too long for every page."""
_READS_MAX = 3


class MissingReason(StrEnum):
    """Why the cache has no tile at a place, as far as is known."""

    ABSENT = "absent_at_provider"
    REFUSED = "refused_by_gate"
    NOT_STORED = "not_stored"
    NEVER_REQUESTED = "never_requested"


@frozen(kw_only=True)
class MissingTile:
    """A place without a tile."""

    reason: MissingReason
    detail: str


@frozen(kw_only=True)
class MapTile:
    """A tile to show, verified."""

    found: FoundTile
    content: bytes
    kind: str
    """``png``, ``jpg``, ``webp`` or ``avif``; ``bin`` for any other content."""


@frozen(kw_only=True)
class ParentTile:
    """A coarser tile, and the part of it that covers a place."""

    tile: MapTile
    levels: int
    """The part is ``1 / 2 ** levels`` of the side of the tile."""
    column: int
    row: int
    """The position of the part, from the north-west corner."""


@define(kw_only=True)
class MapService:
    """Finds, reads and explains tiles. It takes no lock: a moved tile is looked up again."""

    index: MapIndex
    store: TileStore
    absent_tiles: AbsentTiles
    refused_tiles: RefusedTiles
    clock: Clock
    _layers: Sequence[MapLayer] = field(default=(), init=False)
    _layers_at_s: float | None = field(default=None, init=False)

    def find(self, layer: str, zoom: int, x: int, y: int) -> FoundTile | None:
        """Return the tile of a layer, without reading it."""
        return self.index.find_tile(_to_source(layer), zoom, x, y)

    def find_many(self, tile_ids: Sequence[TileId]) -> Sequence[FoundTile | None]:
        """Return the tiles of sources, without reading them."""
        return self.index.find_tiles(tile_ids)

    def read(self, layer: str, zoom: int, x: int, y: int) -> MapTile | None:
        """Return the tile of a layer with its bytes, verified by their sha256.

        Damaged bytes raise; a tile that was replaced or moved meanwhile is looked up again.
        """
        for _ in range(_READS_MAX):
            found = self.find(layer, zoom, x, y)
            if found is None:
                return None
            tile = self.read_found(found)
            if tile is not None:
                return tile
        raise DamagedTileError(
            tile=f"{layer}/{zoom}/{x}/{y}", problem="its bytes do not match their sha256"
        )

    def read_found(self, found: FoundTile) -> MapTile | None:
        """Return a found tile with its bytes; ``None`` if it was replaced or moved meanwhile."""
        try:
            content = self.store.read_tile(found.tile_id, blob=found.blob)
        except TileNotFoundError:
            return None
        if sha256(content).hexdigest() != found.blob.sha256:
            return None
        return MapTile(found=found, content=content, kind=detect_tile_kind(content))

    def find_parent(
        self, layer: str, zoom: int, x: int, y: int, *, levels_max: int
    ) -> ParentTile | None:
        """Return the finest stored tile that covers a place, at most ``levels_max`` levels up."""
        for levels in range(1, min(levels_max, zoom) + 1):
            tile = self.read(layer, zoom - levels, x >> levels, y >> levels)
            if tile is not None:
                side = 1 << levels
                return ParentTile(tile=tile, levels=levels, column=x % side, row=y % side)
        return None

    def explain_missing(self, layer: str, zoom: int, x: int, y: int) -> MissingTile:
        """Return why a layer has no tile at a place."""
        places = [TileId(source=name, zoom=zoom, x=x, y=y) for name in self.list_sources(layer)]
        absent = self.absent_tiles.find_absent(places)
        if absent:
            latest = max(absent.values())
            return MissingTile(
                reason=MissingReason.ABSENT,
                detail=f"the provider did not have this tile on {format_utc(latest)}",
            )
        refused = self.refused_tiles.find_refused(places)
        if refused:
            latest_refusal = max(refused, key=lambda one: one.refused_at)
            return MissingTile(reason=MissingReason.REFUSED, detail=latest_refusal.describe())
        flights = self.find_flights(layer, zoom, x, y)
        if flights:
            return MissingTile(
                reason=MissingReason.NOT_STORED,
                detail=f"in the area of {', '.join(flights)}, but not stored: not downloaded yet, "
                "or evicted",
            )
        return MissingTile(
            reason=MissingReason.NEVER_REQUESTED, detail="no flight has this tile in its areas"
        )

    def find_versions(self, layer: str, zoom: int, x: int, y: int) -> Sequence[TileMetadata]:
        """Return the tile of a layer; of the merged one, those of all sources, freshest first."""
        return self.index.find_versions(_to_source(layer), zoom, x, y)

    def find_flights(self, layer: str, zoom: int, x: int, y: int) -> Sequence[str]:
        """Return the flights that have a place in their areas, sorted; a few at most."""
        return self.index.find_flights(_to_source(layer), zoom, x, y)

    def list_sources(self, layer: str) -> Sequence[str]:
        """Return the source of a layer; of the merged layer, all sources with tiles."""
        source = _to_source(layer)
        return [one.name for one in self.list_layers()] if source is None else [source]

    def list_layers(self) -> Sequence[MapLayer]:
        """Return the layer of each source; counted at most every few seconds."""
        now_s = self.clock.monotonic()
        is_old = self._layers_at_s is None or now_s - self._layers_at_s >= LAYERS_TTL_S
        if is_old or not self._layers:  # an empty cache is counted at once
            self._layers = self.index.list_layers()
            self._layers_at_s = now_s
        return self._layers

    def list_with_merged(self) -> Sequence[MapLayer]:
        """Return the merged layer, then the layer of each source."""
        layers = self.list_layers()
        merged = merge_layers(layers)
        return () if merged is None else (merged, *layers)

    def find_layer(self, name: str) -> MapLayer | None:
        """Return a layer with tiles by its name, the merged one included."""
        return next((layer for layer in self.list_with_merged() if layer.name == name), None)


def _to_source(layer: str) -> str | None:
    return None if layer == MERGED_LAYER else layer
