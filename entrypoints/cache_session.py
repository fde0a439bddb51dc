"""A session on a cache: its folder exists, it is locked, and the database belongs to it."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from tileferry.domain.errors import CacheLockError, StorageError
from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):
    from tileferry.adapters.filesystem import FileCacheLock
    from tileferry.adapters.postgres import Database, get_schema_status
    from tileferry.application.cache.identity import CacheIdentity
    from tileferry.application.ports import Clock

_POLL_S = 0.5


def make_folder(path: Path, *, setting: str = "c11.cache_root") -> None:
    """Create a folder unless it exists; ``setting`` is named in the error."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise _folder_error(path, error.strerror or type(error).__name__, setting) from error


def check_folder(path: Path, *, setting: str = "c11.cache_root") -> None:
    """Raise what ``make_folder`` would raise, without creating anything."""
    problem = find_folder_problem(path)
    if problem is not None:
        raise _folder_error(path, problem, setting)


def find_folder_problem(path: Path) -> str | None:
    """Return why a folder cannot be created or written, or ``None``; nothing is written."""
    whole = path.absolute()
    # lexists: a dangling link blocks the path as well
    there = next(place for place in (whole, *whole.parents) if os.path.lexists(place))
    if not os.path.isdir(there):  # noqa: PTH112  # Path.is_dir raises without permission
        return f"{there}: {os.strerror(errno.ENOTDIR)}"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there}: {os.strerror(errno.EACCES)}"
    return None


def _folder_error(path: Path, problem: str, setting: str) -> StorageError:
    return StorageError(
        action="create the folder",
        path=str(path),
        problem=problem,
        remedy=f"set {setting} to a folder that can be created and written",
    )


@frozen(kw_only=True)
class CacheSession:
    """Gives one process at a time the use of a cache."""

    root: Path
    lock: FileCacheLock
    database: Callable[[], Database]
    identity: Callable[[], CacheIdentity]
    """Both are called after the lock is held: a cache in use is reported first."""
    clock: Clock

    def check(self) -> None:
        """Check what ``hold`` checks, without the lock; for read-only use."""
        make_folder(self.root)
        get_schema_status(self.database()).check()
        self.identity().check()

    @contextmanager
    def hold(
        self, *, wait_s: float = 0.0, on_wait: Callable[[CacheLockError], object] = lambda _: None
    ) -> Iterator[None]:
        """Lock the cache, and check that the schema is current and the rows are of this cache.

        While another process holds it, wait for up to ``wait_s``; ``on_wait`` is called when the
        wait begins, and whenever the holder changes.
        """
        make_folder(self.root)
        self._acquire(wait_s, on_wait)
        try:
            self.database().read_settings().check_writable()
            get_schema_status(self.database()).check()
            self.identity().ensure()
            yield
        finally:
            self.lock.release()

    def _acquire(self, wait_s: float, on_wait: Callable[[CacheLockError], object]) -> None:
        deadline_s = self.clock.monotonic() + wait_s
        told = ""
        while True:
            try:
                self.lock.acquire()
            except CacheLockError as error:
                left_s = deadline_s - self.clock.monotonic()
                if left_s <= 0:
                    raise
                if error.problem != told:
                    on_wait(error)
                    told = error.problem
                self.clock.sleep(min(_POLL_S, left_s))
            else:
                return
