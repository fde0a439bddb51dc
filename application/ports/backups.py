"""Backups: where they are kept, the files of an installation, and copies of its database."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from enum import Enum, auto
from pathlib import PurePath
from typing import Protocol

from attrs import frozen

from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):  # for annotations
    from tileferry.domain.backups import BackupFile, BackupManifest, DatabaseFacts


class BackupContent(Protocol):
    """The files of a backup, complete or not."""

    def iter_listing(self) -> Iterator[bytes]:
        """Yield the lines of the list of files."""
        ...

    def iter_content(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of a file; raise ``StorageError`` if it cannot be read."""
        ...

    def count_files(self) -> int:
        """Return how many files there are, other than the manifest and the list of files."""
        ...


class BackupWriter(BackupContent, Protocol):
    """A backup that is being written; it is not visible before ``publish``."""

    def add(self, path: str, content: Iterable[bytes]) -> BackupFile:
        """Write a file durably, list it, and return its size and checksum."""
        ...

    def finish_listing(self) -> str:
        """Make the list of files durable, and return its checksum."""
        ...

    def publish(self, manifest: BackupManifest) -> None:
        """Write the manifest durably, and give the backup its final name."""
        ...


class BackupReader(BackupContent, Protocol):
    """A complete backup."""

    @property
    def manifest(self) -> BackupManifest: ...


class BackupStore(Protocol):
    """Where backups are stored."""

    def create(self, place: PurePath) -> AbstractContextManager[BackupWriter]:
        """Begin a backup at an unused place; leave nothing there if it fails."""
        ...

    def open(self, place: PurePath) -> AbstractContextManager[BackupReader]:
        """Open a complete backup; raise ``BackupError`` if there is none."""
        ...


class CopyOrder(Enum):
    """Whether files are copied before or after the snapshot of the database.

    A journal must not name a tile that has no row, so it comes first. A row must not name bytes,
    a record or a raw partition that is missing, so these come last.
    """

    BEFORE_DATABASE = auto()
    AFTER_DATABASE = auto()


@frozen
class InstallationFile:
    """A file of an installation, open for reading."""

    path: str
    content: Iterable[bytes]


class RestoredFiles(Protocol):
    """The files of an installation that is being restored; no command can use them yet."""

    def add(self, path: str, content: Iterable[bytes]) -> None:
        """Write a file durably."""
        ...

    def publish(self) -> None:
        """Move all files to their places, the id of the cache last."""
        ...


class InstallationFiles(Protocol):
    """The cache and the raw partitions."""

    def keep_segments(self) -> AbstractContextManager[None]:
        """Prevent the removal of segments during a block; tiles may be added."""
        ...

    def iter_files(self, order: CopyOrder) -> Iterator[InstallationFile]:
        """Yield the files to copy; one that is removed in the meantime is left out."""
        ...

    def begin_restore(self) -> AbstractContextManager[RestoredFiles]:
        """Begin to restore files; raise ``BackupError`` unless their places are empty."""
        ...


class DatabaseSnapshot(Protocol):
    """A consistent view of the database at one moment."""

    @property
    def facts(self) -> DatabaseFacts: ...

    def iter_dump(self) -> Iterator[bytes]:
        """Yield a dump that ``DatabaseCopies.load`` reads."""
        ...


class DatabaseCopies(Protocol):
    """Copies a database while it is used, and loads a copy into an empty one."""

    def hold_removals(self) -> AbstractContextManager[None]:
        """Prevent the removal of tiles during a block."""
        ...

    def open_snapshot(self) -> AbstractContextManager[DatabaseSnapshot]:
        """Take a snapshot of the database, and keep it for the block."""
        ...

    def check_loadable(self, facts: DatabaseFacts) -> None:
        """Raise unless the database is empty, and this version knows the schema of the copy."""
        ...

    def load(self, dump: Iterable[bytes]) -> None:
        """Load a dump, all or nothing, and upgrade its schema if it is older."""
        ...
