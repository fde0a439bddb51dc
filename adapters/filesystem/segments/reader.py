"""Remembers where tiles are, so that most reads need not ask the database."""

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock

from attrs import define, field, frozen

from tileferry.adapters.filesystem.files import Directory, OpenFile
from tileferry.adapters.filesystem.segments.format import (
    RECORD_HEAD_BYTES,
    check_digest,
    extract_payload,
    segment_name,
)
from tileferry.domain.errors import DamagedTileError, StorageError
from tileferry.domain.tiles import BlobRef, TileId

_WRITTEN_MAX = 4096
"""Twice what a group between two commits may have."""


@define(kw_only=True, eq=False)
class LocationCache:
    """The locations used last, and the blobs written last.

    A tile's row appears some time after its bytes were written. Until the index names the new blob
    the old location must not be remembered, or it would outlive the change of the row.
    """

    _entries_max: int
    _known: OrderedDict[TileId, BlobRef] = field(factory=OrderedDict, init=False)
    _written: OrderedDict[TileId, BlobRef] = field(factory=OrderedDict, init=False)
    _changes: int = field(default=0, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    @property
    def changes(self) -> int:
        """Counts what made locations void; an answer from before a change is not remembered."""
        return self._changes

    def get(self, tile_id: TileId) -> BlobRef | None:
        """Return where the tile was when the index was asked last."""
        with self._lock:
            blob = self._known.get(tile_id)
            if blob is not None:
                self._known.move_to_end(tile_id)
            return blob

    def remember(self, tile_id: TileId, blob: BlobRef, *, changes: int) -> None:
        """Keep the index's answer to a question asked after ``changes`` changes."""
        with self._lock:
            awaited = self._written.get(tile_id)
            if changes != self._changes or (awaited is not None and awaited != blob):
                return
            if self._written.pop(tile_id, None) is not None:
                # The row has changed; who asked before that may still hold the old answer.
                self._changes += 1
            _put(self._known, tile_id, blob, self._entries_max)

    def note_written(self, tile_id: TileId, blob: BlobRef) -> None:
        """Note that the tile will soon be elsewhere."""
        with self._lock:
            if self._known:
                self._known.pop(tile_id, None)
            _put(self._written, tile_id, blob, _WRITTEN_MAX)

    def drop(self, tile_ids: Iterable[TileId]) -> None:
        """Forget where tiles were, after the index was changed."""
        with self._lock:
            self._changes += 1
            for tile_id in tile_ids:
                self._known.pop(tile_id, None)

    def drop_all(self) -> None:
        """Forget everything."""
        with self._lock:
            self._changes += 1
            self._known.clear()


def _put(
    entries: OrderedDict[TileId, BlobRef], tile_id: TileId, blob: BlobRef, entries_max: int
) -> None:
    entries[tile_id] = blob
    entries.move_to_end(tile_id)
    while len(entries) > entries_max:
        entries.popitem(last=False)


@frozen(eq=False)
class _SharedFile:
    """A file that several readers use; the last one to let go of it closes it."""

    file: OpenFile

    def __del__(self) -> None:
        self.file.close()


@define(kw_only=True, eq=False)
class SegmentReader:
    """Keeps the segments read last open."""

    _directory: Directory
    _open_files_max: int
    _files: dict[int, _SharedFile] = field(factory=dict, init=False)
    _closed: bool = field(default=False, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def read(self, tile_id: TileId, blob: BlobRef) -> bytes:
        """Return the payload of a record, every byte checked by the fast checksum."""
        segment, offset = blob.location
        shared = self._files.get(segment) or self._open_segment(segment)
        if shared is None:
            raise DamagedTileError(
                tile=str(tile_id), problem=f"segment {segment}, where it was, is missing"
            )
        tile = str(tile_id).encode()
        length = RECORD_HEAD_BYTES + len(tile) + blob.length
        return extract_payload(shared.file.pread(length, offset), tile, blob)

    def read_verified(self, tile_id: TileId, blob: BlobRef) -> bytes:
        """Return the payload of a record, checked by its sha256 as well."""
        payload = self.read(tile_id, blob)
        check_digest(payload, tile_id, blob)
        return payload

    def forget(self, segment: int) -> None:
        """Let go of a segment that is being removed."""
        with self._lock:
            self._files.pop(segment, None)

    def close(self) -> None:
        """Let go of all of them."""
        with self._lock:
            self._closed = True
            self._files.clear()

    def _open_segment(self, segment: int) -> _SharedFile | None:
        with self._lock:
            if self._closed:
                raise StorageError(
                    action="read",
                    path=str(self._directory.path),
                    problem="it is closed",
                    remedy="open the cache again",
                )
            if segment not in self._files:
                file = self._directory.find_file(segment_name(segment))
                if file is None:
                    return None
                while len(self._files) >= self._open_files_max:
                    del self._files[next(iter(self._files))]
                self._files[segment] = _SharedFile(file)
            return self._files[segment]
