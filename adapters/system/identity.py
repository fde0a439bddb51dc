"""Names that nobody else has."""

import os
import secrets
import socket
import time


def new_id() -> str:
    """Return a name for one call: unique, and telling where it came from."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"


def new_run_id() -> str:
    """Return a name for a run: unique, plain, and in the order of their making.

    What was made at about the same time stands together in the database's index.
    """
    return f"{time.time_ns() // 1_000_000:012x}-{secrets.token_hex(8)}"
