"""The scheduler: simulated processes and threads as greenlets, and simulated time.

The seed decides who runs next. Time moves when everybody waits, and a little with each call.
"""

import heapq
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from itertools import count
from random import Random
from typing import Any

from attrs import define, field
from greenlet import GreenletExit, getcurrent, greenlet

START_S = 1_793_000_000.0  # 2026-10-26
STEP_S = 0.001
"""Every call of a port takes this long; waiting takes as long as it says."""


class Killed(GeneratorExit):
    """Ends the greenlets of a process that died.

    As a ``GeneratorExit``, it also ends generators that are closed later without a complaint.
    """


@define(eq=False)
class Task:
    """A thread of a simulated process."""

    process: "Process"
    name: str
    body: greenlet = field(init=False)
    ended: bool = False
    waking: int = 0
    """Counts its waits, so that a timer of an earlier wait is ignored."""
    timed_out: bool = False
    interrupt: BaseException | None = None
    """Raised in the task when it continues."""


@define(eq=False, kw_only=True)
class Process:
    """A simulated process: its threads, and what ends with it."""

    name: str
    main: Callable[["Process"], object]
    restarts: bool = True
    """Whether it is started again after a crash or an error, as an operator or systemd does."""
    is_awaited: bool = True
    """Whether the history ends only after it has returned."""
    generation: int = 0
    alive: bool = False
    done: bool = False
    stopped_until_s: float = 0.0
    parked: list[Task] = field(factory=list)
    """Tasks that run when the process is resumed."""
    wall_offset_s: float = 0.0
    tasks: list[Task] = field(factory=list)
    on_death: list[Callable[[], object]] = field(factory=list)
    on_crash: list[Callable[[Callable[[], float]], None]] = field(factory=list)
    """Lose what the process had not written when it crashed."""
    failures: list[BaseException] = field(factory=list)
    """The errors with which it ended so far."""
    data: dict[str, Any] = field(factory=dict)
    """What a scenario keeps for the process; a crash empties it."""


@define(eq=False)
class Scheduler:
    """Runs the tasks of all processes, one at a time."""

    seed: int
    schedule: Random = field(init=False)
    """The chance of this history."""
    time_s: float = field(default=0.0, init=False)
    processes: dict[str, Process] = field(factory=dict, init=False)
    locks: dict[str, Any] = field(factory=dict, init=False)
    """The locks of the database, by name."""
    trace: list[str] = field(factory=list, init=False)
    _hub: greenlet = field(init=False)
    _ready: list[Task] = field(factory=list, init=False)
    _timers: list[tuple[float, int, Task | Callable[[], None], int]] = field(
        factory=list, init=False
    )
    _numbers: Iterator[int] = field(factory=count, init=False)
    _by_body: dict[greenlet, Task] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._hub = getcurrent()
        self.schedule = Random(f"{self.seed}/schedule")

    # Tasks

    @property
    def current(self) -> Task:
        return self._by_body[getcurrent()]

    def start_process(self, process: Process) -> Process:
        """Start a process, again if it ended."""
        self.processes[process.name] = process
        process.generation += 1
        process.alive, process.data = True, {}
        process.tasks, process.on_death, process.on_crash = [], [], []
        process.parked = []
        process.wall_offset_s = process.stopped_until_s = 0.0
        self.note(f"start {process.name}")
        self.spawn(process, lambda: self._run_process(process), "main")
        return process

    def spawn(self, process: Process, work: Callable[[], object], name: str) -> Task:
        """Start a thread of a process."""
        task = Task(process, f"{process.name}/{name}")

        def run() -> None:
            try:
                if process.alive:
                    work()
            except (Killed, GreenletExit):
                pass
            finally:
                task.ended = True
                self._by_body.pop(task.body, None)
                if task in process.tasks:
                    process.tasks.remove(task)

        task.body = greenlet(run, parent=self._hub)
        self._by_body[task.body] = task
        process.tasks.append(task)
        self._ready.append(task)
        return task

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until woken, or for ``seconds``; return whether the time ran out."""
        task = self.current
        if not task.process.alive:
            raise Killed
        task.waking += 1
        task.timed_out = False
        if seconds is not None:
            self._set_timer(seconds, task, task.waking)
        self._switch(task)
        return task.timed_out

    def wake(self, task: Task, interrupt: BaseException | None = None) -> None:
        """Let a waiting task continue; with ``interrupt``, by raising it there."""
        if not task.ended and task not in self._ready and task not in task.process.parked:
            task.waking += 1
            task.interrupt = interrupt
            self._ready.append(task)

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        """Call a function of the world itself at a later time."""
        self._set_timer(seconds, action, 0)

    def pause(self, task: Task) -> None:
        """Let the seed decide who runs next."""
        self.time_s = time_s = self.time_s + STEP_S
        timers = self._timers
        if (
            self._ready
            or task.process.stopped_until_s > time_s
            or (timers and timers[0][0] <= time_s)
        ):
            self._ready.append(task)
            self._switch(task)

    def _switch(self, task: Task) -> None:
        self._hub.switch()
        if not task.process.alive:
            raise Killed
        if task.interrupt is not None:
            error, task.interrupt = task.interrupt, None
            raise error

    def _has_due_timer(self) -> bool:
        return bool(self._timers) and self._timers[0][0] <= self.time_s

    def _set_timer(self, seconds: float, what: Task | Callable[[], None], waking: int) -> None:
        due_s = self.time_s + max(seconds, 0.0)
        heapq.heappush(self._timers, (due_s, next(self._numbers), what, waking))

    def _run_process(self, process: Process) -> None:
        try:
            process.main(process)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # may be run again
            self.note_failure(process, error)
            self._end_process(process)
            if process.restarts:
                self._restart_later(process)
            else:
                process.done = True
            return
        self.note(f"{process.name} done")
        process.done = True
        self._end_process(process)

    def note_failure(self, process: Process, error: BaseException) -> None:
        """Note with which error a process ended."""
        self.note(f"{process.name} failed: {type(error).__name__}")
        process.failures.append(error)

    def _end_process(self, process: Process) -> None:
        """End the other threads of a process, and release what it held."""
        process.alive = False
        for release in process.on_death:
            release()
        for lock in self.locks.values():
            if lock.holder is not None and lock.holder.process is process:
                lock.release()
        for task in list(process.tasks):
            if task.body is not getcurrent():
                self._end_task(task)

    def _end_task(self, task: Task) -> None:
        for waiting in (self._ready, task.process.parked):
            if task in waiting:
                waiting.remove(task)
        task.ended = True
        self._by_body.pop(task.body, None)
        if task.body:
            # A dead process may only unwind: whatever its ``finally`` blocks call raises again.
            task.body.parent = getcurrent()
            with suppress(Killed):
                task.body.throw(Killed)
            while task.body:  # caught the error and called something again
                with suppress(Killed):
                    task.body.throw(Killed)

    def _restart_later(self, process: Process) -> None:
        # As systemd does: later and later, so that an outage is not a series of short lives.
        delay_s = (1.0 + self.schedule.random() * 20.0) * min(2 ** (process.generation - 1), 16)

        def restart() -> None:
            if not process.alive and not process.done:
                self.start_process(process)

        self.call_later(delay_s, restart)

    def kill(self, process: Process) -> None:
        """End a process at once: nothing that it does while it unwinds has an effect."""
        if not process.alive:
            return
        self.note(f"kill {process.name}")
        self._end_process(process)
        for lose in process.on_crash:
            lose(self.schedule.random)
        if process.restarts:
            self._restart_later(process)
        else:
            process.done = True
        me = self._by_body.get(getcurrent())
        if me is not None and me.process is process:
            raise Killed

    # The loop

    def run_next(self) -> bool:
        """Let the next task run until it waits; return whether there was anything to do."""
        ready = self._ready
        if not ready:
            if not self._timers:
                return False
            self.time_s = max(self.time_s, self._timers[0][0])
        self._wake_due()
        if not ready:
            return True
        at = int(self.schedule.random() * len(ready)) if len(ready) > 1 else 0
        task = ready[at]
        ready[at] = ready[-1]
        ready.pop()
        process = task.process
        if process.stopped_until_s > self.time_s:
            process.parked.append(task)
            self.resume(process)
        else:
            task.body.switch()
        return True

    def _wake_due(self) -> None:
        while self._has_due_timer():
            _, _, what, waking = heapq.heappop(self._timers)
            if not isinstance(what, Task):
                what()
            elif not what.ended and what.waking == waking:
                what.timed_out = True
                self._ready.append(what)

    def resume(self, process: Process) -> None:
        """Resume the tasks of a process when its suspension ends."""
        left_s = process.stopped_until_s - self.time_s
        if left_s <= 0:
            self._ready += process.parked
            process.parked = []
        elif process.parked:
            self.call_later(left_s, partial(self.resume, process))

    def end_all(self) -> None:
        """End every process, for good."""
        for process in self.processes.values():
            process.restarts = False
            if process.alive:
                self._end_process(process)
        self._timers.clear()

    # The history

    def note(self, line: str) -> None:
        """Add a line to the history."""
        self.trace.append(f"{self.time_s:.3f} {line}\n")

    @property
    def trace_hash(self) -> str:
        """The hash of the history so far."""
        return sha256("".join(self.trace).encode()).hexdigest()
