"""The host: its disk space, and unique ids that name it."""

import os
import re
import secrets
import shutil
import socket
import time
from pathlib import Path

from attrs import frozen

from tileferry.domain.errors import StorageError
from tileferry.domain.text import printable
from tileferry.domain.tiles.cache_binding import CacheId


@frozen
class SystemDisk:
    """The file system that contains ``folder``."""

    folder: Path

    def free_bytes(self) -> int:
        """Return the space this user can still write."""
        return self._usage().free

    def total_bytes(self) -> int:
        return self._usage().total

    def _usage(self) -> "shutil._ntuple_diskusage":
        try:
            return shutil.disk_usage(self.folder)
        except OSError as error:
            raise StorageError(
                action="read the disk usage of",
                path=str(self.folder),
                problem=error.strerror or str(error),
                remedy="check that the folder exists and can be read",
            ) from error


_PLACE_CHARS_MAX = 4096
_HOST_CHARS_MAX = 50


def new_id() -> str:
    """Return a unique id for one call, with the host name and process id."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"


def name_process() -> str:
    """Return the host name and process id, as the name of a worker."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:_HOST_CHARS_MAX]
    return f"{host}-{os.getpid()}"


def new_cache_id() -> CacheId:
    """Return a unique id for a cache, independent of its location."""
    return CacheId(secrets.token_hex(16))


def describe_location(path: Path) -> str:
    """Return a path with the host name, for readers on other machines."""
    return printable(f"{socket.gethostname()}:{path.absolute()}", limit=_PLACE_CHARS_MAX)


def new_run_id() -> str:
    """Return a unique run id that sorts by creation time.

    Runs created at about the same time are adjacent in the database's index.
    """
    return f"{time.time_ns() // 1_000_000:012x}-{secrets.token_hex(8)}"
