"""Where an archive is to be, and the folder beside it in which it is made.

The folder, ``.<name>.tileferry-draft``, is ours alone and locked while somebody works in it. All
that a crash can leave is such a folder, and the next export to the same place removes it.
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

from tileferry.adapters.filesystem.files import KEPT_NOTE, Directory, FileCalls, translate_os_errors
from tileferry.domain.errors import ArchiveError, Remedy, StorageError

DRAFT = "draft"
_OLD = "old"
_BITS_FOR_ALL = 0o666
_EXISTS_ERRORS = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR}
_TRIES = 10
_NO_LINK_ERRORS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}


@frozen(kw_only=True)
class ArchiveWorkspace:
    """The path of an archive, and whether what is there may be replaced."""

    path: Path
    replace: bool
    may_replace: Callable[[Path], bool]
    """Tells whether what is there is something that an export may take the place of."""
    calls: FileCalls

    @contextmanager
    def folder(self) -> Iterator[Directory]:
        """Open the folder to work in; it is empty, and removed with all it has at the end."""
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
                shutil.rmtree(folder.path, ignore_errors=True)

    def publish(self, folder: Directory) -> None:
        """Put what is in the folder under the archive's own name, durably."""
        self._check_free()
        draft = folder.path / DRAFT
        with translate_os_errors("give its name to", self.path):
            if self.replace and self.path.is_file():
                self.calls.rename(draft, self.path)
            else:
                if self.replace and self.path.is_dir():  # not at once: until then it has a name
                    self.calls.rename(self.path, folder.path / _OLD)
                self._move_into_place(draft)
        with Directory.open_root(self.path.parent, self.calls) as parent:
            parent.sync()

    def _move_into_place(self, draft: Path) -> None:
        """Name it where nothing is; what somebody else put there meanwhile stays."""
        try:
            if draft.is_dir() or not self._try_link(draft):
                self.calls.rename(draft, self.path)  # a folder replaces nothing but an empty one
        except OSError as error:
            if error.errno in _EXISTS_ERRORS:
                self._check_free()
            raise

    def _try_link(self, draft: Path) -> bool:
        """Give a file a second name, which must be free; not all filesystems can."""
        try:
            self.calls.link(draft, self.path)
        except OSError as error:
            if error.errno in _NO_LINK_ERRORS:
                return False
            raise
        return True

    @contextmanager
    def _name_archive_in_errors(self, folder: Path) -> Iterator[None]:
        """Name the archive where the disk fails its draft, of which nothing is kept."""
        try:
            yield
        except StorageError as error:
            path = Path(error.path)
            is_ours = path == self.path or path.is_relative_to(folder)
            if not is_ours or KEPT_NOTE not in error.remedy:
                raise  # as it is: of the cache, or of something that is in the way
            remedy = error.remedy.replace(KEPT_NOTE, "the archive was not kept")
            raise evolve(error, path=str(self.path), remedy=remedy) from error

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
        """Undo half a replacement: who did it died between its two renames."""
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
    """Make or find the folder, and hold it; it may be somebody else's, or at work."""
    for _ in range(_TRIES):
        opened = _open_folder(path, calls)
        if opened is None:
            continue
        with opened as folder:
            try:
                fcntl.flock(folder.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                break
            if os.fstat(folder.fd).st_uid != os.geteuid():
                raise ArchiveError(
                    path=str(path), problem="belongs to another user", remedy="choose another name"
                )
            if _is_at(path, folder.fd):
                yield folder
                return
            # Who held it before removed it at the end; the path may have another by now.
    raise ArchiveError(
        path=str(path), problem="another export writes there", remedy="wait for its end"
    )


def _open_folder(path: Path, calls: FileCalls) -> Directory | None:
    """Make or find the folder; ``None`` if who worked there has just removed it."""
    with translate_os_errors("create", path), suppress(FileExistsError):
        calls.mkdir(path, 0o700)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with translate_os_errors("open", path), suppress(FileNotFoundError):
        return Directory(fd=calls.open(path, flags), path=path, calls=calls)
    return None


def _is_at(path: Path, fd: int) -> bool:
    """Tell whether what is open is still what the path leads to."""
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except FileNotFoundError:
        return False


def _clear_folder(folder: Path) -> None:
    """Remove what a crash left."""
    with translate_os_errors("empty", folder):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                Path(entry.path).unlink()


def apply_umask_mode(fd: int) -> None:
    """Give a finished file the mode that new files of this user have: it is for other tools."""
    mask = os.umask(0o077)
    os.umask(mask)
    os.fchmod(fd, _BITS_FOR_ALL & ~mask)


def is_regular_file(path: Path) -> bool:
    """Tell whether a file is there, and no folder, link or device."""
    return stat.S_ISREG(path.lstat().st_mode)


@frozen(kw_only=True)
class FileArchiveTarget:
    """What every archive to be is told: where, and whether it may take another's place."""

    path: Path
    replace: bool = False
    calls: FileCalls = field(factory=FileCalls)

    @property
    def place(self) -> str:
        """Its path."""
        return str(self.path)

    def _workspace(self, may_replace: Callable[[Path], bool]) -> ArchiveWorkspace:
        return ArchiveWorkspace(
            path=self.path, replace=self.replace, may_replace=may_replace, calls=self.calls
        )
