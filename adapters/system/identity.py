"""Names that nobody else has."""

import os
import secrets
import socket
import time
from pathlib import Path

from tileferry.domain.text import printable
from tileferry.domain.tiles.cache_binding import CacheId

_PLACE_CHARS_MAX = 4096


def new_id() -> str:
    """Return a name for one call: unique, and telling where it came from."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"


def new_cache_id() -> CacheId:
    """Return a name for a cache: unique, and the same wherever it is moved."""
    return CacheId(secrets.token_hex(16))


def describe_location(path: Path) -> str:
    """Say where something is, for people on other machines too."""
    return printable(f"{socket.gethostname()}:{path.absolute()}", limit=_PLACE_CHARS_MAX)


def new_run_id() -> str:
    """Return a name for a run: unique, plain, and in the order of their making.

    What was made at about the same time stands together in the database's index.
    """
    return f"{time.time_ns() // 1_000_000:012x}-{secrets.token_hex(8)}"
