"""The durable file operations that all filesystem adapters use.

Files are opened relative to an open directory, by a plain name and without following symbolic
links, so a user with write access below the root cannot redirect us out of it. This is the only
module that translates ``OSError`` to ``StorageError``.
"""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypeVar

from attrs import field, frozen

from tileferry.domain.errors import InvalidValueError, StorageError

_ReadFile = TypeVar("_ReadFile", bound=IO[bytes] | None)
_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600
_SEALED_DIRECTORY_MODE = 0o555
_SEALED_FILE_MODE = 0o444
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a planted FIFO must fail, not block; it has no effect on regular files.
_OPEN_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_VECTOR_MAX = min(os.sysconf("SC_IOV_MAX"), 1024)

KEPT_NOTE = "confirmed data is kept"
_REMEDIES = {
    errno.ENOSPC: f"free space, then re-run; {KEPT_NOTE}",
    errno.EDQUOT: f"free space or raise the quota, then re-run; {KEPT_NOTE}",
    errno.EROFS: "the disk is mounted read-only, often after an error: check and remount it",
    errno.EACCES: "give this user access to it",
    errno.EPERM: "make the user who runs tileferry its owner",
    errno.ELOOP: "unexpected symbolic link: find out who created it, remove it, then re-run",
    errno.EIO: f"the disk is failing: check it, then re-run; {KEPT_NOTE}",
    errno.EMFILE: "too many files are open: raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine: close some programs",
    errno.ENOENT: "it was removed: check which other programs use this cache",
    errno.EEXIST: "it was created concurrently: check which other programs use this cache",
}
_REMEDY = f"check the disk and the path, then re-run; {KEPT_NOTE}"


@frozen(kw_only=True)
class FileCalls:
    """The system calls that can fail; tests replace them."""

    open: Callable[..., int] = os.open
    mkdir: Callable[..., None] = os.mkdir
    write: Callable[..., int] = os.write
    writev: Callable[..., int] = os.writev
    pread: Callable[[int, int, int], bytes] = os.pread
    fdatasync: Callable[[int], None] = os.fdatasync
    fsync: Callable[[int], None] = os.fsync
    ftruncate: Callable[[int, int], None] = os.ftruncate
    rename: Callable[..., None] = os.rename
    link: Callable[..., None] = os.link
    unlink: Callable[..., None] = os.unlink
    fchmod: Callable[[int, int], None] = os.fchmod
    flock: Callable[[int, int], None] = fcntl.flock


def storage_error(error: OSError, *, action: str, path: Path) -> StorageError:
    """Return the error for a failed system call, with a remedy."""
    return StorageError(
        action=action,
        path=str(path),
        problem=error.strerror or str(error),
        remedy=_REMEDIES.get(error.errno or 0, _REMEDY),
    )


@contextlib.contextmanager
def close_after_reading(file: _ReadFile) -> Iterator[_ReadFile]:
    """Close a file at the end; ignore errors, since it was only read."""
    try:
        yield file
    finally:
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()


@contextlib.contextmanager
def translate_os_errors(action: str, path: Path) -> Iterator[None]:
    """Raise an ``OSError`` of the block as a ``StorageError``."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, action=action, path=path) from error


@frozen(kw_only=True, eq=False)
class _OpenHandle:
    """An open file or directory; ``path`` is for messages only."""

    fd: int
    path: Path
    calls: FileCalls = field(factory=FileCalls)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor; ignore errors, since closing does not confirm any write."""
        with contextlib.suppress(OSError):
            os.close(self.fd)


@frozen(kw_only=True, eq=False)
class OpenFile(_OpenHandle):
    """An open regular file."""

    def write_all(self, content: bytes) -> None:
        """Write all bytes at the file's position, continuing after short writes."""
        rest = memoryview(content)
        with translate_os_errors("write to", self.path):
            while rest:
                with contextlib.suppress(InterruptedError):
                    rest = rest[self.calls.write(self.fd, rest) :]

    def write_vector(self, parts: Sequence[bytes | bytearray]) -> None:
        """Write all bytes of ``parts`` in few system calls."""
        rest: list[bytes | bytearray | memoryview] = [part for part in parts if part]
        rest.reverse()  # reversed, because popping from the end is cheap
        with translate_os_errors("write to", self.path):
            while rest:
                with contextlib.suppress(InterruptedError):
                    written = self.calls.writev(self.fd, list(islice(reversed(rest), _VECTOR_MAX)))
                    _drop_written(rest, written)

    def pread(self, length: int, offset: int) -> bytes:
        """Return ``length`` bytes at ``offset``; fewer only at the end of the file."""
        try:
            content = self.calls.pread(self.fd, length, offset)
            while len(content) < length:
                more = self.calls.pread(self.fd, length - len(content), offset + len(content))
                if not more:
                    break
                content += more
        except OSError as error:
            raise storage_error(error, action="read", path=self.path) from error
        return content

    def size(self) -> int:
        """Return the size in bytes."""
        with translate_os_errors("examine", self.path):
            return os.fstat(self.fd).st_size

    def rewind(self) -> None:
        """Move the file position to the beginning."""
        with translate_os_errors("rewind", self.path):
            os.lseek(self.fd, 0, os.SEEK_SET)

    def truncate(self, size: int) -> None:
        with translate_os_errors("cut", self.path):
            self.calls.ftruncate(self.fd, size)

    def fdatasync(self) -> None:
        """Return once content and size are durable. After an error the file's state is unknown."""
        with translate_os_errors("make durable", self.path):
            self.calls.fdatasync(self.fd)

    def seal(self) -> None:
        """Make the file read-only, durably."""
        with translate_os_errors("seal", self.path):
            self.calls.fchmod(self.fd, _SEALED_FILE_MODE)
            self.calls.fsync(self.fd)


def _drop_written(rest: list[bytes | bytearray | memoryview], count: int) -> None:
    while count:
        part = rest.pop()
        if count < len(part):
            rest.append(memoryview(part)[count:])
            return
        count -= len(part)


@frozen(kw_only=True, eq=False)
class Directory(_OpenHandle):
    """An open directory: the root that the operator chose, or a subdirectory of it."""

    @classmethod
    def open_root(cls, path: Path, calls: FileCalls) -> Self:
        """Open the cache's root; create it if it is missing.

        The root and its parents may be symbolic links; anything below the root may not.
        """
        with translate_os_errors("open", path):
            real = Path(os.path.realpath(path))
            existing = real
            while not existing.exists():
                existing = existing.parent
            here = cls(fd=calls.open(existing, _OPEN_DIRECTORY), path=existing, calls=calls)
        try:
            here._sync_name()
        except BaseException:
            here.close()
            raise
        for name in real.relative_to(existing).parts:
            with here as parent:
                here = parent.subdirectory(name)
        return here

    def subdirectory(self, name: str) -> Self:
        """Open a private subdirectory; create it durably if it is missing."""
        path = self._resolve_name(name)
        with translate_os_errors("create", path), contextlib.suppress(FileExistsError):
            self.calls.mkdir(name, _DIRECTORY_MODE, dir_fd=self.fd)
        with translate_os_errors("open", path):
            fd = self._open_directory(name)
        below = type(self)(fd=fd, path=path, calls=self.calls)
        try:
            with translate_os_errors("restrict access to", path):
                if stat.S_IMODE(os.fstat(fd).st_mode) != _DIRECTORY_MODE:
                    os.fchmod(fd, _DIRECTORY_MODE)
            # Sync an existing directory too: its creator may have crashed before the sync.
            below.sync()
            self.sync()
        except BaseException:
            below.close()
            raise
        return below

    def find_subdirectory(self, name: str) -> Self | None:
        """Open a subdirectory for reading, if it exists; change nothing."""
        path = self._resolve_name(name)
        with translate_os_errors("open", path):
            try:
                fd = self._open_directory(name)
            except FileNotFoundError:
                return None
        return type(self)(fd=fd, path=path, calls=self.calls)

    def seal(self) -> None:
        """Make the directory read-only, durably."""
        with translate_os_errors("seal", self.path):
            self.calls.fchmod(self.fd, _SEALED_DIRECTORY_MODE)
        self.sync()

    def create_file(self, name: str) -> OpenFile:
        """Create a file that must not exist; its name is durable after ``sync``."""
        return self._open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, action="create")

    def open_file(self, name: str, *, create: bool = False) -> OpenFile:
        """Open a file for reading and writing; with ``create``, create it if it is missing."""
        return self._open(name, os.O_RDWR | (os.O_CREAT if create else 0), action="open")

    def find_file(self, name: str) -> OpenFile | None:
        """Open a file for reading, if it exists."""
        try:
            return self._open(name, os.O_RDONLY, action="open")
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def names(self) -> list[str]:
        """Return the names in the directory, unsorted."""
        with translate_os_errors("list", self.path):
            return os.listdir(self.fd)  # noqa: PTH208  # Path does not accept a descriptor

    def rename(self, source: str, target: str) -> None:
        """Rename ``source`` to ``target``, replacing it; durable after ``sync``."""
        old, path = self._resolve_name(source), self._resolve_name(target)
        with translate_os_errors(f"rename {old.name} to", path):
            self.calls.rename(source, target, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def unlink(self, name: str) -> None:
        """Remove a file; durable after ``sync``."""
        with translate_os_errors("remove", self._resolve_name(name)):
            self.calls.unlink(name, dir_fd=self.fd)

    def sync(self) -> None:
        """Return once the directory's entries are durable."""
        with translate_os_errors("make durable", self.path):
            self.calls.fsync(self.fd)

    def _sync_name(self) -> None:
        """Make the directory's own name durable: its creator may have crashed before the sync.

        Skip mount points and parents that we may not read, since we did not create those.
        """
        with translate_os_errors("make durable", self.path), contextlib.suppress(PermissionError):
            fd = self.calls.open("..", _OPEN_DIRECTORY, dir_fd=self.fd)
            with _OpenHandle(fd=fd, path=self.path.parent):
                if os.fstat(fd).st_dev == os.fstat(self.fd).st_dev:
                    self.calls.fsync(fd)

    def _open_directory(self, name: str) -> int:
        try:
            return self.calls.open(name, _OPEN_DIRECTORY, dir_fd=self.fd)
        except NotADirectoryError as error:
            # Linux also reports this error for a symbolic link; the operator needs to know which it
            # is.
            if stat.S_ISLNK(os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error
            raise

    def _open(self, name: str, flags: int, *, action: str) -> OpenFile:
        path = self._resolve_name(name)
        with translate_os_errors(action, path):
            fd = self.calls.open(name, flags | _OPEN_FILE, _FILE_MODE, dir_fd=self.fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise StorageError(
                action=action, path=str(path), problem="is not a regular file", remedy="remove it"
            )
        return OpenFile(fd=fd, path=path, calls=self.calls)

    def _resolve_name(self, name: str) -> Path:
        if "/" in name or "\0" in name or name in {"", ".", ".."}:
            raise InvalidValueError(field="file name", value=name, problem="is not a plain name")
        return self.path / name
