"""The metadata of tiles in memory, by the same rules."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial

from attrs import define, evolve, field

from tileferry.adapters.memory.tiles import MemoryBlobIndex
from tileferry.application.ports.clock import Clock
from tileferry.domain.errors import TileNotFoundError
from tileferry.domain.tiles import (
    BBox,
    BlobRef,
    FreshnessLabel,
    FreshnessRule,
    NewTile,
    TileCoverage,
    TileId,
    TileMetadata,
    VotingStatus,
    move_status,
    replaces,
)


@define(kw_only=True)
class MemoryTileMetadataStore:
    """Keeps tiles in a dictionary; what was inserted shows after ``flush``, as anywhere."""

    clock: Clock
    freshness: FreshnessRule = field(factory=FreshnessRule)
    index: MemoryBlobIndex | None = None
    """Is told which blobs become visible."""
    _waiting: list[tuple[NewTile, FreshnessLabel]] = field(factory=list, init=False)
    _tiles: dict[TileId, TileMetadata] = field(factory=dict, init=False)
    _last_attempts: dict[TileId, str | None] = field(factory=dict, init=False)

    def insert_metadata(self, tile: NewTile) -> FreshnessLabel:
        """Label a tile and keep it for the next ``flush``."""
        label = self.freshness.judge(
            tile.tile_id, tile.sector_class, produced_at=tile.produced_at, now=self._now()
        )
        self._waiting.append((tile, label))
        return label

    def flush(self) -> None:
        """Show what was inserted."""
        self.detach()()

    def detach(self) -> Callable[[], None]:
        """Set aside what was inserted; the result shows it."""
        group, self._waiting = self._waiting, []
        return partial(self._show, group)

    def _show(self, group: list[tuple[NewTile, FreshnessLabel]]) -> None:
        for tile, label in group:
            existing = self._tiles.get(tile.tile_id)
            if existing is None or replaces(tile, existing):
                self._tiles[tile.tile_id] = self._visible(tile, label, existing)
                if self.index is not None:
                    self.index.add(tile.tile_id, tile.blob)

    def _visible(
        self, tile: NewTile, label: FreshnessLabel, existing: TileMetadata | None
    ) -> TileMetadata:
        now = self._now()
        return TileMetadata(
            tile_id=tile.tile_id,
            flight_id=tile.flight_id,
            produced_at=tile.produced_at,
            resolution_m_per_px=tile.resolution_m_per_px,
            sector_class=tile.sector_class,
            freshness=label,
            blob=tile.blob,
            voting_status=tile.voting_status,
            upload_attempts=0 if existing is None else existing.upload_attempts,
            stored_at=now,
            last_used_at=now,
        )

    def get_metadata(self, tile_id: TileId) -> TileMetadata | None:
        """Look a tile up."""
        return self._tiles.get(tile_id)

    def all_tiles(self) -> list[TileMetadata]:
        """Return every visible tile."""
        return list(self._tiles.values())

    def query_by_bbox(
        self, bbox: BBox, zoom_levels: Sequence[int], *, source: str | None = None
    ) -> Iterator[TileMetadata]:
        """Yield the visible tiles of an area."""
        area = TileCoverage(bbox=bbox, zoom_levels=zoom_levels)
        for tile in sorted(self._tiles, key=lambda tile: (tile.zoom, tile.x, tile.y, tile.source)):
            if area.contains(tile) and source in {None, tile.source}:
                yield self._tiles[tile]

    def pending_uploads(self, flight_id: str) -> Iterator[TileMetadata]:
        """Yield a flight's tiles that wait for their upload."""
        for tile_id in sorted(self._tiles):
            tile = self._tiles[tile_id]
            if tile.flight_id == flight_id and tile.voting_status is VotingStatus.PENDING:
                yield tile

    def mark_uploaded(self, *tile_ids: TileId) -> None:
        """Record acknowledgements."""
        moved = {
            tile_id: move_status(tile_id, self._known(tile_id).voting_status, VotingStatus.UPLOADED)
            for tile_id in tile_ids
        }
        for tile_id, status in moved.items():
            self.update_voting_status(tile_id, status)

    def update_voting_status(self, tile_id: TileId, status: VotingStatus) -> None:
        """Move a tile where the domain allows it."""
        tile = self._known(tile_id)
        moved = move_status(tile_id, tile.voting_status, status)
        self._tiles[tile_id] = evolve(tile, voting_status=moved)

    def increment_upload_attempts(self, tile_id: TileId, attempt: str | None = None) -> int:
        """Count one more rejected upload."""
        tile = self._known(tile_id)
        is_new = attempt is None or self._last_attempts.get(tile_id) != attempt
        self._last_attempts[tile_id] = attempt
        counted = evolve(tile, upload_attempts=tile.upload_attempts + is_new)
        self._tiles[tile_id] = counted
        return counted.upload_attempts

    def mark_used(self, tile_ids: Sequence[TileId]) -> None:
        """Note that tiles were needed now."""
        for tile_id in tile_ids:
            if tile_id in self._tiles:
                self._tiles[tile_id] = evolve(self._tiles[tile_id], last_used_at=self._now())

    # As the index of a store of bytes

    def locate(self, tile_id: TileId) -> BlobRef | None:
        """Return where a visible tile's bytes are."""
        tile = self._tiles.get(tile_id)
        return None if tile is None else tile.blob

    def forget(self, tile_ids: Sequence[TileId]) -> Sequence[BlobRef]:
        """Make tiles invisible, and return the blobs they had."""
        gone = [self._tiles.pop(tile_id, None) for tile_id in tile_ids]
        return [tile.blob for tile in gone if tile is not None]

    def blobs_in(
        self, segment: int, *, after_offset: int, limit: int
    ) -> Sequence[tuple[TileId, BlobRef]]:
        """Return visible blobs of a segment beyond an offset."""
        found = [
            (tile_id, tile.blob)
            for tile_id, tile in self._tiles.items()
            if tile.blob.segment == segment and tile.blob.offset > after_offset
        ]
        return sorted(found, key=lambda item: item[1].offset)[:limit]

    def last_segment(self) -> int:
        """Return the highest number among the segments that have visible blobs; 0 for none."""
        return max((segment for segment, _ in self.live_bytes()), default=0)

    def live_bytes(self) -> Sequence[tuple[int, int]]:
        """Add up the visible bytes of each segment."""
        totals: dict[int, int] = {}
        for tile in self._tiles.values():
            totals[tile.blob.segment] = totals.get(tile.blob.segment, 0) + tile.blob.length
        return list(totals.items())

    def move(self, moves: Sequence[tuple[TileId, BlobRef, BlobRef]]) -> int:
        """Point tiles to new places, where they still have the old one."""
        moved = 0
        for tile_id, old, new in moves:
            tile = self._tiles.get(tile_id)
            if tile is not None and tile.blob == old:
                self._tiles[tile_id] = evolve(tile, blob=new)
                moved += 1
        return moved

    def _known(self, tile_id: TileId) -> TileMetadata:
        if tile_id not in self._tiles:
            raise TileNotFoundError(tile=str(tile_id))
        return self._tiles[tile_id]

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now(), UTC)
