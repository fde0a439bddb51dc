"""In-memory tile store, with bytes that a power loss may take."""

from collections.abc import Callable, Iterable
from hashlib import sha256
from threading import Lock

from attrs import define, field

from tileferry.application.ports.tiles import BlobIndex, TileStore
from tileferry.domain.errors import DamagedTileError, TileNotFoundError, TileTooLargeError
from tileferry.domain.tiles import TILE_BYTES_MAX, BlobRef, TileId

_LOST_SHARE, _TORN_SHARE = 0.4, 0.3


@define(eq=False)
class MemoryTileStore(TileStore):
    """Tile store. As on disk, a tile is visible once the index contains its blob."""

    _index: BlobIndex
    _contents: dict[BlobRef, tuple[TileId, bytes]] = field(factory=dict, init=False)
    _unflushed: dict[BlobRef, None] = field(factory=dict, init=False)
    _end: int = field(default=0, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def write_tile(
        self, tile_id: TileId, content: bytes | Iterable[bytes], *, digest: bytes | None = None
    ) -> BlobRef:
        """Store bytes and return their location."""
        collected = bytearray()
        for chunk in [content] if isinstance(content, bytes) else content:
            if len(collected) + len(chunk) > TILE_BYTES_MAX:
                raise TileTooLargeError(tile=str(tile_id), limit_bytes=TILE_BYTES_MAX)
            collected += chunk
        payload = bytes(collected)
        known = (sha256(payload).digest() if digest is None else digest).hex()
        with self._lock:
            self._end += 1  # gives an empty tile a unique offset too
            blob = BlobRef(location=(1, self._end), length=len(payload), sha256=known)
            self._end += len(payload)
            self._contents[blob] = (tile_id, payload)
            self._unflushed[blob] = None
        return blob

    def tile_exists(self, tile_id: TileId) -> bool:
        """Return whether the tile is visible."""
        return self._index.locate(tile_id) is not None

    def read_tile(self, tile_id: TileId, *, blob: BlobRef | None = None) -> bytes:
        """Return the bytes of a visible tile."""
        if blob not in self._contents:
            blob = self._index.locate(tile_id)
        if blob is None:
            raise TileNotFoundError(tile=str(tile_id))
        owner, payload = self._contents.get(blob, (None, b""))
        if owner != tile_id:
            raise DamagedTileError(tile=str(tile_id), problem="its row points to missing bytes")
        if len(payload) != blob.length:
            raise DamagedTileError(tile=str(tile_id), problem="its bytes are not whole")
        return payload

    def has_bytes(self, tile_id: TileId, blob: BlobRef) -> bool:  # noqa: ARG002  # of the port
        """Return whether the bytes of a blob exist."""
        return blob in self._contents and len(self._contents[blob][1]) == blob.length

    def delete_tile(self, tile_id: TileId) -> bool:
        """Make a tile invisible; return whether it was visible."""
        forgotten = self._index.forget([tile_id])
        for blob in forgotten:
            self._contents.pop(blob, None)
            self._unflushed.pop(blob, None)
        return bool(forgotten)

    def flush(self) -> None:
        """Make all written bytes safe from ``lose_power``."""
        with self._lock:
            self._unflushed.clear()

    # For tests: what a disk does

    def is_durable(self, blob: BlobRef) -> bool:
        """Return whether the bytes of a blob survive a loss of power."""
        return (
            blob not in self._unflushed
            and blob in self._contents
            and len(self._contents[blob][1]) == blob.length
        )

    def lose_power(self, random: Callable[[], float]) -> None:
        """Lose or tear any of the bytes that were not flushed; ``random`` returns 0 to 1."""
        for blob in self._unflushed:
            drawn = random()
            if drawn < _LOST_SHARE:
                del self._contents[blob]
            elif drawn < _LOST_SHARE + _TORN_SHARE:
                owner, payload = self._contents[blob]
                self._contents[blob] = owner, payload[: len(payload) // 2]
        self._unflushed.clear()
