"""Work that goes on beside the caller's own."""

from collections.abc import Callable
from typing import Protocol


class Task(Protocol):
    """Work that was handed over; ``concurrent.futures.Future`` is one."""

    def done(self) -> bool:
        """Tell whether the work has ended, well or not."""
        ...

    def exception(self) -> BaseException | None:
        """Wait for the work to end, and return the error that ended it."""
        ...


class Background(Protocol):
    """Does work in the order it was handed over; ``ThreadPoolExecutor(max_workers=1)`` is one."""

    def submit(self, work: Callable[[], None], /) -> Task:
        """Begin the work, or have it wait its turn, and return at once."""
        ...
