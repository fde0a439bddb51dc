"""The world of one history: its calls, its faults, its checkers and what happened.

Every call of a port comes here (``call``): the seed picks who runs next, the fault plan decides
what happens to the call, then it takes effect and the checkers look at the result. Nothing else
moves time or switches between processes, so a seed is one history.
"""

import traceback
from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from attrs import define, field
from greenlet import getcurrent

from simulation.faults import NO_PLAN, Fault, FaultKind, FaultPlan, PortKind
from simulation.scheduler import START_S, Killed, Process, Scheduler, Task
from tileferry.domain.errors import (
    IllegalTransitionError,
    InvalidValueError,
    MisuseError,
    TileManagerError,
)
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import TileId

if TYPE_CHECKING:
    from simulation.checkers.base import Checker
    from simulation.real_stores import RealStores

STEPS_MAX = 20_000


class CommandFailedError(Exception):
    """A command ended without an error of the product, but its work is not complete."""


EXPECTED = (TileManagerError, CommandFailedError, KeyboardInterrupt)
"""The errors with which a process may end; all others are defects of the product or of us."""


DEFECTS = (InvalidValueError, MisuseError)
"""Errors that are bugs here: the commands of a scenario are valid, though maybe too late."""


class Violation(Exception):  # noqa: N818  # what the simulator looks for is not an error of its own
    """An invariant does not hold."""


@define(eq=False)
class Call:
    """One call of a port, as checkers see it after it happened."""

    process: Process
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    error: BaseException | None


@define(eq=False)
class World(Scheduler):
    """One history."""

    plan: FaultPlan = NO_PLAN
    real: "RealStores | None" = field(default=None, kw_only=True)
    """The real stores of this history, if it has any."""
    step: int = field(default=0, init=False)
    checkers: list["Checker"] = field(factory=list, init=False)
    actions: dict[str, Callable[[Process], object]] = field(factory=dict, init=False)
    """What an operator may do at any moment, by name."""
    disks: list[Callable[[Callable[[], float]], None]] = field(factory=list, init=False)
    """Lose what was not flushed, when the power is lost."""
    on_database_down: list[Callable[[], None]] = field(factory=list, init=False)
    """End connections and their transactions, when the database goes away."""
    violation: Violation | None = field(default=None, init=False)
    call_counts: Counter[str] = field(factory=Counter, init=False)
    fault_pairs: Counter[tuple[str, str]] = field(factory=Counter, init=False)
    transitions: Counter[str] = field(factory=Counter, init=False)
    checks: int = field(default=0, init=False)
    port_kinds: dict[str, PortKind] = field(factory=dict, init=False)
    """The calls seen, and what kind of port each belongs to."""
    faults_over_s: float = field(default=0.0, init=False)
    """When the last fault so far ends."""
    _handlers: dict[str, list[Callable[[Call], None]]] = field(
        factory=lambda: defaultdict(list), init=False
    )
    _due: dict[tuple[str, int], list[Fault]] = field(factory=dict, init=False)
    _pending: list[Fault] = field(factory=list, init=False)
    _lasting: list[tuple[float, Fault]] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        for fault in self.plan.faults:
            self._due.setdefault((fault.call or "", fault.nth), []).append(fault)

    # The history

    def now(self) -> float:
        """Return the true time of day, as the database's clock tells it."""
        return START_S + self.time_s

    def monotonic(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        """Let simulated time pass for the current task."""
        self.wait(seconds)

    def run(self, *, liveness_s: float) -> None:
        """Run until all awaited processes are done; they must be, soon after the last fault."""
        while self.violation is None and self._has_unfinished():
            quiet_s = self.time_s - self.faults_over_s
            if quiet_s > liveness_s or self.step > STEPS_MAX:
                self._fail_to_end(f"did not end within {quiet_s:.0f} s and {self.step} calls")
            elif not self.run_next():
                self._fail_to_end("cannot go on")
        for checker in self.checkers:
            if self.violation is None:
                self.checks += 1
                checker.at_end()
        self.end_all()

    def _has_unfinished(self) -> bool:
        return any(one.is_awaited and not one.done for one in self.processes.values())

    def _fail_to_end(self, problem: str) -> None:
        left = [one.name for one in self.processes.values() if one.is_awaited and not one.done]
        self.fail("liveness", (18, 38), f"{', '.join(left)} {problem}")

    def fail(self, checker: str, invariants: tuple[int, ...], problem: str) -> None:
        """Report a violation, which ends the history at once."""
        numbers = f" (invariants {', '.join(map(str, invariants))})" if invariants else ""
        self.note(f"VIOLATION {checker}: {problem}")
        if self.violation is None:
            self.violation = Violation(f"{checker}{numbers}: {problem}")
        if getcurrent() is not self._hub:
            self._hub.switch()  # never to return: the run ends
            raise Killed

    def note_failure(self, process: Process, error: BaseException) -> None:
        """Note with which error a process ended: one that an operator can understand, or a bug."""
        super().note_failure(process, error)
        if _is_defect(error):
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.fail(
                "error",
                (5,),
                f"{process.name} ended with {type(error).__name__}: {error}"
                f" ({where.filename.rpartition('/')[2]}:{where.lineno})",
            )

    # Calls

    def watch(self, checker: "Checker") -> None:
        """Add a checker."""
        self.checkers.append(checker)
        for name, handler in checker.handlers().items():
            self._handlers[name].append(handler)

    def call(  # noqa: PLR0917  # most calls have just these
        self,
        process: Process,
        kind: PortKind,
        name: str,
        effect: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        undo: Callable[[], object] = lambda: None,
    ) -> Any:
        """Make one call of a port; ``undo`` gives back what a call holds that has no effect."""
        if not process.alive:
            raise Killed
        kwargs = kwargs or {}
        task = self._by_body[getcurrent()]
        self.pause(task)
        self._count(kind, name)
        fault = self._find_fault(kind, name)
        result: Any = None
        error: BaseException | None = None
        took_effect = False
        try:
            if fault is not None:
                self._apply_before(fault, task, kind, name)
            took_effect = True
            result = _settle(effect(*args, **kwargs))
            if fault is not None and fault.kind is FaultKind.ERROR_AFTER:
                error = fault.build_error(kind, name, self._draw(fault))
        except Exception as raised:  # noqa: BLE001  # raised again below, after the checks
            error = raised
            if not took_effect:
                undo()
        brief = _brief(args) if args else ""
        self.note(f"{task.name} {name}{brief}{'' if error is None else _describe(error)}")
        if name in self._handlers:
            self._check(Call(process, name, args, kwargs, result, error))
        if error is not None:
            raise error
        if fault is not None and fault.kind is FaultKind.CRASH_AFTER:
            self.kill(process)
        return result

    def _count(self, kind: PortKind, name: str) -> None:
        self.step += 1
        if name in self.port_kinds:
            self.call_counts[name] += 1
        else:
            self.call_counts[name] = 1
            self.port_kinds[name] = kind

    def _check(self, call: Call) -> None:
        for handler in self._handlers[call.name]:
            self.checks += 1
            handler(call)

    # Faults

    def _find_fault(self, kind: PortKind, name: str) -> Fault | None:
        due = self._due
        if due:
            for key in ((name, self.call_counts[name]), ("", self.step)):
                if key in due:
                    self._pending += due.pop(key)
        if self._lasting:
            self._lasting = [one for one in self._lasting if one[0] > self.time_s]
            for _, fault in self._lasting:
                if fault.hits(kind, name):
                    return fault
        if self._pending:
            for fault in self._pending:
                if fault.can_hit(kind):
                    self._pending.remove(fault)
                    self._begin_fault(fault, name)
                    return fault
        return None

    def _begin_fault(self, fault: Fault, name: str) -> None:
        self.fault_pairs[fault.kind.value, name] += 1
        self.note(f"fault {fault}")
        if fault.kind is FaultKind.DATABASE_DOWN:
            for lose in self.on_database_down[::-1]:  # transactions before their connections
                lose()
        if fault.lasts_s:
            self._lasting.append((self.time_s + fault.lasts_s, fault))
        self.faults_over_s = max(self.faults_over_s, self.time_s + fault.lasts_s)

    def _apply_before(self, fault: Fault, task: Task, kind: PortKind, name: str) -> None:
        process = task.process
        match fault.kind:
            case FaultKind.CRASH_BEFORE:
                self.kill(process)
            case FaultKind.POWER_LOSS:
                self.lose_power(fault)
            case FaultKind.STOP:
                process.stopped_until_s = self.time_s + fault.lasts_s
                self._ready.append(task)
                self._switch(task)
            case FaultKind.DELAY:
                self.wait(fault.lasts_s)
            case FaultKind.CLOCK_JUMP:
                for one in self.processes.values():  # of one machine
                    one.wall_offset_s += fault.amount
            case FaultKind.OPERATOR:
                self.start_action(fault)
            case FaultKind.ERROR_AFTER | FaultKind.CRASH_AFTER:
                pass
            case _:
                error = fault.build_error(kind, name, self._draw(fault))
                if error is not None:
                    raise error

    def _draw(self, fault: Fault) -> float:
        return self.schedule.random() if fault.is_chancy else 0.0

    def lose_power(self, fault: Fault) -> None:
        """End all processes; the disks lose any part of what was not flushed."""
        chance = Random(f"{self.seed}/{fault.number}")
        me = self._by_body.get(getcurrent())
        for process in list(self.processes.values()):
            if process.alive:
                self._end_process(process)
                if process.restarts:
                    self._restart_later(process)
                else:
                    process.done = True
        for lose in self.disks:
            lose(chance.random)
        for checker in self.checkers:
            self.checks += 1
            checker.after_power_loss()
        if me is not None:
            raise Killed

    def start_action(self, fault: Fault) -> None:
        """Let an operator do something, in a process of its own."""
        if fault.action in self.actions:
            work = self.actions[fault.action]
            name = f"operator-{fault.number}"
            self.start_process(Process(name=name, main=work, restarts=False))


def _is_defect(error: BaseException) -> bool:
    """Return whether an error is a bug; refusing an operator's command is not."""
    if isinstance(error, IllegalTransitionError):
        return error.actor != Actor.OPERATOR
    return isinstance(error, DEFECTS) or not isinstance(error, EXPECTED)


def _settle(result: Any) -> Any:
    """Read an iterator at once: what it reads is the state at the time of the call."""
    return iter(list(result)) if hasattr(result, "__next__") else result


def _describe(error: BaseException) -> str:
    return f" -> {type(error).__name__}"


_TELLING = (str, int, float, TileId)


def _brief(args: tuple[Any, ...]) -> str:
    """Return the arguments that tell histories apart."""
    return "".join([f" {arg}" for arg in args if isinstance(arg, _TELLING)])
