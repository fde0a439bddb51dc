"""Reads single records of segments, with a bounded number of open files."""

from threading import Lock

from attrs import define, field, frozen

from tileferry.adapters.filesystem.files import Directory, OpenFile
from tileferry.adapters.filesystem.segment_format import (
    RECORD_HEAD_BYTES,
    check_digest,
    payload_of,
    segment_name,
)
from tileferry.domain.errors import DamagedTileError, StorageError
from tileferry.domain.tiles import BlobRef, TileId


@frozen(eq=False)
class _Shared:
    """A file that several readers use; the last one to let go of it closes it."""

    file: OpenFile

    def __del__(self) -> None:
        self.file.close()


@define(kw_only=True, eq=False)
class SegmentReader:
    """Keeps the segments read last open."""

    _directory: Directory
    _open_files_max: int
    _files: dict[int, _Shared] = field(factory=dict, init=False)
    _closed: bool = field(default=False, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def read(self, tile_id: TileId, blob: BlobRef) -> bytes:
        """Return the payload of a record, every byte checked by the fast checksum."""
        shared = self._files.get(blob.segment) or self._opened(blob.segment)
        if shared is None:
            raise DamagedTileError(
                tile=str(tile_id), problem=f"segment {blob.segment}, where it was, is missing"
            )
        tile = str(tile_id).encode()
        length = RECORD_HEAD_BYTES + len(tile) + blob.length
        return payload_of(shared.file.pread(length, blob.offset), tile, blob)

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

    def _opened(self, segment: int) -> _Shared | None:
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
                self._files[segment] = _Shared(file)
            return self._files[segment]
