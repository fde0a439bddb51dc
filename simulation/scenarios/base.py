"""What every scenario has, and the parts that scenarios share."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import Any, ClassVar

from attrs import define, field

from simulation.checkers.clock import ClockChecker
from simulation.faults import FaultKind, PortKind
from simulation.ports import PortSpec, ProcessClock, connect
from simulation.scheduler import Process
from simulation.threads import WorkerClock
from simulation.world import World
from tileferry.adapters.memory import MemoryAuditSink
from tileferry.adapters.system import ReferenceClock, SharedRetryTokens
from tileferry.application import AuditTrail, RetryManager
from tileferry.domain.retry import RetryBudget

LOGGER = logging.getLogger("simulation")
LOGGER.disabled = True
AUDIT = PortSpec(name="audit", kind=PortKind.DATABASE)


@define(eq=False)
class Scenario(ABC):
    """A small world: its state, its processes and its checkers."""

    name: ClassVar[str] = ""
    liveness_s: ClassVar[float] = 4 * 3600.0
    """The simulated time after the last fault within which everything must end."""
    weights: ClassVar[dict[FaultKind, float]] = {}
    early: ClassVar[float] = 1.0
    lasts_s_max: ClassVar[float] = 3_000.0
    """Maximum duration of a fault; a longer one would exceed every wait and show nothing new."""
    world: World
    chance: Random = field(init=False)
    """Decides about the size and the settings of this world, not about its history."""
    retry_budget: RetryBudget = field(factory=RetryBudget, init=False)
    audit_log: MemoryAuditSink = field(factory=MemoryAuditSink, init=False)
    _ids: Iterator[int] = field(factory=count, init=False)

    def __attrs_post_init__(self) -> None:
        self.chance = Random(f"{self.world.seed}/setup")
        self.build()
        self.world.watch(ClockChecker(self.world, type(self), self.liveness_s))

    @abstractmethod
    def build(self) -> None:
        """Create the state, the checkers and the processes of this world."""

    # Parts of a process

    def connect(self, process: Process, spec: PortSpec, target: Any) -> Any:
        """Return a port as a process sees it."""
        return connect(self.world, process, spec, self.pair(spec, target, process))

    def pair(self, spec: PortSpec, model: Any, process: Process | None = None) -> Any:
        """Return an adapter, with its real twin if this history has real stores."""
        real = self.world.real
        return model if real is None else real.pair(spec.name, model, process)

    def create_clock(self, process: Process) -> WorkerClock:
        return WorkerClock(ProcessClock(self.world, process), self.world, process)

    def create_database_clock(self, clock: WorkerClock) -> ReferenceClock:
        """Return the clock with which a process compares dates in the database."""
        return ReferenceClock(clock, lambda: datetime.fromtimestamp(self.world.now(), UTC))

    def new_id(self) -> str:
        return f"id-{next(self._ids)}"

    def create_retry_manager(self, process: Process, clock: WorkerClock) -> RetryManager:
        """Return the retry manager of a process, which audits to the shared log."""
        sink = self.connect(process, AUDIT, self.audit_log)
        return RetryManager(
            clock=clock,
            new_id=self.new_id,
            audit=AuditTrail(logger=LOGGER, sinks=[sink]),
            tokens=SharedRetryTokens(clock=clock, budget=self.retry_budget),
        )
