"""Threads: cancellable waits, heartbeats, a runner of fetches, a shared retry budget and pace."""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import RLock
from typing import Generic, TypeVar

from attrs import define, field

from tileferry.application.ports.clock import Clock
from tileferry.application.ports.downloads import FetchSteps, WorkCancelled
from tileferry.domain.retry import Decision, Pace, RetryBudget, costs_token
from tileferry.domain.validation import integer


class WorkerThread(threading.Thread):
    """Works for a run; its waits end with the run.

    It is a daemon thread, so a pending request does not keep the process alive.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.ended = threading.Event()


def wait(seconds: float, /) -> None:
    """Sleep; in a ``WorkerThread``, raise ``WorkCancelled`` when its run ends."""
    thread = threading.current_thread()
    if not isinstance(thread, WorkerThread):
        time.sleep(seconds)
    elif thread.ended.wait(seconds):
        raise WorkCancelled


Result = TypeVar("Result")
LEAVE_S = 0.5
"""How long to wait for the end of a step when the work is cancelled."""


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


ITEMS_PER_REQUEST = 4
"""Tiles that wait for their retry, or for the caller, are in progress as well."""
ITEMS_MAX = 256
"""Tiles that wait for the caller are in memory."""
GATHER_S = 0.005
"""How long results may wait for others: waking the caller costs as much as storing a tile."""


@define
class ThreadFetchRunner:
    """Runs the steps in a daemon thread, so a pending request does not keep the process alive.

    Results are handed over several at a time: half of those that may wait, or what arrives within
    ``GATHER_S``. When ``run`` ends, a thread that is still inside a step after ``LEAVE_S`` is
    abandoned, so the objects it works on must tolerate late calls.
    """

    items_max: int = field(default=32, validator=integer(1, ITEMS_MAX))
    """How many items may be in progress, or wait for the caller."""

    @classmethod
    def for_requests(cls, count: int) -> "ThreadFetchRunner":
        """Return a runner for so many requests at a time."""
        return cls(min(ITEMS_PER_REQUEST * count, ITEMS_MAX))

    def run(
        self, work: FetchSteps[Result], *, idle_s: float
    ) -> Generator[Sequence[Result] | None, None, None]:
        """Yield results as they arrive, and ``None`` when there were none for ``idle_s``."""
        thread = _FetchThread(work, self.items_max)
        thread.start()
        try:
            while True:
                try:
                    found = thread.outbox.get(timeout=idle_s)
                except Empty:
                    yield None
                    continue
                if found is None:
                    return
                if isinstance(found, BaseException):
                    raise found
                yield found
                thread.note_consumed(len(found))
        finally:
            thread.end()


class _FetchThread(WorkerThread, Generic[Result]):
    """Runs the steps of some work until it is done or cancelled."""

    def __init__(self, work: FetchSteps[Result], items_max: int) -> None:
        super().__init__("tileferry-fetch")
        self.outbox: SimpleQueue[Sequence[Result] | BaseException | None] = SimpleQueue()
        """Results, then an error, or ``None`` when all work is done."""
        self._work, self._items_max = work, items_max
        self._gathered: list[Result] = []
        self._gathered_s = 0.0
        self._produced = self._consumed = 0  # each is changed by one thread
        self._has_more_room = threading.Event()

    def run(self) -> None:
        try:
            while not self.ended.is_set():
                self._has_more_room.clear()
                found = self._work.step(self._items_max - (self._produced - self._consumed))
                if found is None:
                    break
                if isinstance(found, float):
                    self._hand_over()
                    self._has_more_room.wait(found)
                else:
                    self._gather(found)
            self._hand_over()
            self.outbox.put(None)
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            self._hand_over()
            self.outbox.put(error)
        finally:
            self._work.close()

    def _gather(self, found: Sequence[Result]) -> None:
        """Hand over the results with earlier ones, unless they may wait for more."""
        now_s = time.monotonic()
        if not self._gathered:
            self._gathered_s = now_s
        self._gathered += found
        self._produced += len(found)
        is_due = now_s - self._gathered_s >= GATHER_S or len(self._gathered) >= self._items_max / 2
        if is_due or not found:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._gathered:
            self.outbox.put(self._gathered)
            self._gathered = []

    def note_consumed(self, count: int) -> None:
        """Make room for more items."""
        self._consumed += count
        self._has_more_room.set()

    def end(self) -> None:
        """Cancel the work, and wait a moment for the end of its step."""
        self._work.cancel()
        self.ended.set()
        self._has_more_room.set()
        self.join(LEAVE_S)


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

    def begin_request(self) -> float:
        """Wait for a free place, and then for the time that keeps requests apart."""
        with self._changed:
            while self._running >= self.pace.concurrency:
                self._changed.wait()
            start_s = self._take_place()
        wait_s = start_s - self.clock.monotonic()
        if wait_s > 0:
            try:
                self.clock.sleep(wait_s)
            except BaseException:
                self.end_request(lambda pace: pace)
                raise
        return start_s

    def try_begin_request(self) -> float | None:
        """Take a free place, if there is one; return when its request may start."""
        with self._changed:
            return None if self._running >= self.pace.concurrency else self._take_place()

    def _take_place(self) -> float:
        self._running += 1
        start_s = max(self.clock.monotonic(), self._next_start_s)
        self._next_start_s = start_s + self.pace.spacing_s
        return start_s

    def end_request(self, update: Callable[[Pace], Pace]) -> tuple[Pace, Pace]:
        """Free the place of a request; return the pace before and after."""
        with self._changed:
            self._running -= 1
            before, self.pace = self.pace, update(self.pace)
            self._changed.notify(max(1, self.pace.concurrency - self._running))
            return before, self.pace
