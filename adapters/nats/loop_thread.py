"""An event loop in a thread of its own: how synchronous code speaks through asyncio."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from threading import Thread
from typing import Any, TypeVar

from attrs import define, field
from nats.errors import ConnectionClosedError

Result = TypeVar("Result")
_GRACE_S = 5.0
"""What is added to a coroutine's own time limit, for a loop that is busy."""


@define(eq=False)
class LoopThread:
    """Runs coroutines for any thread, until it is closed."""

    name: str
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.new_event_loop, init=False)
    _thread: Thread = field(init=False)

    @_thread.default
    def _started(self) -> Thread:
        # A daemon, so that a program that forgets to close it can end all the same.
        thread = Thread(target=self._loop.run_forever, name=self.name, daemon=True)
        thread.start()
        return thread

    def run(self, coroutine: Coroutine[Any, Any, Result], *, timeout_s: float) -> Result:
        """Return what a coroutine returns; it is cancelled when the caller cannot wait for it."""
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as error:  # the loop was closed by another thread
            coroutine.close()
            raise ConnectionClosedError from error
        try:
            return future.result(timeout_s + _GRACE_S)
        except CancelledError as error:  # the same, in the middle of it
            raise ConnectionClosedError from error
        finally:
            future.cancel()

    def close(self) -> None:
        """End what still runs, and the thread."""
        self.run(_cancel_all(), timeout_s=_GRACE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
