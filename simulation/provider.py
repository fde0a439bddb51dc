"""The simulated provider: a world of its own, with versions of tiles and a log of its answers."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256

from attrs import define, field

from simulation.faults import create_provider_error
from simulation.world import World
from tileferry.application.ports.provider import FetchedTile, UnchangedTile
from tileferry.domain.tiles import (
    BBox,
    ListingPage,
    ProviderFault,
    TileCoverage,
    TileId,
    TileSummary,
    TileValidators,
)

SOURCE = "satellite"
PRODUCED = datetime(2026, 10, 1, tzinfo=UTC)
LATENCY_S = (0.02, 0.4)


@define(eq=False)
class SimulatedProvider:
    """Has every tile, in its newest version, except those that are absent."""

    world: World
    page_size: int = 4
    source: str = SOURCE
    key_hash: str = "0" * 16
    lists_versions: bool = True
    absent: set[TileId] = field(factory=set)
    versions: dict[TileId, int] = field(factory=dict)
    on_request: list[Callable[[TileId], None]] = field(factory=list)
    """Called when an unconditional request for a tile arrives."""

    def fetch_listing_page(
        self, bbox: BBox, zoom_levels: Sequence[int], cursor: str | None
    ) -> ListingPage:
        """Return a page of the tiles of an area."""
        self._answer_later()
        tiles = _list_tiles(self.source, bbox, tuple(zoom_levels))
        start = int(cursor or 0)
        end = start + self.page_size
        lines = tuple(map(self.summarize, tiles[start:end]))
        return ListingPage(tiles=lines, next=str(end) if end < len(tiles) else None)

    def fetch_tile(
        self, tile_id: TileId, *, unless: TileValidators | None = None
    ) -> FetchedTile | UnchangedTile:
        """Return the newest version of a tile."""
        if unless is None:
            for notify in self.on_request:
                notify(tile_id)
        self._answer_later()
        if tile_id in self.absent:
            raise create_provider_error(ProviderFault.NOT_FOUND)
        etag = f'"{self.versions.get(tile_id, 0)}"'
        if unless is not None and unless.etag == etag:
            return UnchangedTile(tile_id=tile_id)
        content = self.get_content(tile_id)
        return FetchedTile(
            tile_id=tile_id,
            content=content,
            produced_at=self.get_produced_at(tile_id),
            resolution_m_per_px=0.6,
            sha256=sha256(content).digest(),
            validators=TileValidators(etag=etag),
        )

    def get_content(self, tile_id: TileId, version: int | None = None) -> bytes:
        """Return bytes that no other tile and no other version has; all are of one size."""
        known = self.versions.get(tile_id, 0) if version is None else version
        return f"{tile_id} version {known:4}".encode().ljust(TILE_BYTES, b".")

    def get_produced_at(self, tile_id: TileId) -> datetime:
        return PRODUCED + timedelta(hours=self.versions.get(tile_id, 0))

    def summarize(self, tile_id: TileId) -> TileSummary:
        """Return a line of the listing."""
        return TileSummary(
            tile_id=tile_id,
            produced_at=self.get_produced_at(tile_id) if self.lists_versions else PRODUCED,
            resolution_m_per_px=0.6,
            estimated_bytes=TILE_BYTES,
        )

    def publish(self, tile_id: TileId) -> None:
        """Replace a tile by a newer version."""
        self.versions[tile_id] = self.versions.get(tile_id, 0) + 1

    def _answer_later(self) -> None:
        least_s, most_s = LATENCY_S
        self.world.wait(least_s + (most_s - least_s) * self.world.schedule.random())


@cache
def _list_tiles(source: str, bbox: BBox, zoom_levels: tuple[int, ...]) -> list[TileId]:
    return list(TileCoverage(bbox=bbox, zoom_levels=zoom_levels).tiles(source))


TILE_BYTES = 64
