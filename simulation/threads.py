"""The threads of a simulated process: workers, background work, heartbeats and conditions.

They are greenlets that the seed switches, in place of the real threads of ``adapters.system``.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Generic, Self, TypeVar

from attrs import define, field

from simulation.scheduler import Process, Task
from simulation.world import World
from tileferry.adapters.system import SharedPace
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.downloads import WorkCancelled
from tileferry.domain.retry import Pace

Item = TypeVar("Item")
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
class _Pool(Generic[Item, Result]):
    """The threads of one ``run``, what they have to do and what they did."""

    world: World
    work: Callable[[Item], Result]
    inbox: deque[Item] = field(factory=deque)
    outbox: deque[tuple[Result | None, BaseException | None]] = field(factory=deque)
    tasks: list[Task] = field(factory=list)
    ended: bool = False
    arrived: Signal = field(init=False)
    wanted: Signal = field(init=False)
    left: Signal = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.arrived, self.wanted = Signal(self.world), Signal(self.world)
        self.left = Signal(self.world)

    def loop(self) -> None:
        """Work until the run ends."""
        while not self.ended:
            if not self.inbox:
                self.wanted.wait()
                continue
            try:
                self.outbox.append((self.work(self.inbox.popleft()), None))
            except Exception as error:  # noqa: BLE001  # raised again in the caller's thread
                self.outbox.append((None, error))
            except WorkCancelled:
                break
            self.arrived.set()
        self.left.set()

    def get_result(self, idle_s: float) -> tuple[Result | None] | None:
        """Return the next result; ``None`` if there was none for ``idle_s``."""
        if not self.outbox:
            self.arrived.wait(idle_s)
        if not self.outbox:
            return None
        result, error = self.outbox.popleft()
        if error is not None:
            raise error
        return (result,)

    def leave(self) -> None:
        """End the threads that wait; those inside a call are abandoned after a moment."""
        self.wanted.set()
        for task in self.tasks:
            if task.process.data.get(f"sleeping {task.name}"):
                self.world.wake(task, WorkCancelled())
        deadline_s = self.world.time_s + LEAVE_S
        while any(not task.ended for task in self.tasks):
            if self.world.time_s >= deadline_s or self.left.wait(deadline_s - self.world.time_s):
                return


@define(eq=False)
class SimulatedWorkers:
    """A pool of threads, as ``ThreadWorkers``."""

    world: World
    process: Process
    count: int

    def run(
        self, work: Callable[[Item], Result], items: Iterator[Item], *, idle_s: float
    ) -> Generator[Result | None, None, None]:
        """Yield results as they complete, and ``None`` whenever none arrived for ``idle_s``."""
        pool = _Pool(self.world, work)
        under_way = 0
        try:
            for item in items:
                pool.inbox.append(item)
                under_way += 1
                if len(pool.tasks) < min(under_way, self.count):
                    name = f"worker-{len(pool.tasks)}"
                    pool.tasks.append(self.world.spawn(self.process, pool.loop, name))
                pool.wanted.set(1)
                while under_way >= 2 * self.count:
                    result = pool.get_result(idle_s)
                    under_way -= result is not None
                    yield result and result[0]
            while under_way:
                result = pool.get_result(idle_s)
                under_way -= result is not None
                yield result and result[0]
        finally:
            pool.ended = True
            if self.process.alive:
                pool.leave()


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
