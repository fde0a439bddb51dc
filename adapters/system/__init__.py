"""The machine itself: its clock."""

from tileferry.adapters.system.clock import SystemClock

__all__ = ["SystemClock"]
