"""Waiting: as long as it takes, or until nobody needs what is waited for."""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import RLock
from typing import TypeVar

from attrs import define, field

from tileferry.application.ports.clock import Clock
from tileferry.application.ports.downloads import WorkCancelled
from tileferry.domain.retry import Decision, RetryAt, RetryBudget
from tileferry.domain.validation import integer


class WorkerThread(threading.Thread):
    """Works for a run, and waits no longer than that lasts.

    It is a daemon: one that is inside a request does not keep the process alive.
    """

    def __init__(self, work: Callable[[], None], ended: threading.Event) -> None:
        super().__init__(target=work, name="tileferry-worker", daemon=True)
        self.ended = ended


def wait(seconds: float, /) -> None:
    """Wait; in a worker's thread no longer than its run."""
    thread = threading.current_thread()
    if not isinstance(thread, WorkerThread):
        time.sleep(seconds)
    elif thread.ended.wait(seconds):
        raise WorkCancelled


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
    def start(self, beat: Callable[[], bool], *, every_s: float) -> Iterator[None]:
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
                    result = _next_result(outbox, idle_s)
                    under_way -= result is not None
                    yield result and result[0]
            while under_way:
                result = _next_result(outbox, idle_s)
                under_way -= result is not None
                yield result and result[0]
        finally:
            ended.set()
            for _ in threads:
                inbox.put(None)
            deadline_s = time.monotonic() + LEAVE_S
            for thread in threads:  # who waits ends at once, what is nearly done soon
                thread.join(max(0.0, deadline_s - time.monotonic()))


def _next_result(
    outbox: "SimpleQueue[tuple[Result | None, BaseException | None]]", idle_s: float
) -> tuple[Result | None] | None:
    try:
        result, error = outbox.get(timeout=idle_s)
    except Empty:
        return None
    if error is not None:
        raise error
    return (result,)


@define(kw_only=True, eq=False)
class SharedRetryTokens:
    """One bucket, one decision at a time."""

    clock: Clock
    budget: RetryBudget = field(factory=RetryBudget)
    _guard: RLock = field(factory=RLock, init=False)

    def note_first_attempt(self) -> None:
        """Let an operation that is tried for the first time earn its share."""
        with self._guard:
            self.budget = self.budget.earn()

    def charge(self, decide: Callable[[float], Decision]) -> Decision:
        """Have something decided with the tokens there are, and charge a retry if it is one."""
        with self._guard:
            self.budget = self.budget.refill(self.clock.monotonic())
            decision = decide(self.budget.tokens)
            if isinstance(decision, RetryAt):
                self.budget = self.budget.spend()
            return decision
