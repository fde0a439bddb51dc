"""Where an archive is to be, and the folder beside it in which it is made.

The folder, ``.<name>.tileferry-draft``, is ours alone and locked while somebody works in it. All
that a crash can leave is such a folder, and the next export to the same place removes it.
"""

import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import field, frozen

from tileferry.adapters.filesystem.files import Directory, FileCalls, translated
from tileferry.domain.errors import ArchiveError

DRAFT = "draft"
_OLD = "old"
_BITS_FOR_ALL = 0o666


@frozen(kw_only=True)
class ArchivePlace:
    """The path of an archive, and whether what is there may be replaced."""

    path: Path
    replace: bool
    may_replace: Callable[[Path], bool]
    """Tells whether what is there is something that an export may take the place of."""
    calls: FileCalls

    @contextmanager
    def folder(self) -> Iterator[Directory]:
        """Open the folder to work in; it is empty, and removed with all it has at the end."""
        parent = self._parent()
        path = parent / f".{self.path.name}.tileferry-draft"
        with _locked_folder(path, self.calls) as folder:
            try:
                self._give_back(folder)
                self._check_free()
                _empty(folder.path)
                yield folder
            finally:
                self._give_back(folder)
                shutil.rmtree(folder.path, ignore_errors=True)

    def publish(self, folder: Directory) -> None:
        """Put what is in the folder under the archive's own name, durably."""
        self._check_free()
        with translated("give its name to", self.path):
            if self.path.is_dir():  # a folder cannot be replaced at once: until then it has a name
                self.calls.rename(self.path, folder.path / _OLD)
            self.calls.rename(folder.path / DRAFT, self.path)
        with Directory.open_root(self.path.parent, self.calls) as parent:
            parent.sync()

    def _parent(self) -> Path:
        parent = self.path.parent
        if not parent.is_dir():
            raise ArchiveError(
                path=str(self.path),
                problem="lies in a folder that does not exist",
                remedy=f"make {parent}, or name another place",
            )
        return parent

    def _give_back(self, folder: Directory) -> None:
        """Undo half a replacement: who did it died between its two renames."""
        old = folder.path / _OLD
        if old.exists() and not self.path.exists():
            with translated("restore", self.path):
                self.calls.rename(old, self.path)

    def _check_free(self) -> None:
        if not os.path.lexists(self.path):
            return
        if self.path.is_symlink() or not self.may_replace(self.path):
            raise ArchiveError(
                path=str(self.path),
                problem="is there, and is no archive of this format, so it is not replaced",
                remedy="name another place, or remove it yourself",
            )
        if not self.replace:
            raise ArchiveError(
                path=str(self.path),
                problem="is there already",
                remedy="name another place, or give --replace",
            )


@contextmanager
def _locked_folder(path: Path, calls: FileCalls) -> Iterator[Directory]:
    """Make or find the folder, and hold it; it may be somebody else's, or at work."""
    with translated("create", path), suppress(FileExistsError):
        calls.mkdir(path, 0o700)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with translated("open", path):
        fd = calls.open(path, flags)
    with Directory(fd=fd, path=path, calls=calls) as folder:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchiveError(
                path=str(path), problem="another export writes there", remedy="wait for its end"
            ) from None
        if os.fstat(fd).st_uid != os.geteuid():
            raise ArchiveError(
                path=str(path), problem="belongs to somebody else", remedy="name another place"
            )
        yield folder


def _empty(folder: Path) -> None:
    """Remove what a crash left."""
    with translated("empty", folder):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                Path(entry.path).unlink()


def open_to_readers(fd: int) -> None:
    """Give a finished file the mode that new files of this user have: it is for other tools."""
    mask = os.umask(0o077)
    os.umask(mask)
    os.fchmod(fd, _BITS_FOR_ALL & ~mask)


def is_regular_file(path: Path) -> bool:
    """Tell whether a file is there, and no folder, link or device."""
    return stat.S_ISREG(path.lstat().st_mode)


@frozen(kw_only=True)
class ArchivePath:
    """What every archive to be is told: where, and whether it may take another's place."""

    path: Path
    replace: bool = False
    calls: FileCalls = field(factory=FileCalls)

    @property
    def place(self) -> str:
        """Its path."""
        return str(self.path)

    def _space(self, may_replace: Callable[[Path], bool]) -> ArchivePlace:
        return ArchivePlace(
            path=self.path, replace=self.replace, may_replace=may_replace, calls=self.calls
        )
