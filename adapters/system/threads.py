"""Threads: cancellable waits, heartbeats, a worker pool, a shared retry budget and pace."""

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
from tileferry.domain.retry import Decision, Pace, RetryBudget, costs_token
from tileferry.domain.validation import integer


class WorkerThread(threading.Thread):
    """Works for a run; its waits end with the run.

    It is a daemon thread, so a pending request does not keep the process alive.
    """

    def __init__(self, work: Callable[[], None], ended: threading.Event) -> None:
        super().__init__(target=work, name="tileferry-worker", daemon=True)
        self.ended = ended


def wait(seconds: float, /) -> None:
    """Sleep; in a ``WorkerThread``, raise ``WorkCancelled`` when its run ends."""
    thread = threading.current_thread()
    if not isinstance(thread, WorkerThread):
        time.sleep(seconds)
    elif thread.ended.wait(seconds):
        raise WorkCancelled


Item = TypeVar("Item")
Result = TypeVar("Result")
LEAVE_S = 0.5
"""How long to wait for workers that are inside a call when the run ends."""


async def offload(call: Callable[[], Result], /) -> Result:
    """Run a blocking call in a thread, off the event loop."""
    return await asyncio.to_thread(call)


class ThreadHeartbeat:
    """Runs a heartbeat in a daemon thread while a block runs."""

    @contextmanager
    def start(self, beat: Callable[[], bool], *, every_s: float) -> Iterator[None]:
        """Call ``beat`` every ``every_s`` until the block ends or ``beat`` returns ``False``."""
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
    """A pool of daemon threads, so a pending request does not keep the process alive.

    When ``run`` ends, waits end at once. A thread that is still inside a call after ``LEAVE_S`` is
    abandoned, so the objects it works on must tolerate late calls.
    """

    count: int = field(default=8, validator=integer(1, 256))

    def run(
        self, work: Callable[[Item], Result], items: Iterator[Item], *, idle_s: float
    ) -> Generator[Result | None, None, None]:
        """Yield results as they complete, and ``None`` whenever none arrived for ``idle_s``.

        At most two items per thread are in progress or queued at a time.
        """
        inbox: SimpleQueue[tuple[Item] | None] = SimpleQueue()
        outbox: SimpleQueue[tuple[Result | None, BaseException | None]] = SimpleQueue()

        def loop() -> None:
            while (item := inbox.get()) is not None and not ended.is_set():
                try:
                    outbox.put((work(item[0]), None))
                except BaseException as error:  # noqa: BLE001  # re-raised in the caller's thread
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
            for thread in threads:  # waiting threads end at once, the others soon
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
    """A retry budget shared between threads, with one decision at a time."""

    clock: Clock
    budget: RetryBudget = field(factory=RetryBudget)
    _guard: RLock = field(factory=RLock, init=False)

    def note_success(self) -> None:
        """Earn the tokens for a success."""
        with self._guard:
            self.budget = self.budget.earn()

    def charge(self, decide: Callable[[RetryBudget], Decision]) -> Decision:
        """Return the decision for the budget as it is now; a retry reserves a token."""
        with self._guard:
            self.budget = self.budget.refill(self.clock.monotonic())
            decision = decide(self.budget)
            if costs_token(decision):
                self.budget = self.budget.reserve()
            return decision


@define(kw_only=True, eq=False)
class SharedPace:
    """The pace of one source, shared between threads."""

    clock: Clock
    pace: Pace
    _running: int = field(default=0, init=False)
    _next_start_s: float = field(default=0.0, init=False)
    _changed: threading.Condition = field(factory=threading.Condition, init=False)

    def begin_request(self, is_cancelled: Callable[[], bool]) -> float:
        """Wait for a free place, and then for the time that keeps requests apart."""
        with self._changed:
            while not is_cancelled() and self._running >= self.pace.concurrency:
                self._changed.wait()
            if is_cancelled():
                raise WorkCancelled
            self._running += 1
            now_s = self.clock.monotonic()
            start_s = max(now_s, self._next_start_s)
            self._next_start_s = start_s + self.pace.spacing_s
        if start_s > now_s:
            try:
                self.clock.sleep(start_s - now_s)
            except BaseException:
                self.end_request(lambda pace: pace)
                raise
        return start_s

    def end_request(self, update: Callable[[Pace], Pace]) -> tuple[Pace, Pace]:
        """Free the place of a request; return the pace before and after."""
        with self._changed:
            self._running -= 1
            before, self.pace = self.pace, update(self.pace)
            self._changed.notify(max(1, self.pace.concurrency - self._running))
            return before, self.pace

    def wake_waiting(self) -> None:
        """Let waiting requests ask again whether they are cancelled."""
        with self._changed:
            self._changed.notify_all()
