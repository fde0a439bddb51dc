"""The tile store on append-only segment files, ``<root>/.c6/segments/<number>.seg``.

A tile is visible when the index has a row for it; bytes without a row are dead. Opening therefore
reads no content, a torn tail needs no repair, and readers never see a partial tile.
"""

import fcntl
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from tileferry.adapters.filesystem.files import Directory, FileCalls, translate_os_errors
from tileferry.adapters.filesystem.segments.format import encode_record_head
from tileferry.adapters.filesystem.segments.maintenance import (
    CompactedSegment,
    Compactor,
    find_problem,
    verify_segments,
)
from tileferry.adapters.filesystem.segments.reader import LocationCache, SegmentReader
from tileferry.adapters.filesystem.segments.writer import SegmentWriter
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.inventory import VerificationFinding
from tileferry.application.ports.progress import (
    NULL_LISTENER,
    ItemsProcessed,
    ProgressListener,
    Task,
)
from tileferry.application.ports.tiles import SegmentIndex
from tileferry.domain.errors import (
    CacheLockError,
    DamagedTileError,
    TileNotFoundError,
    TileTooLargeError,
)
from tileferry.domain.tiles import TILE_BYTES_MAX, BlobLocation, BlobRef, TileId

_MIB = 1024 * 1024
_TILE_VERIFIED = ItemsProcessed(task=Task.VERIFY_CACHE)


class SegmentTileStore:
    """Tiles in segments; one process writes at a time (cache lock), threads may share a store."""

    def __init__(
        self,
        *,
        root: Path,
        index: SegmentIndex,
        segment_bytes_max: int = 256 * _MIB,
        buffer_bytes_max: int = _MIB,  # with twice as much, tiles of 1 MB were a third slower
        open_files_max: int = 128,
        locations_max: int = 16_384,
        calls: FileCalls | None = None,
    ) -> None:
        with (
            Directory.open_root(root, calls or FileCalls()) as top,
            top.subdirectory(".c6") as cache,
        ):
            self._directory = cache.subdirectory("segments")
        self._index = index
        self._writer = SegmentWriter(
            directory=self._directory,
            last_segment=index.get_last_segment,
            segment_bytes_max=segment_bytes_max,
            buffer_bytes_max=buffer_bytes_max,
        )
        self._reader = SegmentReader(directory=self._directory, open_files_max=open_files_max)
        self._locations = LocationCache(entries_max=locations_max)
        self._compacting = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def write_tile(
        self, tile_id: TileId, content: bytes | Iterable[bytes], *, digest: bytes | None = None
    ) -> BlobRef:
        """Store a tile and return its location; the bytes are durable after the next ``flush``."""
        payload = _collect_bytes(tile_id, content)
        digest = digest or sha256(payload).digest()
        (location,) = self.write_tiles([tile_id], [payload], digests=[digest])
        return BlobRef(location=location, length=len(payload), sha256=digest.hex())

    def write_tiles(
        self,
        tile_ids: Sequence[TileId],
        contents: Sequence[bytes | bytearray],
        *,
        digests: Sequence[bytes],
    ) -> list[BlobLocation]:
        """Store tiles and return their locations; durable after the next ``flush``."""
        for tile_id, content in zip(tile_ids, contents, strict=True):
            _check_size(tile_id, len(content))
        locations = self._append(tile_ids, contents, digests)
        self._locations.note_written(tile_ids, locations)
        return locations

    def tile_exists(self, tile_id: TileId) -> bool:
        return self._index.locate(tile_id) is not None

    def read_tile(self, tile_id: TileId, *, blob: BlobRef | None = None) -> bytes:
        """Return the bytes of a visible tile, verified by checksum."""
        blob = blob or self._locations.get(tile_id) or self._locate(tile_id)
        try:
            return self._read(tile_id, blob)
        except DamagedTileError:
            # Compaction may have moved the tile in the meantime; query the index again.
            self._locations.drop([tile_id])
            elsewhere = self._locate(tile_id)
            if elsewhere == blob:
                self._locations.drop([tile_id])
                raise
        return self._read(tile_id, elsewhere)

    def has_bytes(self, tile_id: TileId, blob: BlobRef) -> bool:
        """Return whether the segment exists and contains the whole record."""
        self._ensure_written(blob)
        return self._reader.has_record(tile_id, blob)

    def delete_tile(self, tile_id: TileId) -> bool:
        """Make a tile invisible and return whether it existed; ``compact`` frees its space."""
        forgotten = self._index.forget([tile_id])
        self._locations.drop([tile_id])
        return bool(forgotten)

    def forget_locations(self) -> None:
        """Clear the location cache. Call this after removing rows without ``delete_tile``."""
        self._locations.drop_all()

    def flush(self) -> None:
        """Return once all written tiles are durable."""
        self._writer.flush()

    def compact(self, *, live_share_min: float = 0.5) -> list[CompactedSegment]:
        """Free the dead space of segments with a visible share below ``live_share_min``.

        Segments that this store wrote are skipped, because their rows may not be committed yet.
        Raise ``CacheLockError`` while a backup is created, which copies the segments.
        """
        with self._compacting, _lock_for_compaction(self._directory):
            return Compactor(
                directory=self._directory,
                index=self._index,
                reader=self._reader,
                writer=self._writer,
                locations=self._locations,
                append=self._append,
            ).run(live_share_min)

    def verify(self, progress: ProgressListener = NULL_LISTENER) -> Iterator[VerificationFinding]:
        """Verify every visible tile; yield the damage and the totals of each segment."""

        def read(tile_id: TileId, blob: BlobRef) -> bytes:
            progress(_TILE_VERIFIED)
            return self._read_verified(tile_id, blob)

        return verify_segments(directory=self._directory, index=self._index, read=read)

    def find_problem(self, tile_id: TileId, blob: BlobRef) -> str | None:
        """Verify one tile whose row is known; return the problem, if there is one."""
        return find_problem(tile_id, blob, self._read_verified)

    def close(self) -> None:
        """Close the files. Tiles that were not flushed are lost; they have no rows."""
        self._writer.close()
        self._reader.close()
        self._directory.close()

    def _append(
        self,
        tile_ids: Sequence[TileId],
        contents: Sequence[bytes | bytearray],
        digests: Sequence[bytes],
    ) -> list[BlobLocation]:
        records: list[tuple[bytes, bytes | bytearray]] = [
            (encode_record_head(str(tile_id).encode(), content, digest), content)
            for tile_id, content, digest in zip(tile_ids, contents, digests, strict=True)
        ]
        return self._writer.append(records)

    def _locate(self, tile_id: TileId) -> BlobRef:
        changes = self._locations.changes
        blob = self._index.locate(tile_id)
        if blob is None:
            raise TileNotFoundError(tile=str(tile_id))
        self._locations.remember(tile_id, blob, changes=changes)
        return blob

    def _read(self, tile_id: TileId, blob: BlobRef) -> bytes:
        self._ensure_written(blob)
        return self._reader.read(tile_id, blob)

    def _read_verified(self, tile_id: TileId, blob: BlobRef) -> bytes:
        self._ensure_written(blob)
        return self._reader.read_verified(tile_id, blob)

    def _ensure_written(self, blob: BlobRef) -> None:
        """Write the buffer to the file if it contains the blob."""
        writer = self._writer
        segment, offset = blob.location
        if segment == writer.segment and offset >= writer.written:
            writer.write_out()


def _collect_bytes(tile_id: TileId, content: bytes | Iterable[bytes]) -> bytes | bytearray:
    """Return the content as one buffer; fail if it exceeds the maximum tile size."""
    if isinstance(content, bytes):
        return content
    collected = bytearray()
    for chunk in content:
        _check_size(tile_id, len(collected) + len(chunk))
        collected += chunk
    return collected


def _check_size(tile_id: TileId, size_bytes: int) -> None:
    if size_bytes > TILE_BYTES_MAX:
        raise TileTooLargeError(tile=str(tile_id), limit_bytes=TILE_BYTES_MAX)


_LOCK_WAIT_S = 60.0
_LOCK_PAUSE_S = 0.05


@contextmanager
def lock_segments(root: Path, calls: FileCalls, clock: Clock) -> Iterator[None]:
    """Prevent the removal of segments in ``root`` during a block; wait for a compaction.

    The lock is one of the operating system, on the folder; it ends with its process.
    """
    with (
        Directory.open_root(root, calls) as top,
        top.subdirectory(".c6") as cache,
        cache.subdirectory("segments") as segments,
    ):
        until_s = clock.monotonic() + _LOCK_WAIT_S
        while not _try_flock(segments, fcntl.LOCK_SH):
            if clock.monotonic() >= until_s:
                raise CacheLockError(
                    path=str(segments.path),
                    problem="a compaction of the cache is running",
                    remedy="wait until it ends, then re-run",
                )
            clock.sleep(_LOCK_PAUSE_S)
        yield


@contextmanager
def _lock_for_compaction(segments: Directory) -> Iterator[None]:
    if not _try_flock(segments, fcntl.LOCK_EX):
        raise CacheLockError(
            path=str(segments.path),
            problem="a backup is being created, which copies the files of the cache",
            remedy="wait until it ends, then re-run",
        )
    try:
        yield
    finally:
        segments.calls.flock(segments.fd, fcntl.LOCK_UN)


def _try_flock(segments: Directory, kind: int) -> bool:
    with translate_os_errors("lock", segments.path):
        try:
            segments.calls.flock(segments.fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
