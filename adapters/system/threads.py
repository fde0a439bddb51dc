"""Threads, for what may wait and for what goes on beside."""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TypeVar

from attrs import define, field

from tileferry.adapters.system.waiting import WorkerThread
from tileferry.domain.checks import integer

Item = TypeVar("Item")
Result = TypeVar("Result")
LEAVE_S = 0.5
"""How long workers are waited for that were told to end and are inside a call."""


async def offload(call: Callable[[], Result], /) -> Result:
    """Have a call that may wait made in a thread, off the event loop."""
    return await asyncio.to_thread(call)


class ThreadHeartbeat:
    """Beats in a thread that ends with the block, and with the process."""

    @contextmanager
    def beating(self, beat: Callable[[], bool], *, every_s: float) -> Iterator[None]:
        """Call ``beat`` every so often while the block lasts, or until it returns ``False``."""
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(every_s) and beat():
                pass

        thread = threading.Thread(target=run, name="tileferry-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


@define
class ThreadWorkers:
    """Works in daemon threads: one that waits for a provider does not keep the process alive.

    When it is over, waits end at once; a thread that is inside a call is left to itself after a
    short while, and what it works on has to see to it that it does no more harm.
    """

    count: int = field(default=8, validator=integer(1, 256))

    def run(
        self, work: Callable[[Item], Result], items: Iterator[Item], *, idle_s: float
    ) -> Generator[Result | None, None, None]:
        """Yield results as they are done, and ``None`` whenever none came for ``idle_s``.

        No more than twice as many items as there are threads are under way at a time.
        """
        inbox: SimpleQueue[tuple[Item] | None] = SimpleQueue()
        outbox: SimpleQueue[tuple[Result | None, BaseException | None]] = SimpleQueue()

        def loop() -> None:
            while (item := inbox.get()) is not None and not ended.is_set():
                try:
                    outbox.put((work(item[0]), None))
                except BaseException as error:  # noqa: BLE001  # raised again by the caller
                    outbox.put((None, error))

        ended = threading.Event()
        threads: list[WorkerThread] = []
        under_way = 0
        try:
            for item in items:
                inbox.put((item,))
                under_way += 1
                if len(threads) < min(under_way, self.count):
                    thread = WorkerThread(loop, ended)
                    threads.append(thread)
                    thread.start()
                while under_way >= 2 * self.count:
                    result = _next_of(outbox, idle_s)
                    under_way -= result is not None
                    yield result and result[0]
            while under_way:
                result = _next_of(outbox, idle_s)
                under_way -= result is not None
                yield result and result[0]
        finally:
            ended.set()
            for _ in threads:
                inbox.put(None)
            deadline_s = time.monotonic() + LEAVE_S
            for thread in threads:  # who waits ends at once, what is nearly done soon
                thread.join(max(0.0, deadline_s - time.monotonic()))


def _next_of(
    outbox: "SimpleQueue[tuple[Result | None, BaseException | None]]", idle_s: float
) -> tuple[Result | None] | None:
    try:
        result, error = outbox.get(timeout=idle_s)
    except Empty:
        return None
    if error is not None:
        raise error
    return (result,)
