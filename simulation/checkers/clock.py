"""Checkers of time: what a jump of the wall clock may change, and how soon a stop is obeyed."""

from collections.abc import Callable
from itertools import zip_longest
from typing import ClassVar

from attrs import define, evolve

from simulation.checkers.base import Checker
from simulation.faults import FaultKind, FaultPlan
from simulation.scheduler import Process
from simulation.world import World


@define(eq=False)
class ClockChecker(Checker):
    """A wall clock that jumps changes nothing: without the jumps, the history is the same."""

    invariants: ClassVar[tuple[int, ...]] = (14,)
    build: Callable[[World], object]
    """Creates the same scenario in another world."""
    liveness_s: float

    def at_end(self) -> None:
        jumps = [
            fault
            for fault in self.world.plan.faults
            if fault.kind is FaultKind.CLOCK_JUMP and fault.amount
        ]
        has_jumped = any(kind == "clock_jump" for kind, _ in self.world.fault_pairs)
        if not jumps or not has_jumped or self.world.seed % 2 == 0:  # half of them: it takes long
            return
        still = [
            evolve(fault, amount=0.0) if fault in jumps else fault
            for fault in self.world.plan.faults
        ]
        other = World(self.world.seed, FaultPlan(still))
        self.build(other)
        other.run(liveness_s=self.liveness_s)
        pairs = zip_longest(self.world.trace, other.trace)
        differing = next((pair for pair in pairs if not _is_same(*pair)), None)
        if differing is not None:
            told, expected = (line and line.strip() for line in differing)
            self.fail(f"a jump of the wall clock leads to {told!r} instead of {expected!r}")


def _is_same(line: str | None, other: str | None) -> bool:
    return line == other or (line is not None and " fault " in line)


@define(eq=False)
class StopChecker(Checker):
    """A process that is asked to stop does so within its grace."""

    invariants: ClassVar[tuple[int, ...]] = (17,)
    grace_s: float

    def note_signal(self, process: Process, count_stops: Callable[[], int]) -> None:
        """Note that a process was asked to stop; look again after its grace.

        ``count_stops`` returns how often it has obeyed. A fault meanwhile may delay that, and so
        may any process that is suspended: it may hold the lock of an open transaction, which a real
        server ends after a while.
        """
        world, stops, generation = self.world, count_stops(), process.generation
        signalled_s = world.time_s
        faults = world.fault_pairs.total()
        if max(world.faults_over_s, process.stopped_until_s) > signalled_s:
            return

        def look() -> None:
            world.checks += 1
            is_restarted = process.generation > generation
            has_stopped = is_restarted or not process.alive or count_stops() > stops
            was_suspended = any(
                one.stopped_until_s > signalled_s for one in world.processes.values()
            )
            self.require(
                has_stopped or was_suspended or world.fault_pairs.total() > faults,
                f"{process.name} does not stop within {self.grace_s:.0f} s",
            )

        world.call_later(self.grace_s, look)
