"""Names that nobody else has."""

import os
import secrets
import socket


def new_id() -> str:
    """Return a name for one call: unique, and telling where it came from."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"
