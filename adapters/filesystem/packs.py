"""Packs as files: writing a draft and publishing it, and reading."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from attrs import define, field, frozen

from tileferry.adapters.filesystem.archives.destination import (
    DRAFT,
    ArchiveWorkspace,
    FileArchiveTarget,
    apply_umask_mode,
    is_regular_file,
)
from tileferry.adapters.filesystem.files import Directory, OpenFile, translate_os_errors
from tileferry.domain.errors import ArchiveError, InvalidValueError
from tileferry.domain.packs import (
    HEADER_BYTES_MAX,
    LINE_BYTES_MAX,
    PackEntry,
    PackHeader,
    PackSeal,
    build_signed_message,
    parse_pack_line,
)

_BUFFER_BYTES = 1024 * 1024


@frozen(kw_only=True)
class FilePackTarget(FileArchiveTarget):
    """A pack to create."""

    @contextmanager
    def open_draft(self, header: PackHeader) -> "Iterator[_FilePackDraft]":
        place = self._workspace(_is_pack)
        with place.folder() as folder, folder.create_file(DRAFT) as file:
            draft = _FilePackDraft(place, folder, file)
            draft.append(header.to_line())
            yield draft


def _is_pack(path: Path) -> bool:
    """Return whether a file is empty or a pack; no other file may be replaced."""
    if not is_regular_file(path) or not path.stat().st_size:
        return is_regular_file(path)
    try:
        FilePack(path).read_header()
    except ArchiveError:
        return False
    return True


@define
class _FilePackDraft:
    """A pack being written."""

    place: ArchiveWorkspace
    folder: Directory
    file: OpenFile
    _parts: list[bytes] = field(factory=list, init=False)
    _waiting: int = field(default=0, init=False)
    _digest: Any = field(factory=sha256, init=False)

    def append(self, content: bytes) -> None:
        self._parts.append(content)
        self._digest.update(content)
        self._waiting += len(content)
        if self._waiting >= _BUFFER_BYTES:
            self._write_out()

    def add(self, entry: PackEntry, content: bytes) -> None:
        """Write an entry."""
        self.append(entry.to_line())
        self.append(content)

    def seal(self, sign: Callable[[bytes], bytes]) -> "FilePack":
        """Sign the pack, and make it durable."""
        digest = self._digest.hexdigest()
        signature = sign(build_signed_message(digest)).hex()
        self.append(PackSeal(sha256=digest, signature=signature).to_line())
        self._write_out()
        apply_umask_mode(self.file)
        self.file.fdatasync()
        return FilePack(self.folder.path / DRAFT)

    def publish(self) -> None:
        """Move the pack to its path."""
        self.place.publish(self.folder)

    def _write_out(self) -> None:
        self.file.write_vector(self._parts)
        self._parts, self._waiting = [], 0


@frozen
class FilePack:
    """A pack to read."""

    path: Path
    check: Callable[[], object] = field(default=lambda: None, kw_only=True)
    """Called for each entry; raises ``KeyboardInterrupt`` to cancel."""
    _seen: list[tuple[int, ...]] = field(factory=list, init=False, eq=False)
    """Identifies the file at the first read: the file read later must be the verified one."""

    @property
    def place(self) -> str:
        return str(self.path)

    def read_header(self) -> PackHeader:
        with self._open() as file:
            return PackHeader.parse_line(_read_line(file, HEADER_BYTES_MAX))

    def iter_entries(self) -> Iterator[tuple[PackEntry, bytes]]:
        """Yield each entry with its content; the seal must follow, but is not verified."""
        for item, content, _ in self._iter_items():
            if isinstance(item, PackEntry):
                yield item, content

    def verify(self, is_signed_by: Callable[[str, bytes, bytes], bool]) -> str:
        """Read every byte; return the sha256 of the pack, or raise if any byte is wrong."""
        key = self.read_header().public_key
        for item, content, digest in self._iter_items():
            if isinstance(item, PackEntry):
                expected = item.facts.sha256 if item.length else None
                if expected is not None and sha256(content).hexdigest() != expected:
                    raise self._error(f"the content of {item.tile_id} is damaged")
                continue
            if item.sha256 != digest:
                raise self._error("its content is damaged: sha256 mismatch")
            message, signature = build_signed_message(digest), bytes.fromhex(item.signature)
            if not self._call(lambda: is_signed_by(key, message, signature)):  # noqa: B023
                raise self._error("its signature is wrong")
            return digest
        raise AssertionError("the seal is the last item")

    def _iter_items(self) -> Iterator[tuple[PackEntry | PackSeal, bytes, str]]:
        """Yield the entries and then the seal, with the digest of everything before it."""
        with self._open() as file:
            digest = sha256(_read_line(file, HEADER_BYTES_MAX))
            while True:
                self.check()
                line = _read_line(file, LINE_BYTES_MAX)
                item = parse_pack_line(line)
                if isinstance(item, PackSeal):
                    if file.read(1):
                        raise self._error("has data after its end")
                    yield item, b"", digest.hexdigest()
                    return
                content = file.read(item.length)
                if len(content) != item.length:
                    raise self._error("is incomplete")
                digest.update(line)
                digest.update(content)
                yield item, content, ""

    def _call(self, ask: Callable[[], bool]) -> bool:
        try:
            return ask()
        except InvalidValueError as error:
            raise ArchiveError(
                path=self.place, problem=error.summary, remedy=error.remedy
            ) from error

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        if not self.path.is_file():
            raise ArchiveError(path=self.place, problem="is not a file", remedy="check the path")
        with translate_os_errors("read", self.path):
            file = self.path.open("rb", buffering=_BUFFER_BYTES)
        with file:
            found = os.fstat(file.fileno())
            version = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if not self._seen:
                self._seen.append(version)
            if version not in self._seen:
                raise self._error("was replaced or changed while it was read")
            try:
                yield file
            except InvalidValueError as error:
                raise self._error(str(error)) from error
            except OSError as error:
                with translate_os_errors("read", self.path):
                    raise error from None

    def _error(self, problem: str) -> ArchiveError:
        return ArchiveError(
            path=self.place, problem=problem, remedy="copy the pack again, or create it again"
        )


def _read_line(file: IO[bytes], bytes_max: int) -> bytes:
    line = file.readline(bytes_max + 1)
    if not line.endswith(b"\n"):
        raise InvalidValueError(
            field="pack", value=f"{len(line)} bytes", problem="ends within a line, or is not a pack"
        )
    return line


@frozen
class LocalPackFolder:
    """A folder for packs on their way to another machine."""

    path: Path

    def build_target(self, name: str) -> FilePackTarget:
        return FilePackTarget(path=self.path / name)

    def open_pack(self, name: str) -> FilePack:
        return FilePack(self.path / name)
