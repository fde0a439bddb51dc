"""Work beside the caller's own, in the background if there is one."""

from collections.abc import Callable
from typing import Generic, TypeVar

from attrs import define, field

from tileferry.application.ports.clock import Background, Task

Result = TypeVar("Result")


@define(eq=False)
class SideTask(Generic[Result]):
    """Work that runs while its caller does something else; without a background, before it."""

    _task: Task | None
    _results: list[Result] = field(factory=list)

    @classmethod
    def start(cls, work: Callable[[], Result], background: Background | None) -> "SideTask[Result]":
        """Start work. Without a ``background`` it is done when this returns, or its error raised.

        Always call ``get_result``: nothing may run when its caller has ended.
        """
        if background is None:
            return cls(None, [work()])
        results: list[Result] = []
        return cls(background.submit(lambda: results.append(work())), results)

    def get_result(self) -> Result:
        """Wait for the end, and return the result or raise the error."""
        error = None if self._task is None else self._task.exception()
        if error is not None:
            raise error
        return self._results[0]
