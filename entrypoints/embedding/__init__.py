"""For programs that embed tileferry: its parts, assembled in one call, with no global state."""

import logging

from tileferry.entrypoints.embedding.retry_manager import build_retry_manager
from tileferry.entrypoints.installation import Tileferry

__all__ = ["Tileferry", "build_retry_manager"]

# Who has set up no logging has asked for none: Python would print our warnings to stderr.
logging.getLogger("tileferry").addHandler(logging.NullHandler())
