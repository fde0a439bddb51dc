"""The files of an installation that a backup contains: the cache and the sealed raw partitions.

Locks, spools and pictures are not copied. Neither are raw partitions that are not sealed, because
their runs fetch them again.
"""

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import define, field, frozen

from tileferry.adapters.filesystem.backup_folder import FolderTree, iter_chunks, write_chunks
from tileferry.adapters.filesystem.files import Directory, FileCalls, translate_os_errors
from tileferry.adapters.filesystem.segments.store import lock_segments
from tileferry.application.ports.backups import CopyOrder, InstallationFile
from tileferry.application.ports.clock import Clock
from tileferry.domain.errors import BackupError, InvalidValueError

CACHE = "cache"
RAW = "raw"
_STAGING = ".restoring"
_SEALED_DEPTH = 5
"""Raw partitions are at ``<source>/<customer>/<query>/<date>/<run>``."""
_COPIED = {
    CopyOrder.BEFORE_DATABASE: (".c11/journal", ".c11/audit-outbox"),
    # The id of the cache is last: a restore moves it last as well.
    CopyOrder.AFTER_DATABASE: (".c6/segments", ".c11/fdr", ".c11/cache-id"),
}
_LEFT_OUT = (".lock", ".tmp")
_UNSEALED = (".work", ".open")


@frozen(kw_only=True)
class LocalInstallationFiles:
    """The folders ``c11.cache_root`` and ``partitions.raw_root``."""

    cache_root: Path
    raw_root: Path
    clock: Clock
    calls: FileCalls = field(factory=FileCalls)

    @contextmanager
    def keep_segments(self) -> Iterator[None]:
        """Prevent compaction of the segments during a block."""
        with lock_segments(self.cache_root, self.calls, self.clock):
            yield

    def iter_files(self, order: CopyOrder) -> Iterator[InstallationFile]:
        """Yield the files of the cache; after the database, also the sealed raw partitions."""
        for path in _COPIED[order]:
            yield from self._iter_below(self.cache_root, path, CACHE)
        if order is CopyOrder.AFTER_DATABASE:
            yield from self._iter_below(self.raw_root, "", RAW)

    @contextmanager
    def begin_restore(self) -> Iterator["_RestoredFiles"]:
        """Open a hidden folder in each of the two roots, which must otherwise be empty."""
        with ExitStack() as stack:
            trees = {
                name: FolderTree(stack.enter_context(self._open_staging(root)))
                for name, root in ((RAW, self.raw_root), (CACHE, self.cache_root))
            }
            for tree in trees.values():
                stack.callback(tree.close)
            yield _RestoredFiles(trees)

    def _iter_below(self, root: Path, path: str, name: str) -> Iterator[InstallationFile]:
        if not root.is_dir():
            return
        with ExitStack() as stack:
            here: Directory | None = stack.enter_context(Directory.open_root(root, self.calls))
            *folders, last = path.split("/") if path else [""]
            for folder in folders:
                here = None if here is None else here.find_subdirectory(folder)
                if here is not None:
                    stack.enter_context(here)
            if here is None:
                return
            prefix = "/".join([name, *folders])
            if last:
                yield from _iter_entry(here, last, prefix)
            else:
                yield from _iter_folder(here, prefix)

    @contextmanager
    def _open_staging(self, root: Path) -> Iterator[Directory]:
        with Directory.open_root(root, self.calls) as top:
            others = [name for name in top.names() if name not in {_STAGING, "lost+found"}]
            if others:
                raise BackupError(
                    path=str(root),
                    problem=f"is not empty: it has {min(others)!r}",
                    remedy="set c11.cache_root and partitions.raw_root to empty folders",
                )
            with top.subdirectory(_STAGING) as staging:
                with translate_os_errors("lock", staging.path):
                    try:
                        self.calls.flock(staging.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError as error:
                        raise BackupError(
                            path=str(root),
                            problem="another restore is writing to it",
                            remedy="wait until it has finished",
                        ) from error
                _empty_folder(staging.path)
                try:
                    yield staging
                finally:
                    _empty_folder(staging.path)
                    staging.path.rmdir()


@define(eq=False)
class _RestoredFiles:
    """Files in the hidden folders."""

    _trees: dict[str, FolderTree]

    def add(self, path: str, content: Iterable[bytes]) -> None:
        root, _, below = path.partition("/")
        if root not in self._trees or not below:
            raise InvalidValueError(
                field="path", value=path, problem=f"is below neither {CACHE} nor {RAW}"
            )
        with self._trees[root].create_file(below) as file:
            write_chunks(file, content)
            if root == RAW:
                file.seal()

    def publish(self) -> None:
        """Move the content of the hidden folders one level up, ``.c11`` last."""
        for tree in self._trees.values():
            tree.close()
        _seal_partitions(self._trees[RAW].root)
        for name in (RAW, CACHE):
            staging = self._trees[name].root
            with Directory.open_root(staging.path.parent, staging.calls) as top:
                # Reversed: ".c6" is moved before ".c11", which has the id of the cache.
                for entry in sorted(staging.names(), reverse=True):
                    with translate_os_errors("move", staging.path / entry):
                        staging.calls.rename(entry, entry, src_dir_fd=staging.fd, dst_dir_fd=top.fd)
                    top.sync()


def _iter_entry(folder: Directory, name: str, prefix: str) -> Iterator[InstallationFile]:
    """Yield a file, or the files below a folder; nothing if it no longer exists."""
    path = folder.path / name
    if path.is_dir() and not path.is_symlink():
        below = folder.find_subdirectory(name)
        if below is not None:
            with below:
                yield from _iter_folder(below, f"{prefix}/{name}")
        return
    file = folder.find_file(name)
    if file is not None:
        with file:
            yield InstallationFile(f"{prefix}/{name}", iter_chunks(file))


def _iter_folder(folder: Directory, prefix: str) -> Iterator[InstallationFile]:
    for name in sorted(folder.names()):
        is_unsealed = name.startswith(".") and name.endswith(_UNSEALED)
        if not is_unsealed and not name.endswith(_LEFT_OUT):
            yield from _iter_entry(folder, name, prefix)


def _seal_partitions(root: Directory) -> None:
    """Make the folders of raw partitions read-only, innermost first."""
    depth = len(root.path.parts)
    for folder, _, _ in os.walk(root.path, topdown=False):
        if len(Path(folder).parts) - depth >= _SEALED_DEPTH:
            with Directory.open_root(Path(folder), root.calls) as directory:
                directory.seal()


def _empty_folder(folder: Path) -> None:
    """Remove the remains of an incomplete restore; make sealed folders writable first."""
    with translate_os_errors("empty", folder):
        for below, _, _ in os.walk(folder):
            Path(below).chmod(0o700)
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
