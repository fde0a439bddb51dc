"""Time: clocks, asynchronous waits, and calls off the event loop."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

Result = TypeVar("Result")


@runtime_checkable
class Clock(Protocol):
    """Tells the time and waits."""

    def now(self) -> float:
        """Return seconds since the Unix epoch; may jump when the clock is set."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back; only differences are meaningful."""
        ...

    def sleep(self, seconds: float) -> None: ...


AsyncSleep: TypeAlias = Callable[[float], Awaitable[None]]
"""Waits for a number of seconds without blocking the event loop."""


class Offload(Protocol):
    """Runs a blocking call off the event loop; ``asyncio.to_thread`` implements it."""

    def __call__(self, call: Callable[[], Result], /) -> Awaitable[Result]:
        """Return an awaitable of the call's result."""
        ...
