"""The API for embedding programs: ``Tileferry`` and the retry core, without global state."""

import logging

from tileferry.adapters.geodata.area_files import read_area, read_corridor
from tileferry.entrypoints.embedding.retry_manager import build_retry_manager
from tileferry.entrypoints.embedding.tileferry import Tileferry
from tileferry.entrypoints.health import check_health

__all__ = ["Tileferry", "build_retry_manager", "check_health", "read_area", "read_corridor"]

# Without a handler Python would print our warnings to stderr.
logging.getLogger("tileferry").addHandler(logging.NullHandler())
