"""Advisory locks of the embedded server, in a private folder.

The kernel releases a lock when the last process that has its file open ends, however it ends. So
no lock is ever stale, and none needs a list of process ids.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
_POLL_S = 0.01
_POLL_S_MAX = 0.5


def open_private(path: Path, flags: int = 0) -> int:
    """Open a file that only its owner can access, creating it if missing; return the descriptor."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | flags, PRIVATE_FILE)
    give_to_folder_owner(path)
    return descriptor


def make_private_folder(path: Path) -> None:
    """Create a folder and its missing parents, all private and durable; leave existing ones."""
    if path.is_dir():
        return
    if path != path.parent:
        make_private_folder(path.parent)
    try:
        path.mkdir(mode=PRIVATE_FOLDER)
    except FileExistsError:  # another process was faster, or it is not a folder
        if not path.is_dir():
            raise
        return
    give_to_folder_owner(path)
    sync_folder(path.parent)


def give_to_folder_owner(path: Path) -> None:
    """Let the owner of a folder keep access to what root creates in it."""
    if os.geteuid() != 0:
        return
    parent, own = path.parent.stat(), path.lstat()
    # Only in a private folder: a new folder in /tmp must not belong to the owner of /tmp.
    if own.st_uid == 0 != parent.st_uid and not parent.st_mode & 0o077:
        os.chown(path, parent.st_uid, parent.st_gid, follow_symlinks=False)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Take the lock if it is free; return whether it was taken."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@define(kw_only=True)
class BoundedWait:
    """A wait with a limit; one that takes long is reported."""

    timeout_s: float
    report: Callable[[float], None] = field(default=lambda _waited_s: None)
    """Called with the seconds so far: after 2, 10 and 30, then once a minute."""
    _started_s: float = field(factory=time.monotonic, init=False)
    _notice_s: float = field(default=2.0, init=False)

    def pause(self) -> bool:
        """Wait a moment; return ``False`` if the time is up."""
        waited_s = time.monotonic() - self._started_s
        if waited_s >= self.timeout_s:
            return False
        if waited_s >= self._notice_s:
            self._notice_s = next((each for each in (10.0, 30.0) if each > waited_s), waited_s + 60)
            self.report(waited_s)
        # A server that starts logs every attempt to connect.
        time.sleep(min(_POLL_S_MAX, max(_POLL_S, waited_s / 10)))
        return True


def wait_for_lock(descriptor: int, wait: BoundedWait) -> bool:
    """Take the lock as soon as it is free; return whether it was taken in time."""
    while not try_lock(descriptor):
        if not wait.pause():
            return False
    return True


@contextmanager
def opened_lock(path: Path) -> Iterator[int]:
    """Open a lock file for a block; the lock is released at its end."""
    descriptor = open_private(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def list_holders(path: Path) -> list[int]:
    """Return the ids of the processes that took the lock, as far as the system tells."""
    try:
        inode = str(path.stat().st_ino)
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    # Such as "2: FLOCK  ADVISORY  READ 8574 fe:00:16039960 0 EOF"; a waiting one has "->".
    fields = [line.split() for line in lines if "->" not in line]
    return sorted({int(each[4]) for each in fields if each[5].rpartition(":")[2] == inode})
