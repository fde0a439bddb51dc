"""Ports as a simulated process sees them: each call goes through the world.

A proxy knows nothing of the port behind it, so a new method of a port is covered without new code:
plain methods, iterators (read at once), objects with methods of their own (a journal), and context
managers, whose end is a call too, because that is where a transaction commits.
"""

import inspect
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from types import TracebackType
from typing import Any, ClassVar

from attrs import define, field, frozen

from simulation.faults import PortKind, create_disk_error, create_error
from simulation.scheduler import Killed, Process, Task
from simulation.world import World
from tileferry.domain.errors import StorageError

READS = frozenset({"has_bytes", "read_tile", "tile_exists", "read", "records", "list_entries"})
"""Methods that a full disk does not disturb."""


def _to_names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(names)


@frozen(kw_only=True)
class PortSpec:
    """How a port behaves."""

    name: str
    kind: PortKind
    quiet: frozenset[str] = field(default=frozenset(), converter=_to_names)
    """Methods that touch nothing but the memory of their process; they are no calls."""
    lock: str | None = None
    """While a transaction of this lock is open, other processes wait, as a database lets them."""
    fails_for_good: frozenset[str] = field(default=frozenset(), converter=_to_names)
    """Methods that are refused once one of them has failed: the state of the file is unknown."""
    parts: dict[str, "PortSpec"] = field(factory=dict)
    """The objects that it has, or that its methods return or yield, if they are ports too."""


@define(eq=False)
class SimulatedLock:
    """A lock between tasks."""

    world: World
    holder: Task | None = None
    waiting: list[Task] = field(factory=list)

    def acquire(self) -> bool:
        """Take the lock; return whether it was new to this task."""
        me = self.world.current
        if self.holder is me:
            return False
        while self.holder is not None:
            self.waiting.append(me)
            self.world.wait()
        self.holder = me
        return True

    def release(self) -> None:
        self.holder = None
        waiting, self.waiting = self.waiting, []
        for task in waiting:
            self.world.wake(task)


@cache
def _find_form(kind: Any, name: str) -> str:
    found = inspect.getattr_static(kind, name, None)
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    if not inspect.isfunction(found):
        return "value"
    wrapped = getattr(found, "__wrapped__", None)
    return "context" if wrapped and inspect.isgeneratorfunction(wrapped) else "method"


class Port:
    """Any port object, as one process sees it.

    There is a class for each kind of object. Its methods are made when they are first used.
    """

    _spec: ClassVar[PortSpec]

    def __init__(self, world: World, process: Process, target: Any) -> None:
        self._world = world
        self._process = process
        self._target = target
        self._failed = False

    def __getattr__(self, name: str) -> Any:
        if not self._process.alive:
            raise Killed
        target, spec = self._target, self._spec
        kind: Any = type(target)
        form = _find_form(kind, name)
        if form == "value":
            value, part = getattr(target, name), spec.parts.get(name)
            return value if part is None else connect(self._world, self._process, part, value)
        if name in spec.quiet:
            return getattr(target, name)
        setattr(type(self), name, _make_opener(name) if form == "context" else _wrap(spec, name))
        return getattr(self, name)

    def _lock(self) -> bool:
        """Wait until no other transaction is open; return whether to release the lock."""
        name, locks = self._spec.lock, self._world.locks
        if not self._process.alive:
            raise Killed
        if name is None:
            return False
        if name not in locks:
            locks[name] = SimulatedLock(self._world)
        is_new: bool = locks[name].acquire()
        return is_new

    def _check_sound(self, name: str) -> None:
        if self._failed:
            raise create_disk_error(f"{self._spec.name}.{name}", "an earlier operation failed")


_CLASSES: dict[tuple[int, type], type[Port]] = {}
"""By the spec, which is a constant, and the kind of object."""


def connect(world: World, process: Process, spec: PortSpec, target: Any) -> Port:
    """Return an object as a process sees it."""
    key = id(spec), type(target)
    if key not in _CLASSES:
        _CLASSES[key] = type(f"Port[{spec.name}]", (Port,), {"_spec": spec})
    return _CLASSES[key](world, process, target)


def _make_opener(name: str) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: _Context(
        self, name, getattr(self._target, name)(*args, **kwargs)
    )


def _wrap(spec: PortSpec, name: str) -> Callable[..., Any]:
    """Return the method of a port that makes the call in its world."""
    full_name = f"{spec.name}.{name}"
    kind = spec.kind
    if kind is PortKind.DISK and name in READS:
        kind = PortKind.DISK_READ
    part = spec.parts.get(name)

    def call(port: Port, *args: Any, **kwargs: Any) -> Any:
        world, process = port._world, port._process
        result = world.call(process, kind, full_name, getattr(port._target, name), args, kwargs)
        return result if part is None else connect(world, process, part, result)

    def call_locked(port: Port, *args: Any, **kwargs: Any) -> Any:
        is_new = port._lock()
        try:
            return call(port, *args, **kwargs)
        finally:
            if is_new and port._process.alive:
                port._world.locks[spec.lock or ""].release()

    def call_unless_failed(port: Port, *args: Any, **kwargs: Any) -> Any:
        def effect(*args: Any, **kwargs: Any) -> Any:
            port._check_sound(name)
            return getattr(port._target, name)(*args, **kwargs)

        try:
            return port._world.call(port._process, kind, full_name, effect, args, kwargs)
        except StorageError:
            port._failed = True
            raise

    if name in spec.fails_for_good:
        return call_unless_failed
    return call if spec.lock is None else call_locked


@frozen
class _LostTransaction:
    """A transaction whose connection is gone."""

    name: str

    @property
    def error(self) -> Exception:
        return create_error(PortKind.DATABASE, self.name, is_late=False)

    def __getattr__(self, name: str) -> Any:
        raise self.error

    def __exit__(self, *_error: object) -> None:
        raise self.error


@define(eq=False)
class _Context:
    """A context manager of a port, such as a transaction."""

    port: Port
    name: str
    target: Any
    inner: Any = None
    _is_new: bool = False
    _ended: bool = True

    def __enter__(self) -> Any:
        port = self.port
        self._is_new = port._lock()
        spec, process = port._spec, port._process
        process.on_death.append(self._abandon)
        try:
            part = port._world.call(process, spec.kind, f"{spec.name}.{self.name}", self._begin)
        except Exception as error:
            self._roll_back(error)
            self._release()
            raise
        if spec.kind is PortKind.DATABASE:
            port._world.on_database_down.append(self._lose)
        inner = spec.parts.get(self.name)
        self.inner = part if inner is None else connect(port._world, process, inner, part)
        return self.inner

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        port = self.port
        if not port._process.alive:
            raise Killed
        if error is not None:
            self._roll_back(error)
            self._release()
            return
        spec = port._spec
        failure = create_disk_error(spec.name, "rolled back")
        try:
            port._world.call(
                port._process,
                spec.kind,
                f"{spec.name}.{self.name}.end",
                self._commit,
                undo=lambda: self._roll_back(failure),
            )
        finally:
            if port._process.alive:
                self._release()

    def _begin(self) -> Any:
        part = self.target.__enter__()
        self._ended = False
        return part

    def _commit(self) -> None:
        self._ended = True
        self.target.__exit__(None, None, None)

    def _roll_back(self, error: BaseException) -> None:
        if self._ended:
            return
        self._ended = True
        try:
            self.target.__exit__(type(error), error, None)
        except BaseException as raised:
            if raised is not error:
                raise

    def _abandon(self) -> None:
        self._roll_back(Killed())

    def _lose(self) -> None:
        """Lose the transaction with its connection: later calls in it fail."""
        lost = _LostTransaction(self.name)
        self._roll_back(lost.error)
        self.target = lost
        if isinstance(self.inner, Port):
            self.inner._target = lost

    def _release(self) -> None:
        with suppress(ValueError):
            self.port._process.on_death.remove(self._abandon)
        with suppress(ValueError):
            self.port._world.on_database_down.remove(self._lose)
        if self._is_new:
            self.port._world.locks[self.port._spec.lock or ""].release()


class ProcessClock:
    """The clock of one process: its wall clock may be wrong, its sleeps are calls."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def now(self) -> float:
        self._check()
        return self._world.now() + self._process.wall_offset_s

    def monotonic(self) -> float:
        self._check()
        return self._world.time_s

    def sleep(self, seconds: float) -> None:
        """Sleep in simulated time; a process may die meanwhile."""
        self._world.call(self._process, PortKind.LOCAL, "clock.sleep", self._world.wait, (seconds,))

    def _check(self) -> None:
        if not self._process.alive:
            raise Killed
