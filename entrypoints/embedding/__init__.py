"""For programs that embed tileferry: its parts, assembled in one call, with no global state."""

from tileferry.entrypoints.embedding.ferry import Tileferry
from tileferry.entrypoints.embedding.retries import build_retry_manager

__all__ = ["Tileferry", "build_retry_manager"]
