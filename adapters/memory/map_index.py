"""Visible tiles by their place, from in-memory stores."""

from collections import defaultdict
from collections.abc import Sequence

from attrs import frozen

from tileferry.adapters.memory.flights import MemoryFlightBook
from tileferry.adapters.memory.tiles import MemoryTileMetadataStore
from tileferry.application.ports.map_tiles import FoundTile
from tileferry.domain.tiles import TileId, TileMetadata, TileRange
from tileferry.domain.tiles.map_layer import LayerLevel, MapLayer

_FLIGHTS_MAX = 5
_VERSIONS_MAX = 20


@frozen(kw_only=True)
class MemoryMapIndex:
    """Finds visible tiles by their place."""

    tiles: MemoryTileMetadataStore
    flights: MemoryFlightBook

    def find_tile(self, source: str | None, zoom: int, x: int, y: int) -> FoundTile | None:
        """Return the tile of a source; without one, the most recent tile of any source."""
        for latest in self.find_versions(source, zoom, x, y):
            return FoundTile(latest.tile_id, latest.blob, latest.produced_at)
        return None

    def find_versions(
        self, source: str | None, zoom: int, x: int, y: int
    ) -> Sequence[TileMetadata]:
        """Return the tile of a source; without one, those of all sources, freshest first."""
        found = [
            tile
            for tile in self.tiles.all_tiles()
            if (tile.tile_id.zoom, tile.tile_id.x, tile.tile_id.y) == (zoom, x, y)
            and source in {None, tile.tile_id.source}
        ]
        found.sort(key=lambda tile: tile.tile_id.source)
        return sorted(found, key=lambda tile: tile.produced_at, reverse=True)[:_VERSIONS_MAX]

    def find_tiles(self, tile_ids: Sequence[TileId]) -> Sequence[FoundTile | None]:
        """Return each of these tiles, in their order."""
        return [self.find_tile(tile.source, tile.zoom, tile.x, tile.y) for tile in tile_ids]

    def list_layers(self) -> Sequence[MapLayer]:
        """Return the layer of each source that has tiles, sorted by name."""
        places: dict[str, dict[int, list[TileId]]] = defaultdict(lambda: defaultdict(list))
        for tile in self.tiles.all_tiles():
            places[tile.tile_id.source][tile.tile_id.zoom].append(tile.tile_id)
        return [
            MapLayer(name=name, levels=[_to_level(levels[zoom]) for zoom in sorted(levels)])
            for name, levels in sorted(places.items())
        ]

    def find_flights(self, source: str | None, zoom: int, x: int, y: int) -> Sequence[str]:
        """Return the flights that have a place in their areas, sorted; a few at most."""
        found = [
            flight.flight_id
            for flight in self.flights.list_flights()
            for area in flight.areas
            if source in {None, area.source}
            and area.contains(TileId(source=area.source, zoom=zoom, x=x, y=y))
        ]
        return sorted(set(found))[:_FLIGHTS_MAX]


def _to_level(tiles: Sequence[TileId]) -> LayerLevel:
    columns, rows = [tile.x for tile in tiles], [tile.y for tile in tiles]
    extent = TileRange(
        zoom=tiles[0].zoom,
        x_min=min(columns),
        x_max=max(columns),
        y_min=min(rows),
        y_max=max(rows),
    )
    return LayerLevel(extent=extent, tiles=len(tiles))
