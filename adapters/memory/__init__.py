"""Implementations that keep everything in memory: for tests, and to embed without a database."""

from tileferry.adapters.memory.clock import ManualClock

__all__ = ["ManualClock"]
