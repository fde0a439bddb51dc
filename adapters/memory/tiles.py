"""Tiles and their index in memory."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from hashlib import sha256
from threading import Lock

from attrs import define, field

from tileferry.application.ports.tile_store import BlobIndex
from tileferry.domain.errors import DamagedTileError, TileNotFoundError, TileTooLargeError
from tileferry.domain.tiles import TILE_BYTES_MAX, BlobRef, TileId


@define(eq=False)
class MemoryTileStore:
    """Shows a tile once the index names its blob, as the one on disk does."""

    _index: BlobIndex
    _contents: dict[BlobRef, tuple[TileId, bytes]] = field(factory=dict, init=False)
    _end: int = field(default=0, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def write_tile(
        self, tile_id: TileId, content: bytes | Iterable[bytes], *, digest: bytes | None = None
    ) -> BlobRef:
        """Store bytes and say where they are."""
        collected = bytearray()
        for chunk in [content] if isinstance(content, bytes) else content:
            if len(collected) + len(chunk) > TILE_BYTES_MAX:
                raise TileTooLargeError(tile=str(tile_id), limit_bytes=TILE_BYTES_MAX)
            collected += chunk
        payload = bytes(collected)
        known = (sha256(payload).digest() if digest is None else digest).hex()
        with self._lock:
            self._end += 1  # an empty tile has a place of its own, too
            blob = BlobRef(segment=1, offset=self._end, length=len(payload), sha256=known)
            self._end += len(payload)
            self._contents[blob] = (tile_id, payload)
        return blob

    def tile_exists(self, tile_id: TileId) -> bool:
        """Tell whether the tile is visible."""
        return self._index.locate(tile_id) is not None

    def read_tile(self, tile_id: TileId, *, blob: BlobRef | None = None) -> bytes:
        """Return the bytes of a visible tile."""
        if blob not in self._contents:
            blob = self._index.locate(tile_id)
        if blob is None:
            raise TileNotFoundError(tile=str(tile_id))
        owner, payload = self._contents.get(blob, (None, b""))
        if owner != tile_id:
            raise DamagedTileError(tile=str(tile_id), problem="its row points to no bytes of it")
        return payload

    def delete_tile(self, tile_id: TileId) -> bool:
        """Make a tile invisible. Tell whether there was one."""
        forgotten = self._index.forget([tile_id])
        for blob in forgotten:
            self._contents.pop(blob, None)
        return bool(forgotten)

    def flush(self) -> None:
        """Return at once: memory is as durable as it gets."""


@define(eq=False)
class MemoryBlobIndex:
    """Names blobs without a database; ``add`` stands for the commit of a row."""

    _blobs: dict[TileId, BlobRef] = field(factory=dict, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def add(self, tile_id: TileId, blob: BlobRef) -> None:
        """Make a tile visible, or show another blob for it."""
        with self._lock:
            self._blobs[tile_id] = blob

    def locate(self, tile_id: TileId) -> BlobRef | None:
        """Return where a visible tile's bytes are."""
        return self._blobs.get(tile_id)

    def forget(self, tile_ids: Sequence[TileId]) -> Sequence[BlobRef]:
        """Make tiles invisible and return the blobs they had."""
        with self._lock:
            return [self._blobs.pop(tile_id) for tile_id in tile_ids if tile_id in self._blobs]

    def blobs_in(
        self, segment: int, *, after_offset: int, limit: int
    ) -> Sequence[tuple[TileId, BlobRef]]:
        """Return visible blobs of a segment beyond an offset, in the order of their offsets."""
        with self._lock:
            there = [item for item in self._blobs.items() if item[1].segment == segment]
        there.sort(key=lambda item: item[1].offset)
        start = bisect_right(there, after_offset, key=lambda item: item[1].offset)
        return there[start : start + limit]

    def last_segment(self) -> int:
        """Return the highest number among the segments that have visible blobs; 0 for none."""
        return max((segment for segment, _ in self.live_bytes()), default=0)

    def live_bytes(self) -> Sequence[tuple[int, int]]:
        """Return each segment that has visible blobs, with the sum of their lengths."""
        sums: defaultdict[int, int] = defaultdict(int)
        with self._lock:
            for blob in self._blobs.values():
                sums[blob.segment] += blob.length
        return sorted(sums.items())

    def move(self, moves: Sequence[tuple[TileId, BlobRef, BlobRef]]) -> int:
        """Point tiles from one blob to another where they still have the first."""
        moved = 0
        with self._lock:
            for tile_id, old, new in moves:
                if self._blobs.get(tile_id) == old:
                    self._blobs[tile_id] = new
                    moved += 1
        return moved
