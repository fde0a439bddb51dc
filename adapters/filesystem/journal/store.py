"""Download journals: append-only files, which a terminal record replaces at the end.

During a download the journal is a header and one record per group of tiles (see
``checksummed_lines`` and ``encoding``); a tile takes about a dozen bytes, and nothing is rewritten.
A completed download no longer needs its list of tiles, so ``finish`` replaces the file by a short
terminal record. Opening a completed journal is therefore cheap for any number of tiles.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from logging import Logger
from pathlib import Path
from typing import NoReturn

from attrs import define, field

from tileferry.adapters.filesystem.atomic_files import replace_file
from tileferry.adapters.filesystem.checksummed_lines import (
    ChecksummedLine,
    frame_line,
    parse_json,
    read_lines,
)
from tileferry.adapters.filesystem.files import Directory, FileCalls, OpenFile
from tileferry.adapters.filesystem.journal import encoding
from tileferry.application.ports.journal import check_journal_name
from tileferry.domain.errors import StorageError
from tileferry.domain.tiles import TileId, TileSet

_WARNINGS_MAX = 10  # a badly damaged file must not flood the log
_CLOSED = "it was closed"
_RUN_AGAIN = "re-run to resume; tiles that are not in the journal are fetched again"


@define(kw_only=True, eq=False)
class FileJournalStore:
    """Journals in ``<root>/.c11/journal``."""

    root: Path
    logger: Logger
    calls: FileCalls = field(factory=FileCalls)

    def open(self, name: str) -> "FileJournal":
        """Open the journal of that name; the first ``append`` creates its file."""
        check_journal_name(name)
        directory = self._directory()
        try:
            return FileJournal.open(directory, name, logger=self.logger)
        except BaseException:
            directory.close()
            raise

    def discard(self, name: str) -> None:
        """Remove a journal's file, if it exists."""
        check_journal_name(name)
        with self._directory() as directory:
            if name in directory.names():
                directory.unlink(name)
                directory.sync()

    def discard_complete(self) -> None:
        """Remove the journals of completed requests."""
        with self._directory() as directory:
            for name in directory.names():
                file = directory.find_file(name)
                if file is None:
                    continue
                with file:
                    complete = encoding.read_terminal(file) is not None
                if complete:
                    directory.unlink(name)
            directory.sync()

    def _directory(self) -> Directory:
        with (
            Directory.open_root(self.root, self.calls) as root,
            root.subdirectory(".c11") as ours,
        ):
            return ours.subdirectory("journal")


@define(kw_only=True, eq=False)
class FileJournal:
    """The progress of one download."""

    _directory: Directory
    _name: str
    _logger: Logger
    _file: OpenFile | None = field(default=None, init=False)
    _complete: bool = field(default=False, init=False)
    _count: int = field(default=0, init=False)
    _sound_bytes: int | None = field(default=None, init=False)
    """End of the last complete record; ``None`` until the file has been read."""
    _unsynced: bool = field(default=False, init=False)
    _refusal: str = field(default="", init=False)
    """Why all further operations fail; empty while the journal is usable."""

    @classmethod
    def open(cls, directory: Directory, name: str, *, logger: Logger) -> "FileJournal":
        """Open a journal; read only its terminal record, if it has one."""
        journal = cls(directory=directory, name=name, logger=logger)
        file = directory.find_file(name)
        if file is not None:
            with file:
                terminal = encoding.read_terminal(file)
            if terminal is not None:
                journal._check_version(terminal)
                journal._complete, journal._count = True, terminal["count"]
        return journal

    @property
    def complete(self) -> bool:
        """Whether the download was completed."""
        return self._complete

    @property
    def count(self) -> int:
        """Number of journaled tiles; the first access may read the file."""
        if not self._complete and self._sound_bytes is None:
            with self._guard_state():
                self._read(None)
        return self._count

    def read_into(self, tiles: TileSet) -> None:
        """Add every journaled tile to ``tiles``; a complete journal adds none."""
        with self._guard_state():
            if not self._complete:
                self._read(tiles)

    def append(self, tiles: Sequence[TileId]) -> None:
        """Append tiles, one record per few thousand."""
        if self._complete and tiles:
            self._refuse(
                "the request is complete", remedy="a complete request has nothing left to fetch"
            )
        with self._guard_state():
            if not tiles:
                return
            file = self._open_for_append()
            for record in encoding.encode_groups(tiles):
                file.write_all(frame_line(record))
                self._unsynced = True
            self._count += len(tiles)

    def flush(self) -> None:
        """Return once all appended tiles are durable."""
        with self._guard_state():
            if self._file is not None and self._unsynced:
                self._file.fdatasync()
                self._unsynced = False

    def finish(self) -> None:
        """Replace the records by the terminal record, durably."""
        with self._guard_state():
            if self._complete:
                return
            replace_file(self._directory, self._name, encoding.encode_terminal(self.count))
            self._complete, self._unsynced = True, False
            self._close_file()

    def close(self) -> None:
        """Close the file; tiles that were not flushed may be lost."""
        if self._refusal != _CLOSED:
            self._refusal = _CLOSED
            self._close_file()
            self._directory.close()

    @contextlib.contextmanager
    def _guard_state(self) -> Iterator[None]:
        """Fail after an earlier error: the file's state is unknown, and another fsync cannot tell.

        An interrupt counts as an error, because it can leave a write incomplete.
        """
        if self._refusal:
            self._refuse(self._refusal, remedy=_RUN_AGAIN)
        try:
            yield
        except BaseException:
            self._refusal = "an earlier operation on this journal failed"
            self._close_file()
            raise

    def _read(self, tiles: TileSet | None) -> None:
        count = sound_bytes = damaged = 0
        for line in _iter_lines(self._directory.find_file(self._name)):
            found = self._parse_tiles(line)
            if found is None:
                damaged += 1
                self._warn_damaged(line, damaged)
            else:
                count += len(found)
                if tiles is not None:
                    for tile in found:
                        tiles.add(tile)
            sound_bytes = line.end
        self._count, self._sound_bytes = count, sound_bytes

    def _parse_tiles(self, line: ChecksummedLine) -> Sequence[TileId] | None:
        if line.content is None:
            return None
        value = parse_json(line.content)
        if encoding.is_header(value):
            self._check_version(value)
            return ()
        return encoding.parse_tiles(value)

    def _open_for_append(self) -> OpenFile:
        """Return the file, open at the end of its last complete record; truncate a torn tail."""
        if self._file is None:
            if self._sound_bytes is None:
                self._read(None)
            sound_bytes = self._sound_bytes or 0
            self._file = self._directory.open_file(self._name, create=True)
            self._directory.sync()
            torn_bytes = self._file.size() - sound_bytes
            if torn_bytes > 0:
                self._logger.info(
                    "journal %s: removed a torn tail of %d bytes",
                    self._name,
                    torn_bytes,
                    extra={"kind": "c11.journal.torn_tail", "journal": self._name},
                )
                self._file.truncate(sound_bytes)
            os.lseek(self._file.fd, sound_bytes, os.SEEK_SET)
            if sound_bytes == 0:
                self._file.write_all(frame_line(encoding.HEADER))
        return self._file

    def _check_version(self, header: encoding.JournalHeader) -> None:
        version = header["journal"]
        if version != encoding.VERSION:
            self._refuse(
                f"unsupported format {version}; this version reads format {encoding.VERSION}",
                remedy="use the version that wrote it, or remove it to fetch its area again",
            )

    def _warn_damaged(self, line: ChecksummedLine, damaged: int) -> None:
        if damaged > _WARNINGS_MAX:
            return
        self._logger.warning(
            "journal %s: damaged record at byte %d; its tiles are fetched again%s",
            self._name,
            line.start,
            "; further damage is not reported" if damaged == _WARNINGS_MAX else "",
            extra={
                "kind": "c11.journal.damaged_record",
                "journal": self._name,
                "offset": line.start,
                "length": line.end - line.start,
            },
        )

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _refuse(self, problem: str, *, remedy: str) -> NoReturn:
        raise StorageError(
            action="use journal",
            path=str(self._directory.path / self._name),
            problem=problem,
            remedy=remedy,
        )


def _iter_lines(file: OpenFile | None) -> Iterator[ChecksummedLine]:
    if file is not None:
        with file:
            yield from read_lines(file)
