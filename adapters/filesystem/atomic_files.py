"""Atomic replacement of small files."""

from pathlib import Path

from atomicwrites import AtomicWriter

from tileferry.adapters.filesystem.files import Directory, FileCalls, OpenFile, translate_os_errors
from tileferry.domain.errors import StorageError


def replace_file(directory: Directory, name: str, content: bytes) -> None:
    """Write ``content`` to the file ``name``, atomically and durably.

    After an error the file has either the old or the new content, never a part of one.
    """
    with _DirectoryWriter(directory, name).open() as file:
        file.write_all(content)


class _DirectoryWriter(AtomicWriter):
    """Write-then-rename as in atomicwrites, relative to an open directory.

    The library uses paths, which a symbolic link in any parent could redirect.
    """

    def __init__(self, directory: Directory, name: str) -> None:
        super().__init__(name, mode="wb", overwrite=True)
        self._directory = directory
        self._name = name
        # A fixed name, so that repeated crashes leave one file behind, not one each.
        self._temporary = f"{name}.tmp"

    def get_fileobject(self) -> OpenFile:
        if self._temporary in self._directory.names():
            self._directory.unlink(self._temporary)
        return self._directory.create_file(self._temporary)

    def sync(self, f: OpenFile) -> None:
        f.fdatasync()

    def commit(self, f: OpenFile) -> None:  # noqa: ARG002  # the library's signature
        self._directory.rename(self._temporary, self._name)
        self._directory.sync()

    def rollback(self, f: OpenFile | None) -> None:
        if f is not None:
            self._directory.unlink(self._temporary)


def write_file_atomically(path: Path, content: bytes) -> None:
    """Write a file in an existing folder; replace an older file atomically."""
    with translate_os_errors("write", path):
        is_there = path.parent.is_dir()
    if not is_there:
        raise StorageError(
            action="write",
            path=str(path),
            problem="the folder does not exist",
            remedy="create it, or choose another path",
        )
    with Directory.open_root(path.parent, FileCalls()) as directory:
        replace_file(directory, path.name, content)
