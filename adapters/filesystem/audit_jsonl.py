"""Audit events as JSON lines in a file."""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from attrs import define, field

from tileferry.adapters.filesystem.files import Directory, FileCalls, OpenFile
from tileferry.domain.audit import AuditEvent


@define(kw_only=True, eq=False)
class JsonLinesAuditSink:
    """Appends each event's canonical JSON as a line; ``emit`` returns when the lines are durable.

    The next process terminates a line that a crash left incomplete, so the line after it is intact.
    The lines are not chained, so edits cannot be detected. Use the audit log in the database for
    verification.
    """

    path: Path
    calls: FileCalls = field(factory=FileCalls)
    name: str = field(default="jsonl", init=False)
    _file: OpenFile | None = field(default=None, init=False)
    _guard: Lock = field(factory=Lock, init=False)

    def emit(self, events: Sequence[AuditEvent]) -> None:
        """Append a group of events in one write, durably."""
        lines = b"".join(event.canonical_bytes() + b"\n" for event in events)
        with self._guard:
            file = self._file or self._open()
            try:
                file.write_all(lines)
                file.fdatasync()
            except BaseException:
                file.close()
                self._file = None  # the file's end is unknown: reopen and inspect it
                raise
            self._file = file

    def close(self) -> None:
        with self._guard:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _open(self) -> OpenFile:
        with Directory.open_root(self.path.parent, self.calls) as directory:
            file = directory.open_file(self.path.name, create=True)
            directory.sync()
        try:
            # Several processes may append; O_APPEND writes each group at the current end of the
            # file.
            fcntl.fcntl(file.fd, fcntl.F_SETFL, os.O_APPEND | fcntl.fcntl(file.fd, fcntl.F_GETFL))
            # Beside a process that is just writing, this may add a blank line, which is harmless.
            size = file.size()
            if size and file.pread(1, size - 1) != b"\n":
                file.write_all(b"\n")
        except BaseException:
            file.close()
            raise
        return file
