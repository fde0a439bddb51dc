"""The rows of a raw partition while it is open: a file of checksummed lines that only grows.

A row is the line that its tile will have in the manifest. In memory there is one bit a tile. A tile
has several rows when a crash had it fetched again: the last one counts.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from logging import Logger

from attrs import define, field, frozen

from tileferry.adapters.filesystem.files import Directory, OpenFile
from tileferry.adapters.filesystem.records import framed, read_lines
from tileferry.adapters.filesystem.segment_format import record_bytes
from tileferry.domain.errors import InvalidValueError, StorageError
from tileferry.domain.partitions.manifest import ManifestEntry
from tileferry.domain.partitions.manifest_lines import entry_line, entry_of
from tileferry.domain.tiles import TileCoverage, TileSet
from tileferry.domain.tiles.tile_id import TileId

_NAME = "rows"


@frozen
class _Row:
    start: int
    end: int
    entry: ManifestEntry | None
    """``None`` where the line is damaged."""


@define(kw_only=True, eq=False)
class RawRows:
    """The file. Whoever makes one loads it first."""

    _directory: Directory
    _coverage: TileCoverage
    _segment_sizes: Mapping[int, int]
    """How many bytes each segment had when the partition was opened."""
    visible: TileSet = field(init=False)
    last_segment: int = field(default=0, init=False)
    """The highest number that any row names, whether or not its bytes are there."""
    _foreign_segments: int | None = field(default=None, init=False)
    """Segments up to this one are of earlier tries; unknown until all their rows are read."""
    _last_rows: dict[TileId, int] = field(factory=dict, init=False)
    """Where the row that counts begins, for tiles that have several."""
    _end: int = field(default=0, init=False)
    _file: OpenFile | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.visible = TileSet(self._coverage)

    def load(self, logger: Logger) -> None:
        """Read what an earlier try left, and make the file ready to be written to."""
        lost = 0
        for row in self._rows():
            self._end = row.end
            if row.entry is not None:
                self.last_segment = max(self.last_segment, row.entry.blob.segment)
            if row.entry is not None and self._has_bytes(row.entry):
                self._note(row.entry, row.start)
            else:
                lost += 1
        if lost:
            logger.warning(
                "%s: %d rows are damaged or without bytes; their tiles are fetched again",
                self._directory.path,
                lost,
                extra={"kind": "partition.rows_lost", "rows": lost},
            )
        self._foreign_segments = max(self.last_segment, *self._segment_sizes, 0)
        self._file = self._directory.open_file(_NAME, create=True)
        self._directory.sync()
        self._file.truncate(self._end)  # a torn tail was never confirmed
        os.lseek(self._file.fd, self._end, os.SEEK_SET)

    def entries(self) -> Iterator[ManifestEntry]:
        """Yield each visible tile once, in the order in which they came."""
        for row in self._rows():
            entry = row.entry
            if entry is None or not self._has_bytes(entry):
                continue
            if self._last_rows.get(entry.tile_id, row.start) == row.start:
                yield entry

    def append(self, entries: Sequence[ManifestEntry]) -> None:
        """Add rows, durably. After an error nobody knows what the file holds: none is taken."""
        if self._file is None:
            raise StorageError(
                action="write to",
                path=str(self._directory.path / _NAME),
                problem="it is closed, or an earlier write to it failed",
                remedy="open the raw partition anew: what was confirmed is kept",
            )
        if not entries:
            return
        lines = [framed(entry_line(entry).removesuffix(b"\n")) for entry in entries]
        try:
            self._file.write_vector(lines)
            self._file.fdatasync()
        except BaseException:
            self.close()
            raise
        for entry, line in zip(entries, lines, strict=True):
            self._note(entry, self._end)
            self._end += len(line)

    def close(self) -> None:
        """Release the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _rows(self) -> Iterator[_Row]:
        file = self._directory.find_file(_NAME)
        if file is None:
            return
        with file:
            for line in read_lines(file):
                yield _Row(line.start, line.end, self._entry_of(line.content))

    def _entry_of(self, content: bytes | None) -> ManifestEntry | None:
        try:
            entry = None if content is None else entry_of(content + b"\n", "row")
        except InvalidValueError:
            return None
        return entry if entry is not None and self._coverage.contains(entry.tile_id) else None

    def _has_bytes(self, entry: ManifestEntry) -> bool:
        """Tell whether a tile's record lies within its segment, as far as sizes can tell."""
        blob = entry.blob
        if self._foreign_segments is not None and blob.segment > self._foreign_segments:
            return True  # it was written by this try, before its row
        size = self._segment_sizes.get(blob.segment, 0)
        return blob.offset + record_bytes(entry.tile_id, blob) <= size

    def _note(self, entry: ManifestEntry, start: int) -> None:
        if entry.tile_id in self.visible:
            self._last_rows[entry.tile_id] = start
        self.visible.add(entry.tile_id)
        self.last_segment = max(self.last_segment, entry.blob.segment)
