"""The bytes of tiles."""

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from tileferry.domain.tiles import BlobRef, TileId


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
    """Tells the store which blobs are visible; it changes together with the metadata."""

    def locate(self, tile_id: TileId) -> BlobRef | None:
        """Return where a visible tile's bytes are."""
        ...

    def forget(self, tile_ids: Sequence[TileId]) -> Sequence[BlobRef]:
        """Make tiles invisible, durably, and return the blobs they had."""
        ...

    def blobs_in(
        self, segment: int, *, after_offset: int, limit: int
    ) -> Sequence[tuple[TileId, BlobRef]]:
        """Return visible blobs of a segment beyond an offset, in the order of their offsets."""
        ...

    def last_segment(self) -> int:
        """Return the highest number among the segments that have visible blobs; 0 for none."""
        ...

    def live_bytes(self) -> Sequence[tuple[int, int]]:
        """Return each segment that has visible blobs, with the sum of their lengths."""
        ...

    def move(self, moves: Sequence[tuple[TileId, BlobRef, BlobRef]]) -> int:
        """Point tiles from one blob to another, durably, where they still have the first.

        Return how many were moved.
        """
        ...
