"""The lock and the id of a cache, in ``<root>/.c11``.

The lock is an advisory lock of the operating system, which ends with its process. The lock file is
never removed: otherwise two processes could hold "the" lock, each on a different file. Its content
names the holder, for messages only. A file that a dead process left is not locked.
"""

import contextlib
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from attrs import define, field, frozen
from filelock import lock_descriptor, unlock_descriptor

from tileferry.adapters.filesystem.atomic_files import replace_file
from tileferry.adapters.filesystem.checksummed_lines import parse_json
from tileferry.adapters.filesystem.files import Directory, FileCalls, OpenFile, translate_os_errors
from tileferry.domain.errors import CacheLockError, Remedy, StorageError
from tileferry.domain.text import printable
from tileferry.domain.tiles.cache_binding import CacheId, parse_cache_id

_HOLDER_BYTES_MAX = 1024
_FileKey = tuple[int, int]

# The lock belongs to the process, so this table does as well. It maps device and inode to the
# process id, because a forked child inherits the table but does not hold the lock.
_held: dict[_FileKey, int] = {}


@define(kw_only=True, eq=False)
class FileCacheLock:
    """The lock in ``<root>/.c11/lock``. It is not reentrant."""

    root: Path
    calls: FileCalls = field(factory=FileCalls)
    _file: OpenFile | None = field(default=None, init=False)

    @property
    def path(self) -> Path:
        return self.root / ".c11" / "lock"

    def acquire(self) -> None:
        """Take the lock without waiting; if it is held, raise an error that names the holder."""
        with (
            Directory.open_root(self.root, self.calls) as root,
            root.subdirectory(".c11") as directory,
        ):
            file = directory.open_file("lock", create=True)
        try:
            self._lock(file)
        except BaseException:
            file.close()  # this also releases the lock, if it was acquired
            raise
        self._file = file
        _held[_file_key(file)] = os.getpid()
        _write_holder(file)

    def release(self) -> None:
        """Release the lock; do nothing if it is not held."""
        file, self._file = self._file, None
        if file is None:
            return
        ours = _held.pop(_file_key(file), None) == os.getpid()
        with file, contextlib.suppress(OSError, StorageError):
            if (
                ours
            ):  # a forked child only closes its copy; unlocking would release its parent's lock
                file.truncate(0)
                unlock_descriptor(file.fd)

    def check_held(self) -> None:
        """Raise unless this process holds the lock, through this object or another."""
        key = _stat_key(self.path)
        if key is None or _held.get(key) != os.getpid():
            raise CacheLockError(
                path=str(self.path),
                problem="this process does not hold the cache's lock",
                remedy=Remedy.HOLD_CACHE_LOCK,
            )

    def _lock(self, file: OpenFile) -> None:
        with translate_os_errors("lock", self.path):
            locked = lock_descriptor(file.fd, blocking=False)
        if not locked and _held.get(_file_key(file)) == os.getpid():
            problem = "this process holds it already"
            remedy = "release it first"
        elif not locked:
            problem = f"the cache is in use by {_read_holder(file)}"
            remedy = "wait until it ends, or stop it; removing the lock file does not help"
        elif _stat_key(self.path) != _file_key(file):
            problem = "the lock file was replaced while it was being locked"
            remedy = "check which other programs use this cache, then re-run"
        else:
            return
        raise CacheLockError(path=str(self.path), problem=problem, remedy=remedy)


def _file_key(file: OpenFile) -> _FileKey:
    found = os.fstat(file.fd)
    return found.st_dev, found.st_ino


def _stat_key(path: Path) -> _FileKey | None:
    try:
        found = path.stat(follow_symlinks=False)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _write_holder(file: OpenFile) -> None:
    """Record this process as the holder; ignore a full disk, since the lock works without it."""
    holder = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    with contextlib.suppress(StorageError):
        file.truncate(0)
        file.write_all(json.dumps(holder).encode() + b"\n")


def _read_holder(file: OpenFile) -> str:
    match parse_json(file.pread(_HOLDER_BYTES_MAX, 0)):
        case {"pid": int(pid), "host": str(host), "since": str(since)}:
            return f"process {pid} on {printable(host)}, since {printable(since)}"
        case _:
            return "an unidentified process"


_ID_FOLDER = ".c11"
_ID_FILE = "cache-id"
_ID_BYTES_MAX = 1024


@frozen(kw_only=True)
class FileCacheMark:
    """The cache's id, in ``<root>/.c11/cache-id``."""

    root: Path
    calls: FileCalls = field(factory=FileCalls)

    def read(self) -> CacheId | None:
        """Return the id, if the cache has one. Read-only."""
        with translate_os_errors("examine", self.root):
            is_there = self.root.exists()
        if not is_there:
            return None
        with Directory.open_root(self.root, self.calls) as root:
            folder = root.find_subdirectory(_ID_FOLDER)
        if folder is None:
            return None
        with folder:
            file = folder.find_file(_ID_FILE)
        if file is None:
            return None
        with file:
            written = file.pread(_ID_BYTES_MAX, 0)
        cache_id = parse_cache_id(written.decode("ascii", "replace").removesuffix("\n"))
        if cache_id is None:
            raise StorageError(
                action="read",
                path=str(file.path),
                problem="is not a valid cache id",
                remedy="restore it from a backup, or remove it and re-run",
            )
        return cache_id

    def write(self, cache_id: CacheId) -> None:
        """Write the cache's id, durably."""
        with (
            Directory.open_root(self.root, self.calls) as root,
            root.subdirectory(_ID_FOLDER) as folder,
        ):
            replace_file(folder, _ID_FILE, f"{cache_id}\n".encode("ascii"))
