"""Time, from outside."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

Result = TypeVar("Result")


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


class Offload(Protocol):
    """Has a call that may wait made off the event loop; ``asyncio.to_thread`` is one."""

    def __call__(self, call: Callable[[], Result], /) -> Awaitable[Result]:
        """Return what will be the call's result."""
        ...
