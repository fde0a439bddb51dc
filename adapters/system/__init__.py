"""The machine itself: its clock and its disk."""

from tileferry.adapters.system.clock import SystemClock
from tileferry.adapters.system.disk import SystemDisk

__all__ = ["SystemClock", "SystemDisk"]
