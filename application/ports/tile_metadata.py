"""What is known of each tile; a tile is visible once it is known here."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from tileferry.domain.tiles import (
    BBox,
    FreshnessLabel,
    NewTile,
    TileId,
    TileMetadata,
    VotingStatus,
)


@runtime_checkable
class TileMetadataStore(Protocol):
    """Keeps the metadata of tiles, and applies the freshness rule as they come in."""

    def insert_metadata(self, tile: NewTile) -> FreshnessLabel:
        """Take in a tile whose bytes are stored, and label it; it is visible after ``flush``.

        A tile that is stale for its sector is refused with ``FreshnessRejectionError``. Which of
        two versions stays is ``tileferry.domain.tiles.replaces``.
        """
        ...

    def get_metadata(self, tile_id: TileId) -> TileMetadata | None:
        """Return what is known of a visible tile."""
        ...

    def query_by_bbox(
        self, bbox: BBox, zoom_levels: Sequence[int], *, source: str | None = None
    ) -> Iterator[TileMetadata]:
        """Yield the visible tiles of an area, column by column."""
        ...

    def pending_uploads(self, flight_id: str) -> Iterator[TileMetadata]:
        """Yield a flight's tiles that wait for their upload, in the order of their ids."""
        ...

    def mark_uploaded(self, *tile_ids: TileId) -> None:
        """Record, durably, that the provider has these tiles: all of them, or none."""
        ...

    def update_voting_status(self, tile_id: TileId, status: VotingStatus) -> None:
        """Move a tile to another status, durably, if the tile may go there."""
        ...

    def increment_upload_attempts(self, tile_id: TileId, attempt: str | None = None) -> int:
        """Count one more rejected upload, durably, and return how many there are now.

        The ``attempt`` that was counted last is not counted again, so a crash may repeat it.
        Nothing else writes that count. A store that predates it inherits this refusal.
        """
        raise NotImplementedError(f"{type(self).__name__} does not count upload attempts")

    def mark_used(self, tile_ids: Sequence[TileId]) -> None:
        """Note that tiles were needed now: what was needed longest ago is evicted first."""
        ...

    def flush(self) -> None:
        """Return once everything inserted before is durable and visible."""
        ...

    def detach(self) -> Callable[[], None]:
        """Close a group: set aside what was inserted before, and return what will ``flush`` it.

        What is inserted from now on is no part of it. The result is called once, in any thread;
        if it fails, its tiles wait for the next ``flush``.
        """
        ...
