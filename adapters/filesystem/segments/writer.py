"""Appending records to the newest segment in few large writes, and making them durable."""

from collections.abc import Callable, Iterable
from threading import Lock
from typing import TypeVar

from attrs import define, field

from tileferry.adapters.filesystem.files import Directory, OpenFile
from tileferry.adapters.filesystem.segments.format import (
    FILE_HEADER,
    SEGMENT_NUMBER_MAX,
    parse_segment_number,
    segment_name,
)
from tileferry.domain.errors import StorageError

_T = TypeVar("_T")
_ROLLED_MAX = 8


@define(kw_only=True, eq=False)
class SegmentWriter:
    """Writes only to segments that it created, so the state that earlier processes left is
    irrelevant.

    After a failed write or sync the file's state is unknown: all further calls fail, and records
    that were not confirmed get no row.
    """

    _directory: Directory
    _last_segment: Callable[[], int]
    """Returns the highest segment number in any row."""
    _segment_bytes_max: int
    _buffer_bytes_max: int
    segment: int = field(default=0, init=False)
    written: int = field(default=0, init=False)
    """Bytes of the segment passed to the operating system; the rest is in the buffer."""
    first_segment: int | None = field(default=None, init=False)
    """This writer created all segments from this number on."""
    _file: OpenFile | None = field(default=None, init=False)
    _parts: list[bytes | bytearray] = field(factory=list, init=False)
    _buffered: int = field(default=0, init=False)
    _unsynced: bool = field(default=False, init=False)
    _unnamed: bool = field(default=False, init=False)
    _rolled: list[OpenFile] = field(factory=list, init=False)
    """Full segments, which the next flush syncs and closes."""
    _failure: BaseException | None = field(default=None, init=False)
    _state: Lock = field(factory=Lock, init=False)
    _syncing: Lock = field(factory=Lock, init=False)
    """Acquired before ``_state``. A separate lock, so that ``append`` does not wait for a sync."""

    def append(self, records: Iterable[tuple[bytes, bytes | bytearray]]) -> list[tuple[int, int]]:
        """Append records, each its head and payload; return the segment and offset of each.

        They are durable after ``flush``.
        """
        if len(self._rolled) >= _ROLLED_MAX:
            self.flush()
        return self._apply_change(lambda: [self._append(*record) for record in records])

    def flush(self) -> None:
        """Return once all appended records are durable."""
        files: list[OpenFile] = []
        full = 0
        with self._syncing:
            try:
                files, full, unnamed = self._apply_change(self._take_unsynced)
                for file in files:
                    file.fdatasync()
                if unnamed:
                    self._directory.sync()
            except BaseException as error:
                self._failure = self._failure or error
                raise
            finally:
                for file in files[:full]:
                    file.close()

    def write_out(self) -> None:
        """Write the buffer to the file, so that it can be read."""
        self._apply_change(self._write_out)

    def ensure_segment(self) -> None:
        """Create a segment durably, with a higher number than all others, unless one is open."""
        if self._file is None:
            self._apply_change(self._start_segment)
        self.flush()

    def is_own_segment(self, segment: int) -> bool:
        """Return whether this writer created the segment."""
        return self.first_segment is not None and segment >= self.first_segment

    def close(self) -> None:
        """Close the files; records that were not flushed are lost."""
        with self._syncing, self._state:
            self._failure = self._failure or _ClosedError("it is closed")
            for file in (*self._rolled, *filter(None, [self._file])):
                file.close()
            self._rolled, self._file, self._parts = [], None, []

    def _apply_change(self, change: Callable[[], _T]) -> _T:
        """Run ``change`` under the lock; fail if an earlier change failed."""
        with self._state:
            if self._failure is not None:
                raise StorageError(
                    action="write to",
                    path=str(self._directory.path),
                    problem=f"an earlier operation failed: {self._failure}",
                    remedy="restart; confirmed tiles are kept",
                ) from self._failure
            try:
                return change()
            except BaseException as error:
                # This includes interrupts: it is unknown how much was written before.
                self._failure = error
                self._parts = []
                raise

    def _append(self, head: bytes, payload: bytes | bytearray) -> tuple[int, int]:
        size = len(head) + len(payload)
        offset = self.written + self._buffered
        full = len(FILE_HEADER) < offset and self._segment_bytes_max < offset + size
        if self._file is None or full:
            self._start_segment()
            offset = self._buffered
        self._parts += (head, payload)
        self._buffered += size
        if self._buffered >= self._buffer_bytes_max:
            self._write_out()
        return self.segment, offset

    def _take_unsynced(self) -> tuple[list[OpenFile], int, bool]:
        """Return the files to sync, how many of them are full, and whether the directory needs a
        sync.
        """
        self._write_out()
        full, self._rolled = self._rolled, []
        current = [self._file] if self._file and self._unsynced else []
        unnamed = self._unnamed
        self._unsynced = self._unnamed = False
        return full + current, len(full), unnamed

    def _write_out(self) -> None:
        if self._file is not None and self._parts:
            self._file.write_vector(self._parts)
            self.written += self._buffered
            self._parts = []
            self._buffered = 0
            self._unsynced = True

    def _start_segment(self) -> None:
        if self._file is None:
            # Rows may refer to a missing file; its number must not be reused.
            numbers = filter(None, map(parse_segment_number, self._directory.names()))
            number = max(self._last_segment(), *numbers, 0) + 1
        else:
            self._write_out()
            self._rolled.append(self._file)
            self._file = None
            number = self.segment + 1
        if number > SEGMENT_NUMBER_MAX:
            raise StorageError(
                action="add a segment to",
                path=str(self._directory.path),
                problem=f"segment numbers are exhausted ({SEGMENT_NUMBER_MAX})",
                remedy="start a new cache",
            )
        self._file = self._directory.create_file(segment_name(number))
        self._unnamed = True
        self._parts = [FILE_HEADER]
        self._buffered = len(FILE_HEADER)
        self.segment = number
        self.written = 0
        self.first_segment = self.first_segment or number


class _ClosedError(Exception):
    """The cause of the error that a closed writer raises."""
