"""Reading records from segments, and a cache of tile locations that saves index queries."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import TypeVar

from attrs import define, field, frozen

from tileferry.adapters.filesystem.files import Directory, OpenFile
from tileferry.adapters.filesystem.segments.format import (
    RECORD_HEAD_BYTES,
    check_digest,
    extract_payload,
    parse_segment_number,
    record_size,
    segment_name,
)
from tileferry.domain.errors import DamagedTileError, StorageError
from tileferry.domain.tiles import BlobLocation, BlobRef, TileId

_Entry = TypeVar("_Entry")

_WRITTEN_MAX = 5_120
"""The tiles of two groups of the maximum size; a group may end with a batch that exceeds it."""


@define(kw_only=True, eq=False)
class LocationCache:
    """The most recently used locations, and the most recently written blobs.

    A tile's row is committed some time after its bytes are written. Until the index returns the new
    blob, the old location must not be cached, or it would stay in the cache after the row changes.
    """

    _entries_max: int
    _known: OrderedDict[TileId, BlobRef] = field(factory=OrderedDict, init=False)
    _written: OrderedDict[TileId, BlobLocation] = field(factory=OrderedDict, init=False)
    _changes: int = field(default=0, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    @property
    def changes(self) -> int:
        """Number of invalidations so far; pass it to ``remember`` to drop outdated answers."""
        return self._changes

    def get(self, tile_id: TileId) -> BlobRef | None:
        """Return the cached location of a tile, if there is one."""
        with self._lock:
            blob = self._known.get(tile_id)
            if blob is not None:
                self._known.move_to_end(tile_id)
            return blob

    def remember(self, tile_id: TileId, blob: BlobRef, *, changes: int) -> None:
        """Cache a location, unless ``changes``, read before the index query, is outdated."""
        with self._lock:
            awaited = self._written.get(tile_id)
            if changes != self._changes or (awaited is not None and awaited != blob.location):
                return
            if self._written.pop(tile_id, None) is not None:
                # The row has changed; another thread may still hold the old location.
                self._changes += 1
            _put(self._known, tile_id, blob, self._entries_max)

    def note_written(self, tile_ids: Sequence[TileId], locations: Sequence[BlobLocation]) -> None:
        """Note that the tiles' rows will soon refer to these locations."""
        with self._lock:
            for tile_id, location in zip(tile_ids, locations, strict=True):
                if self._known:
                    self._known.pop(tile_id, None)
                _put(self._written, tile_id, location, _WRITTEN_MAX)

    def drop(self, tile_ids: Iterable[TileId]) -> None:
        """Remove tiles from the cache, after their rows have changed."""
        with self._lock:
            self._changes += 1
            for tile_id in tile_ids:
                self._known.pop(tile_id, None)

    def drop_all(self) -> None:
        with self._lock:
            self._changes += 1
            self._known.clear()


def _put(
    entries: OrderedDict[TileId, _Entry], tile_id: TileId, entry: _Entry, entries_max: int
) -> None:
    entries[tile_id] = entry
    entries.move_to_end(tile_id)
    while len(entries) > entries_max:
        entries.popitem(last=False)


@frozen(eq=False)
class _SharedFile:
    """A reference-counted file: the last reader closes it."""

    file: OpenFile

    def __del__(self) -> None:
        self.file.close()


@define(kw_only=True, eq=False)
class SegmentReader:
    """Reads records, and keeps the most recently read segments open."""

    _directory: Directory
    _open_files_max: int
    _files: dict[int, _SharedFile] = field(factory=dict, init=False)
    _closed: bool = field(default=False, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def read(self, tile_id: TileId, blob: BlobRef) -> bytes:
        """Return the payload of a record, verified by xxh3."""
        segment, offset = blob.location
        shared = self._files.get(segment) or self._open_segment(segment)
        if shared is None:
            raise self._build_missing_error(tile_id, segment)
        tile = str(tile_id).encode()
        length = RECORD_HEAD_BYTES + len(tile) + blob.length
        return extract_payload(shared.file.pread(length, offset), tile, blob)

    def has_record(self, tile_id: TileId, blob: BlobRef) -> bool:
        """Return whether the segment extends to the end of a record."""
        segment, offset = blob.location
        shared = self._files.get(segment) or self._open_segment(segment)
        return shared is not None and shared.file.size() >= offset + record_size(tile_id, blob)

    def read_verified(self, tile_id: TileId, blob: BlobRef) -> bytes:
        """Return the payload of a record, verified by xxh3 and sha256."""
        payload = self.read(tile_id, blob)
        check_digest(payload, tile_id, blob)
        return payload

    def forget(self, segment: int) -> None:
        """Close a segment that has been removed."""
        with self._lock:
            self._files.pop(segment, None)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._files.clear()

    def _build_missing_error(self, tile_id: TileId, segment: int) -> DamagedTileError:
        return DamagedTileError(
            tile=str(tile_id),
            problem=f"its segment {segment} is missing",
            is_store_lost=not any(map(parse_segment_number, self._directory.names())),
        )

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
