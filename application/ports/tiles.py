"""The bytes of tiles, and their metadata."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from tileferry.domain.tiles import (
    BBox,
    BlobRef,
    FreshnessLabel,
    NewTile,
    TileId,
    TileMetadata,
    VotingStatus,
)


@runtime_checkable
class TileStore(Protocol):
    """Keeps the bytes of tiles. A tile is visible once its metadata names its blob."""

    def write_tile(
        self, tile_id: TileId, content: bytes | Iterable[bytes], *, digest: bytes | None = None
    ) -> BlobRef:
        """Store bytes and say where they are; they are durable after the next ``flush``.

        ``digest`` is the sha256 of these bytes, from who has just computed it: it is not computed
        again, so it is believed. Somebody else's word for it does not belong here.
        """
        ...

    def tile_exists(self, tile_id: TileId) -> bool:
        """Tell whether the tile is visible."""
        ...

    def read_tile(self, tile_id: TileId, *, blob: BlobRef | None = None) -> bytes:
        """Return the bytes of a visible tile, checked against their digest.

        ``blob`` is where they are, from who has just read the tile's row. The index is asked only
        if they are there no more.
        """
        ...

    def delete_tile(self, tile_id: TileId) -> bool:
        """Make a tile invisible; its space is freed later. Tell whether there was one."""
        ...

    def flush(self) -> None:
        """Return once everything written before is durable."""
        ...


class BlobIndex(Protocol):
    """Tells a store which blobs are visible; it changes together with the metadata."""

    def locate(self, tile_id: TileId) -> BlobRef | None:
        """Return where a visible tile's bytes are."""
        ...

    def forget(self, tile_ids: Sequence[TileId]) -> Sequence[BlobRef]:
        """Make tiles invisible, durably, and return the blobs they had."""
        ...


class SegmentIndex(BlobIndex, Protocol):
    """The index of a store whose locations are a segment's number and an offset in it."""

    def list_blobs(
        self, segment: int, *, after_offset: int, limit: int
    ) -> Sequence[tuple[TileId, BlobRef]]:
        """Return visible blobs of a segment beyond an offset, in the order of their offsets."""
        ...

    def get_last_segment(self) -> int:
        """Return the highest number among the segments that have visible blobs; 0 for none."""
        ...

    def sum_live_bytes(self) -> Sequence[tuple[int, int]]:
        """Return each segment that has visible blobs, with the sum of their lengths."""
        ...

    def move(self, moves: Sequence[tuple[TileId, BlobRef, BlobRef]]) -> int:
        """Point tiles from one blob to another, durably, where they still have the first.

        Return how many were moved.
        """
        ...


class TileCatalogue(Protocol):
    """The visible tiles. Applies the freshness rule to each tile that is inserted."""

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


class UploadStatusStore(Protocol):
    """The upload status of captured tiles."""

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


@runtime_checkable
class TileMetadataStore(TileCatalogue, UploadStatusStore, Protocol):
    """The metadata of all tiles: the catalogue and the upload status."""
