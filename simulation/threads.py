"""The threads of a simulated process: fetches, background work, heartbeats and conditions.

They are greenlets that the seed switches, in place of the real threads of ``adapters.system``.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from attrs import define, field

from simulation.scheduler import Process, Task
from simulation.world import World
from tileferry.adapters.system import SharedPace
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.downloads import FetchSteps, WorkCancelled
from tileferry.application.ports.provider import (
    FetchOutcome,
    FetchResult,
    TileProvider,
    TileRequest,
)
from tileferry.domain.retry import Pace

Result = TypeVar("Result")
LEAVE_S = 0.5


@define(eq=False)
class Signal:
    """Tasks wait for it; whoever sets it wakes them."""

    world: World
    waiting: list[Task] = field(factory=list)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the next ``set``; return whether the time ran out before."""
        me = self.world.current
        self.waiting.append(me)
        try:
            return self.world.wait(seconds)
        finally:
            with suppress(ValueError):
                self.waiting.remove(me)

    def set(self, count: int | None = None) -> None:
        """Wake the waiting tasks, or the first ``count`` of them."""
        woken = self.waiting[:count]
        del self.waiting[:count]
        for task in woken:
            self.world.wake(task)


class SimulatedCondition:
    """A ``threading.Condition`` of one process; only waiting switches to another task."""

    def __init__(self, world: World) -> None:
        self._signal = Signal(world)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is held: tasks switch only when they wait."""

    def wait(self) -> None:
        self._signal.wait()

    def notify(self, count: int = 1) -> None:
        self._signal.set(count)

    def notify_all(self) -> None:
        self._signal.set()


def create_pace(world: World, clock: Clock, concurrency_max: int) -> SharedPace:
    """Return the product's pace, which waits in simulated time."""
    pace = SharedPace(clock=clock, pace=Pace(concurrency_max=concurrency_max))
    pace._changed = SimulatedCondition(world)  # type: ignore[assignment]  # the same interface
    return pace


@define(eq=False)
class SimulatedFetches:
    """Fetches many tiles: the provider has a thread for each request, which cannot be cancelled."""

    world: World
    process: Process
    provider: TileProvider
    _ready: deque[FetchOutcome] = field(factory=deque, init=False)
    _started: int = field(default=0, init=False)
    _arrived: Signal = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._arrived = Signal(self.world)

    def start(self, request: TileRequest) -> None:
        """Send a request."""
        self._started += 1
        self.world.spawn(self.process, partial(self._fetch, request), f"request-{self._started}")

    def wait(self, timeout_s: float) -> Sequence[FetchOutcome]:
        """Return the results that have arrived."""
        if not self._ready:
            self._arrived.wait(timeout_s)
        results = list(self._ready)
        self._ready.clear()
        return results

    def close(self) -> None:
        """Ignore the answers that are still to come."""

    def _fetch(self, request: TileRequest) -> None:
        result: FetchResult
        try:
            result = self.provider.fetch_tile(request.tile_id, unless=request.unless)
        except Exception as error:  # noqa: BLE001  # returned as the result
            result = error
        self._ready.append((request, result))
        self._arrived.set()


@define(eq=False)
class FetchingProvider:
    """A provider of a process, with the way to fetch many tiles that the simulation has."""

    world: World
    process: Process
    provider: TileProvider

    def open_fetches(self) -> SimulatedFetches:
        return SimulatedFetches(self.world, self.process, self.provider)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.provider, name)


@define(eq=False)
class _FetchTask(Generic[Result]):
    """The thread of one ``run``, and its results."""

    world: World
    work: FetchSteps[Result]
    items_max: int
    outbox: deque[Sequence[Result] | Exception | None] = field(factory=deque)
    ended: bool = False
    produced: int = 0
    consumed: int = 0
    arrived: Signal = field(init=False)
    has_more_room: Signal = field(init=False)
    left: Signal = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.arrived, self.has_more_room = Signal(self.world), Signal(self.world)
        self.left = Signal(self.world)

    def loop(self) -> None:
        """Run steps until the work is done or the run ends."""
        try:
            self._make_steps()
        except WorkCancelled:
            pass
        except Exception as error:  # noqa: BLE001  # raised again in the caller's thread
            self._put(error)
        self.work.close()
        self.left.set()

    def _make_steps(self) -> None:
        while not self.ended:
            found = self.work.step(self.items_max - (self.produced - self.consumed))
            if isinstance(found, float):
                self.has_more_room.wait(found)
            elif found is None:
                self._put(None)
                return
            elif found:
                self.produced += len(found)
                self._put(found)

    def _put(self, found: Sequence[Result] | Exception | None) -> None:
        self.outbox.append(found)
        self.arrived.set()

    def leave(self, task: Task) -> None:
        """End the thread if it waits; inside a step it is abandoned after a moment."""
        self.work.cancel()
        self.has_more_room.set()
        if task.process.data.get(f"sleeping {task.name}"):
            self.world.wake(task, WorkCancelled())
        if not task.ended:
            self.left.wait(LEAVE_S)


@define(eq=False)
class SimulatedFetchRunner:
    """Runs the steps in its own thread, like ``ThreadFetchRunner``."""

    world: World
    process: Process
    items_max: int

    def run(
        self, work: FetchSteps[Result], *, idle_s: float
    ) -> Generator[Sequence[Result] | None, None, None]:
        """Yield results as they arrive, and ``None`` whenever none arrived for ``idle_s``."""
        running = _FetchTask(self.world, work, self.items_max)
        task = self.world.spawn(self.process, running.loop, "fetch")
        try:
            while True:
                if not running.outbox:
                    running.arrived.wait(idle_s)
                if not running.outbox:
                    yield None
                    continue
                found = running.outbox.popleft()
                if found is None:
                    return
                if isinstance(found, Exception):
                    raise found
                yield found
                running.consumed += len(found)
                running.has_more_room.set()
        finally:
            running.ended = True
            if self.process.alive:
                running.leave(task)


class WorkerClock:
    """The clock of a process whose worker threads can be cancelled while they sleep."""

    def __init__(self, clock: Clock, world: World, process: Process) -> None:
        self._clock = clock
        self._world = world
        self._process = process
        self.now = clock.now
        self.monotonic = clock.monotonic

    def sleep(self, seconds: float) -> None:
        """Sleep; a worker is marked meanwhile."""
        key = f"sleeping {self._world.current.name}"
        self._process.data[key] = True
        try:
            self._clock.sleep(seconds)
        finally:
            self._process.data.pop(key, None)


@define(eq=False)
class _SimulatedWork:
    """Work in the background."""

    finished: Signal
    is_done: bool = False
    error: BaseException | None = None

    def done(self) -> bool:
        return self.is_done

    def exception(self) -> BaseException | None:
        """Wait for the work to end, and return its error."""
        while not self.is_done:
            self.finished.wait()
        return self.error


@define(eq=False)
class SimulatedBackground:
    """Runs work in order of submission, in one thread."""

    world: World
    process: Process
    _queue: deque[tuple[Callable[[], None], _SimulatedWork]] = field(factory=deque)
    _running: bool = False

    def submit(self, work: Callable[[], None], /) -> _SimulatedWork:
        """Start or queue the work."""
        made = _SimulatedWork(Signal(self.world))
        self._queue.append((work, made))
        if not self._running:
            self._running = True
            self.world.spawn(self.process, self._run, "background")
        return made

    def _run(self) -> None:
        while self._queue:
            work, made = self._queue.popleft()
            try:
                work()
            except Exception as error:  # noqa: BLE001  # returned by ``exception``
                made.error = error
            made.is_done = True
            made.finished.set()
        self._running = False


@define(eq=False)
class SimulatedHeartbeat:
    """Beats in a thread of its own while a block runs."""

    world: World
    process: Process
    is_idle: Callable[[], bool] = lambda: False
    """Whether a beat would do nothing until ``resumed``: histories have long pauses."""
    resumed: Signal = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.resumed = Signal(self.world)

    @contextmanager
    def start(self, beat: Callable[[], bool], *, every_s: float) -> Iterator[None]:
        """Call ``beat`` every ``every_s`` until the block ends or ``beat`` returns ``False``."""
        ended = Signal(self.world)
        is_over = False

        def run() -> None:
            while not is_over:
                if self.is_idle():
                    self.resumed.wait()
                elif not ended.wait(every_s) or not beat():
                    return

        task = self.world.spawn(self.process, run, "heartbeat")
        try:
            yield
        finally:
            is_over = True
            if self.process.alive:
                ended.set()
                self.resumed.set()
                while not task.ended:
                    self.world.wait(0.01)
