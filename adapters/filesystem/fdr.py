"""The flight data recorder: a ring of numbered files, of which the oldest is removed first.

Each record is a checksummed line (see ``checksummed_lines``), specified in
``_docs/02_document/contracts/shared_fdr_client/fdr_record_schema.md``.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock

from attrs import define, evolve, field

from tileferry.adapters.filesystem.checksummed_lines import frame_line, parse_json, read_lines
from tileferry.adapters.filesystem.files import Directory, FileCalls, OpenFile
from tileferry.application.ports import Clock
from tileferry.application.ports.fdr import PAYLOAD_BYTES_MAX, FdrRecord
from tileferry.domain.canonical import JsonValue, canonical_json
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import integer

VERSION = 1
_ENVELOPE_BYTES_MAX = 1024  # including the frame; kind and numbers need far less
_FILE_NAME = re.compile(r"fdr-([0-9]{10})\.log", re.ASCII)


@define(kw_only=True, eq=False)
class _Tail:
    """The newest file, open at the end of its last complete record."""

    directory: Directory
    file: OpenFile
    number: int
    size: int
    sequence: int

    def close(self) -> None:
        self.file.close()
        self.directory.close()


@define(kw_only=True, eq=False)
class FileFdrClient:
    """Records in ``<root>/.c11/fdr``: at most ``files_max`` files of ``file_bytes_max`` each."""

    root: Path
    clock: Clock
    files_max: int = field(default=8, validator=integer(2))
    file_bytes_max: int = field(
        default=1024 * 1024, validator=integer(PAYLOAD_BYTES_MAX + _ENVELOPE_BYTES_MAX)
    )
    calls: FileCalls = field(factory=FileCalls)
    _tail: _Tail | None = field(default=None, init=False)
    _guard: Lock = field(factory=Lock, init=False)

    def record(self, kind: str, payload: Mapping[str, JsonValue], *, durable: bool = False) -> None:
        """Record an event; with ``durable``, return once it is durable.

        After a disk error the event may or may not be recorded. The file is closed and reopened for
        the next event, because a descriptor that failed once is not reliable.
        """
        with self._guard:
            draft = FdrRecord(
                sequence=1, recorded_at_s=self.clock.now(), kind=kind, payload=payload
            )
            try:
                self._write(draft, durable=durable)
            except BaseException:
                self._release_tail()
                raise

    def records(self) -> Iterator[FdrRecord]:
        """Yield every undamaged record, oldest first. Read-only."""
        with self._open_directory() as directory:
            for number in _list_numbers(directory):
                for _, record in _read_file(directory, number):
                    if record is not None:
                        yield record

    def close(self) -> None:
        """Close the file; the next record opens it again."""
        with self._guard:
            self._release_tail()

    def _write(self, draft: FdrRecord, *, durable: bool) -> None:
        if self._tail is None:
            self._tail = self._open_tail()
        tail = self._tail
        line = _encode_record(evolve(draft, sequence=tail.sequence + 1))
        if tail.size and tail.size + len(line) > self.file_bytes_max:
            self._roll_file(tail)
        tail.file.write_all(line)
        tail.size += len(line)
        tail.sequence += 1
        if durable:
            tail.file.fdatasync()

    def _roll_file(self, tail: _Tail) -> None:
        """Start a new file."""
        # Remove the oldest file first: on a full disk the new file needs its space.
        for number in _list_numbers(tail.directory)[: 1 - self.files_max]:
            tail.directory.unlink(_file_name(number))
        file = tail.directory.create_file(_file_name(tail.number + 1))
        tail.file.close()
        tail.file, tail.number, tail.size = file, tail.number + 1, 0
        tail.directory.sync()

    def _open_tail(self) -> _Tail:
        """Open the newest file, and truncate an incomplete record."""
        directory = self._open_directory()
        with contextlib.ExitStack() as undo:
            undo.callback(directory.close)
            numbers = _list_numbers(directory) or [1]
            file = directory.open_file(_file_name(numbers[-1]), create=True)
            undo.callback(file.close)
            directory.sync()
            size = max((end for end, _ in _read_file(directory, numbers[-1])), default=0)
            if file.size() > size:
                file.truncate(size)
            os.lseek(file.fd, size, os.SEEK_SET)
            tail = _Tail(
                directory=directory,
                file=file,
                number=numbers[-1],
                size=size,
                sequence=_last_sequence(directory, numbers),
            )
            undo.pop_all()
        return tail

    def _open_directory(self) -> Directory:
        with (
            Directory.open_root(self.root, self.calls) as root,
            root.subdirectory(".c11") as ours,
        ):
            return ours.subdirectory("fdr")

    def _release_tail(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None


def _file_name(number: int) -> str:
    return f"fdr-{number:010}.log"


def _list_numbers(directory: Directory) -> list[int]:
    """Return the numbers of the files, oldest first."""
    matches = (_FILE_NAME.fullmatch(name) for name in directory.names())
    return sorted(int(match[1]) for match in matches if match)


def _last_sequence(directory: Directory, numbers: list[int]) -> int:
    """Return the sequence number of the newest record; damaged records count as well."""
    damaged = 0
    for number in reversed(numbers):
        found, damaged_behind = 0, 0
        for _, record in _read_file(directory, number):
            found = found if record is None else record.sequence
            damaged_behind = damaged_behind + 1 if record is None else 0
        damaged += damaged_behind
        if found:
            return found + damaged
    return damaged


def _read_file(directory: Directory, number: int) -> Iterator[tuple[int, FdrRecord | None]]:
    """Yield the end offset of each complete record, and the record, ``None`` if damaged."""
    file = directory.find_file(_file_name(number))
    if file is None:  # removed from the ring since it was listed
        return
    with file:
        for line in read_lines(file):
            yield (
                line.end,
                None if line.content is None else _parse_record(parse_json(line.content)),
            )


def _encode_record(record: FdrRecord) -> bytes:
    envelope: Mapping[str, JsonValue] = {
        "v": VERSION,
        "sequence": record.sequence,
        "recorded_at_s": record.recorded_at_s,
        "kind": record.kind,
        "payload": record.payload,
    }
    return frame_line(canonical_json(envelope, field="FdrRecord"))


def _parse_record(value: object) -> FdrRecord | None:
    """Return the record; ``None`` if it is invalid or has an unknown version."""
    match value:
        case {
            "v": 1,
            "sequence": int(sequence),
            "recorded_at_s": int(moment) | float(moment),
            "kind": str(kind),
            "payload": dict(payload),
        }:
            try:
                return FdrRecord(
                    sequence=sequence, recorded_at_s=moment, kind=kind, payload=payload
                )
            except InvalidValueError:
                return None
        case _:
            return None
