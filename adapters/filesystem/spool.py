"""Listings that are too long for memory: fixed-size records in an unlinked temporary file."""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from attrs import define, field

from tileferry.adapters.filesystem.files import Directory, FileCalls, OpenFile
from tileferry.domain.tiles import TileId, TileSummary

_RECORD = struct.Struct("<BIIqdI")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_BUFFERED_RECORDS = 4_096


@define(eq=False)
class FileListingSpool:
    """A listing that is first written completely, then read from the beginning."""

    _file: OpenFile
    _source: str
    _buffer: bytearray = field(factory=bytearray, init=False)

    def append(self, tile: TileSummary) -> None:
        tile_id = tile.tile_id
        self._buffer += _RECORD.pack(
            tile_id.zoom,
            tile_id.x,
            tile_id.y,
            (tile.produced_at - _EPOCH) // _MICROSECOND,
            tile.resolution_m_per_px,
            tile.estimated_bytes,
        )
        if len(self._buffer) >= _BUFFERED_RECORDS * _RECORD.size:
            self._write_out()

    def __iter__(self) -> Iterator[TileSummary]:
        self._write_out()
        offset = 0
        while chunk := self._file.pread(_BUFFERED_RECORDS * _RECORD.size, offset):
            offset += len(chunk)
            for zoom, x, y, micros, resolution, estimated_bytes in _RECORD.iter_unpack(chunk):
                yield TileSummary(
                    tile_id=TileId(source=self._source, zoom=zoom, x=x, y=y),
                    produced_at=_EPOCH + micros * _MICROSECOND,
                    resolution_m_per_px=resolution,
                    estimated_bytes=estimated_bytes,
                )

    def _write_out(self) -> None:
        self._file.write_all(bytes(self._buffer))
        self._buffer.clear()


@define(kw_only=True)
class FileSpoolStore:
    """Creates spools in ``<root>/.c11``. The files are unlinked at once, so a crash leaves none."""

    root: Path
    calls: FileCalls = field(factory=FileCalls)

    @contextmanager
    def create(self, source: str) -> Iterator[FileListingSpool]:
        """Create a spool that exists until the block ends."""
        with Directory.open_root(self.root, self.calls) as root, root.subdirectory(".c11") as ours:
            name = f"listing-{os.getpid()}.spool"
            if (
                name in ours.names()
            ):  # left by a process with the same id that died before the unlink
                ours.unlink(name)
            file = ours.create_file(name)
            ours.unlink(name)
        with file:
            yield FileListingSpool(file, source)
