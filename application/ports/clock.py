"""Time, from outside."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """Tells the time and waits."""

    def now(self) -> float:
        """Return seconds since the Unix epoch; may jump when somebody sets the clock."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back; only differences mean anything."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


AsyncSleep: TypeAlias = Callable[[float], Awaitable[None]]
"""Waits so many seconds without holding up the event loop."""
