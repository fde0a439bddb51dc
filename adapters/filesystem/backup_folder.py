"""Backups in folders: each is a hidden draft until it is complete, and is then renamed."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any

from attrs import define, field, frozen

from tileferry.adapters.filesystem.archives.destination import DRAFT, ArchiveWorkspace
from tileferry.adapters.filesystem.atomic_files import replace_file
from tileferry.adapters.filesystem.files import Directory, FileCalls, OpenFile
from tileferry.domain.backups import (
    LISTING,
    MANIFEST,
    MANIFEST_BYTES_MAX,
    BackupFile,
    BackupManifest,
    check_backup_path,
)
from tileferry.domain.errors import ArchiveError, BackupError, InvalidValueError, StorageError

_CHUNK_BYTES = 1024 * 1024
_REMEDY = "choose another name, or remove the folder"


def iter_chunks(file: OpenFile) -> Iterator[bytes]:
    """Yield the bytes of a file from its beginning to its current end."""
    offset = 0
    while chunk := file.pread(_CHUNK_BYTES, offset):
        offset += len(chunk)
        yield chunk


def write_chunks(file: OpenFile, content: Iterable[bytes]) -> tuple[int, str]:
    """Write all bytes durably; return their number and their sha256."""
    hashed, size_bytes = sha256(), 0
    for chunk in content:
        file.write_all(chunk)
        hashed.update(chunk)
        size_bytes += len(chunk)
    file.fdatasync()
    return size_bytes, hashed.hexdigest()


@define(eq=False)
class FolderTree:
    """Creates files below a folder; the folders of the last file stay open for the next one."""

    root: Directory
    _parts: tuple[str, ...] = field(default=(), init=False)
    _open: list[Directory] = field(factory=list, init=False)

    def create_file(self, path: str) -> OpenFile:
        """Create a file and the folders above it; its name is durable after ``close``."""
        check_backup_path(path)
        *folders, name = path.split("/")
        return self._enter(tuple(folders)).create_file(name)

    def close(self) -> None:
        self._enter(())

    def _enter(self, parts: tuple[str, ...]) -> Directory:
        common = 0
        for mine, wanted in zip(self._parts, parts, strict=False):
            if mine != wanted:
                break
            common += 1
        while len(self._open) > common:
            with self._open.pop() as left:
                left.sync()
        for name in parts[common:]:
            self._open.append(self._get_current().subdirectory(name))
        self._parts = parts
        return self._get_current()

    def _get_current(self) -> Directory:
        return self._open[-1] if self._open else self.root


@define(eq=False)
class _Content:
    """The files below the folder of a backup."""

    _root: Directory

    def iter_listing(self) -> Iterator[bytes]:
        """Yield the lines of the list of files."""
        pending = b""
        for chunk in self.iter_content(LISTING):
            *lines, pending = (pending + chunk).split(b"\n")
            yield from (line + b"\n" for line in lines)
        if pending:
            yield pending

    def iter_content(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of a file."""
        check_backup_path(path)
        *folders, name = path.split("/")
        with ExitStack() as stack:
            here: Directory | None = self._root
            for folder in folders:
                here = None if here is None else here.find_subdirectory(folder)
                if here is not None:
                    stack.enter_context(here)
            file = None if here is None else here.find_file(name)
            if file is None:
                raise StorageError(
                    action="read",
                    path=str(self._root.path / path),
                    problem="is missing",
                    remedy="use another backup",
                )
            yield from iter_chunks(stack.enter_context(file))

    def count_files(self) -> int:
        """Return how many files there are, other than the manifest and the list of files."""
        return sum(
            path.is_symlink() or not path.is_dir()
            for path in self._root.path.rglob("*")
            if path.parent != self._root.path or path.name not in {LISTING, MANIFEST}
        )


@define(eq=False)
class FolderBackupWriter(_Content):
    """A backup in its draft folder."""

    _workspace: ArchiveWorkspace
    _folder: Directory
    _tree: FolderTree
    _listing: OpenFile
    _hashed: Any = field(factory=sha256, init=False)

    def add(self, path: str, content: Iterable[bytes]) -> BackupFile:
        """Write a file, and its line in the list."""
        with self._tree.create_file(path) as file:
            size_bytes, digest = write_chunks(file, content)
        written = BackupFile(path=path, size_bytes=size_bytes, sha256=digest)
        line = written.format_line()
        self._listing.write_all(line)
        self._hashed.update(line)
        return written

    def finish_listing(self) -> str:
        """Make all files and folders durable, and return the checksum of the list."""
        self._listing.fdatasync()
        self._tree.close()
        self._root.sync()
        return str(self._hashed.hexdigest())

    def publish(self, manifest: BackupManifest) -> None:
        """Write the manifest, and rename the draft to its place."""
        replace_file(self._root, MANIFEST, manifest.format())
        self._folder.sync()
        self._workspace.publish(self._folder)


@define(eq=False)
class FolderBackupReader(_Content):
    """A complete backup."""

    manifest: BackupManifest = field(kw_only=True)


@frozen
class FolderBackups:
    """Backups as folders of the file system."""

    calls: FileCalls = field(factory=FileCalls)

    @contextmanager
    def create(self, place: PurePath) -> Iterator[FolderBackupWriter]:
        """Begin a backup beside ``place``; remove the draft of a killed attempt."""
        workspace = ArchiveWorkspace(
            path=Path(place), replace=False, may_replace=lambda _: True, calls=self.calls
        )
        try:
            with (
                workspace.folder() as folder,
                folder.subdirectory(DRAFT) as root,
                root.create_file(LISTING) as listing,
                closing(FolderTree(root)) as tree,
            ):
                yield FolderBackupWriter(root, workspace, folder, tree, listing)
        except ArchiveError as error:
            remedy = _REMEDY if error.problem == "already exists" else error.remedy
            raise BackupError(path=error.path, problem=error.problem, remedy=remedy) from error

    @contextmanager
    def open(self, place: PurePath) -> Iterator[FolderBackupReader]:
        """Open a backup, and read its manifest."""
        path = Path(place)
        if not path.is_dir():
            raise BackupError(
                path=str(place),
                problem="is not a folder",
                remedy="check the path",
            )
        with Directory.open_root(path, self.calls) as root:
            file = root.find_file(MANIFEST)
            if file is None:
                raise BackupError(
                    path=str(place),
                    problem=f"has no {MANIFEST}, so it is not a complete backup",
                    remedy="use another backup",
                )
            with file:
                content = file.pread(MANIFEST_BYTES_MAX + 1, 0)
            try:
                manifest = BackupManifest.parse(content)
            except InvalidValueError as error:
                raise BackupError(
                    path=str(place),
                    problem=f"{MANIFEST} is not valid: {error.field} {error.problem}",
                    remedy=error.remedy or "use another backup",
                ) from error
            yield FolderBackupReader(root, manifest=manifest)
