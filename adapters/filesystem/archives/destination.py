"""The destination of an export, and the draft folder next to it in which the archive is written.

The folder, ``.<name>.tileferry-draft``, is private and locked during the export. A crash leaves
nothing but this folder, and the next export to the same path removes it.
"""

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import evolve, field, frozen

from tileferry.adapters.filesystem.files import (
    KEPT_NOTE,
    Directory,
    FileCalls,
    OpenFile,
    translate_os_errors,
)
from tileferry.domain.errors import ArchiveError, Remedy, StorageError

DRAFT = "draft"
_OLD = "old"
_BITS_FOR_ALL = 0o666
_EXISTS_ERRORS = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR}
_TRIES = 10
_NO_LINK_ERRORS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}


@frozen(kw_only=True)
class ArchiveWorkspace:
    """The path of an archive, and whether an existing archive may be replaced."""

    path: Path
    replace: bool
    may_replace: Callable[[Path], bool]
    """Returns whether an export may replace the existing file or folder."""
    calls: FileCalls

    @contextmanager
    def folder(self) -> Iterator[Directory]:
        """Open an empty draft folder; it is removed with its content when the block ends."""
        parent = self._get_parent()
        path = parent / f".{self.path.name}.tileferry-draft"
        with self._name_archive_in_errors(path), _lock_folder(path, self.calls) as folder:
            try:
                self._restore_replaced(folder)
                self._check_free()
                _clear_folder(folder.path)
                yield folder
            finally:
                self._restore_replaced(folder)
                with suppress(OSError):  # raised despite ignore_errors if a close fails
                    shutil.rmtree(folder.path, ignore_errors=True)

    def publish(self, folder: Directory, *, sidecar: tuple[str, Path] | None = None) -> None:
        """Move the draft to the archive's path, durably.

        A sidecar, a name in the folder with its path beside the archive, is moved after it.
        """
        self._check_free()
        draft = folder.path / DRAFT
        with translate_os_errors("publish", self.path):
            if self.replace and self.path.is_file():
                self.calls.rename(draft, self.path)
            else:
                if self.replace and self.path.is_dir():  # a folder needs two renames
                    self.calls.rename(self.path, folder.path / _OLD)
                self._move_into_place(draft)
        if sidecar is not None:
            name, path = sidecar
            with translate_os_errors("publish", path):
                self.calls.rename(folder.path / name, path)
        with Directory.open_root(self.path.parent, self.calls) as parent:
            parent.sync()

    def _move_into_place(self, draft: Path) -> None:
        """Move the draft to a free path; never replace a file that appeared in the meantime."""
        try:
            if draft.is_dir() or not self._try_link(draft):
                self.calls.rename(draft, self.path)  # rename replaces a folder only if it is empty
        except OSError as error:
            if error.errno in _EXISTS_ERRORS:
                self._check_free()
            raise

    def _try_link(self, draft: Path) -> bool:
        """Hard-link the draft to the path, which must be free; return False if links are
        unsupported.
        """
        try:
            self.calls.link(draft, self.path)
        except OSError as error:
            if error.errno in _NO_LINK_ERRORS:
                return False
            raise
        return True

    @contextmanager
    def _name_archive_in_errors(self, folder: Path) -> Iterator[None]:
        """Name the archive, not its draft, in disk errors, and say that nothing was kept."""
        try:
            yield
        except StorageError as error:
            path = Path(error.path)
            is_ours = path == self.path or path.is_relative_to(folder)
            if not is_ours or KEPT_NOTE not in error.remedy:
                raise  # unchanged: the error is about the cache, or about an obstacle
            remedy = error.remedy.replace(KEPT_NOTE, "the archive was not kept")
            raise evolve(error, path=str(self.path), remedy=remedy) from error
        except ArchiveError as error:
            if not Path(error.path).is_relative_to(folder / DRAFT):
                raise
            raise StorageError(  # what was just written cannot be read back
                action="verify",
                path=str(self.path),
                problem=error.problem,
                remedy="check the disk, then re-run; the archive was not kept",
            ) from error

    def _get_parent(self) -> Path:
        parent = self.path.parent
        if not parent.is_dir():
            raise ArchiveError(
                path=str(self.path),
                problem="the folder does not exist",
                remedy=f"create {parent}, or choose another name",
            )
        return parent

    def _restore_replaced(self, folder: Directory) -> None:
        """Undo an incomplete replacement, left by a crash between the two renames."""
        old = folder.path / _OLD
        if old.exists() and not self.path.exists():
            with translate_os_errors("restore", self.path):
                self.calls.rename(old, self.path)

    def _check_free(self) -> None:
        if not os.path.lexists(self.path):
            return
        if self.path.is_symlink() or not self.may_replace(self.path):
            raise ArchiveError(
                path=str(self.path),
                problem="exists and is not an archive of this format, so it is not replaced",
                remedy="choose another name, or remove it yourself",
            )
        if not self.replace:
            raise ArchiveError(
                path=str(self.path),
                problem="already exists",
                remedy=Remedy.ALLOW_REPLACING,
            )


@contextmanager
def _lock_folder(path: Path, calls: FileCalls) -> Iterator[Directory]:
    """Create or open the folder and lock it; fail if another user or export has it."""
    for _ in range(_TRIES):
        opened = _open_folder(path, calls)
        if opened is None:
            continue
        with opened as folder:
            with translate_os_errors("lock", path):
                try:
                    calls.flock(folder.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    break
            if os.fstat(folder.fd).st_uid != os.geteuid():
                raise ArchiveError(
                    path=str(path), problem="belongs to another user", remedy="choose another name"
                )
            if _is_at(path, folder.fd):
                yield folder
                return
            # The previous holder removed the folder after use. The path may name a new folder now,
            # so retry.
    raise ArchiveError(
        path=str(path), problem="another export is writing there", remedy="wait until it ends"
    )


def _open_folder(path: Path, calls: FileCalls) -> Directory | None:
    """Create or open the folder; return ``None`` if its previous holder has just removed it."""
    with translate_os_errors("create", path), suppress(FileExistsError):
        calls.mkdir(path, 0o700)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with translate_os_errors("open", path), suppress(FileNotFoundError):
        return Directory(fd=calls.open(path, flags), path=path, calls=calls)
    return None


def _is_at(path: Path, fd: int) -> bool:
    """Return whether the path still names the open file."""
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except FileNotFoundError:
        return False


def _clear_folder(folder: Path) -> None:
    """Remove the remains of a crashed export."""
    with translate_os_errors("empty", folder):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                Path(entry.path).unlink()


def apply_umask_mode(file: OpenFile) -> None:
    """Set the mode that the umask gives to new files, so that other tools can read the archive."""
    mask = os.umask(0o077)
    os.umask(mask)
    with translate_os_errors("set the permissions of", file.path):
        file.calls.fchmod(file.fd, _BITS_FOR_ALL & ~mask)


def is_regular_file(path: Path) -> bool:
    """Return whether the path is a regular file; links are not followed."""
    return stat.S_ISREG(path.lstat().st_mode)


@frozen(kw_only=True)
class FileArchiveTarget:
    """Base of all archive targets: the path, and whether to replace an existing archive."""

    path: Path
    replace: bool = False
    calls: FileCalls = field(factory=FileCalls)

    @property
    def place(self) -> str:
        return str(self.path)

    def _workspace(self, may_replace: Callable[[Path], bool]) -> ArchiveWorkspace:
        return ArchiveWorkspace(
            path=self.path, replace=self.replace, may_replace=may_replace, calls=self.calls
        )
