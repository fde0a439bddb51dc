"""Holding a cache: one process at a time, in a folder that is there, by the rows that are its."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tileferry.adapters.postgres import get_schema_status
from tileferry.domain.errors import StorageError

if TYPE_CHECKING:
    from tileferry.entrypoints.container import Container


def make_folder(path: Path, *, setting: str = "c11.cache_root") -> None:
    """Make a folder, if there is none; by default it is the cache's."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise _folder_error(path, error.strerror or type(error).__name__, setting) from error


def check_folder(path: Path, *, setting: str = "c11.cache_root") -> None:
    """Refuse a folder that could not be made or written, as ``make_folder`` would; make none."""
    problem = find_folder_problem(path)
    if problem is not None:
        raise _folder_error(path, problem, setting)


def find_folder_problem(path: Path) -> str | None:
    """Say why a folder could not be made or written, if so; nothing is tried."""
    whole = path.absolute()
    # lexists: a link that leads nowhere is in the way too, and what may not be seen is no error
    there = next(place for place in (whole, *whole.parents) if os.path.lexists(place))
    if not os.path.isdir(there):  # noqa: PTH112  # Path's own raises for what may not be seen
        return f"{there}: {os.strerror(errno.ENOTDIR)}"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there}: {os.strerror(errno.EACCES)}"
    return None


def _folder_error(path: Path, problem: str, setting: str) -> StorageError:
    return StorageError(
        action="make the folder",
        path=str(path),
        problem=problem,
        remedy=f"set {setting} to a folder that can be made and written",
    )


@contextmanager
def lock_cache(container: "Container") -> Iterator[None]:
    """Hold the cache for a while: nobody else writes to it, and the database is this cache's."""
    make_folder(Path(container.cache_root()))
    lock = container.cache_lock()
    lock.acquire()
    try:
        get_schema_status(container.database()).check()
        container.cache_identity().ensure()
        yield
    finally:
        lock.release()
