"""Work that runs in the background."""

from collections.abc import Callable
from typing import Protocol


class Task(Protocol):
    """Submitted work; ``concurrent.futures.Future`` implements it."""

    def done(self) -> bool:
        """Return whether the work has ended, with success or not."""
        ...

    def exception(self) -> BaseException | None:
        """Wait for the work to end, and return its error, if any."""
        ...


class Background(Protocol):
    """Runs work in order of submission; ``ThreadPoolExecutor(max_workers=1)`` implements it."""

    def submit(self, work: Callable[[], None], /) -> Task:
        """Start or queue the work, and return immediately."""
        ...
