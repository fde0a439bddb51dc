"""Holding a cache: one process writes to it at a time, and there is a folder to hold."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tileferry.domain.errors import StorageError

if TYPE_CHECKING:
    from tileferry.entrypoints.container import Container


def make_folder(path: Path, *, setting: str = "c11.cache_root") -> None:
    """Make a folder, if there is none; by default it is the cache's."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StorageError(
            action="make the folder",
            path=str(path),
            problem=error.strerror or type(error).__name__,
            remedy=f"set {setting} to a folder that can be made and written",
        ) from error


@contextmanager
def locked(container: "Container") -> Iterator[None]:
    """Hold the cache for a while: nobody else writes to it."""
    make_folder(Path(container.cache_root()))
    lock = container.cache_lock()
    lock.acquire()
    try:
        yield
    finally:
        lock.release()
