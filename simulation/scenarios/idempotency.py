"""Several processes carry out the same operations, each once, under idempotency keys."""

from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

from attrs import define, evolve, field

from simulation.checkers.audit import AuditChecker
from simulation.checkers.idempotency import IdempotencyChecker
from simulation.faults import FaultKind, PortKind
from simulation.ports import PortSpec
from simulation.scenarios.base import Scenario
from simulation.scheduler import Process
from simulation.threads import SimulatedHeartbeat
from simulation.world import World
from tileferry.adapters.memory import MemoryIdempotencyStore
from tileferry.application import IdempotencyManager, WhenBusy
from tileferry.domain.canonical import JsonValue
from tileferry.domain.retry import RetryCategory
from tileferry.domain.tiles import classify_provider_error

KEYS = PortSpec(name="keys", kind=PortKind.DATABASE)
EFFECTS = PortSpec(name="effects", kind=PortKind.PROVIDER)
LEASE_S = 10.0


@define(eq=False)
class SimulatedEffects:
    """Something outside that must not happen twice without need."""

    world: World
    checker: IdempotencyChecker
    slow_s: float
    runs: int = 0

    def perform(self, key: str, process: Process) -> JsonValue:
        """Take effect; it may take longer than a lease."""
        self.checker.begin_operation(key, process)
        self.runs += 1
        number = self.runs
        self.world.wait(self.world.schedule.random() * self.slow_s)
        return {"key": key, "run": number}


@define(eq=False)
class IdempotencyScenario(Scenario):
    """A store of keys and those who share it."""

    name: ClassVar[str] = "idempotency"
    lasts_s_max: ClassVar[float] = 10 * LEASE_S
    weights: ClassVar[dict[FaultKind, float]] = {FaultKind.DISK_FULL: 0.0}
    store: MemoryIdempotencyStore = field(init=False)
    checker: IdempotencyChecker = field(init=False)
    effects: SimulatedEffects = field(init=False)
    beats: bool = field(init=False)
    keys: list[str] = field(init=False)

    def build(self) -> None:
        world, chance = self.world, self.chance
        self.store = MemoryIdempotencyStore(clock=world)
        self.checker = IdempotencyChecker(world, self.store, LEASE_S)
        self.beats = chance.random() < 0.8
        # Without a heartbeat, an operation must end within its lease.
        slow_s = chance.choice([0.5, 5.0, 1.5 * LEASE_S]) if self.beats else 5.0
        self.effects = SimulatedEffects(world, self.checker, slow_s)
        self.keys = [f"key-{number}" for number in range(chance.randint(1, 3))]
        world.watch(self.checker)
        world.watch(AuditChecker(world, self.audit_log))
        world.actions["clear a key "] = partial(self.clear, chance.choice(self.keys))
        world.actions["remove expired keys "] = self.forget_expired
        for number in range(chance.choice([2, 2, 3, 4])):
            order = chance.sample(self.keys, len(self.keys))
            busy = chance.choice([WhenBusy.WAIT, WhenBusy.WAIT, WhenBusy.REFUSE])
            main = partial(self.call_all, order, busy)
            world.start_process(Process(name=f"caller-{number}", main=main))

    def create_manager(self, process: Process) -> IdempotencyManager:
        retry = self.create_retry_manager(process, self.create_clock(process))
        return IdempotencyManager(
            store=self.connect(process, KEYS, self.store),
            clock=retry.clock,
            new_id=self.new_id,
            audit=retry.audit,
            heartbeat=SimulatedHeartbeat(self.world, process) if self.beats else None,
            lease=timedelta(seconds=LEASE_S),
        )

    def call_all(self, keys: list[str], busy: WhenBusy, process: Process) -> None:
        """Carry out every operation, or get the result of whoever did."""
        keyed = self.create_manager(process)
        retry = self.create_retry_manager(process, self.create_clock(process))
        retry = evolve(retry, idempotency_manager=keyed)
        effects = self.connect(process, EFFECTS, self.effects)
        for key in keys:
            result: Any = retry.execute_with_retry_sync(
                RetryCategory.KV_PUT,
                f"put {key}",
                partial(effects.perform, key, process),
                idempotency_key=key,
                payload={"key": key},
                classifier=classify_provider_error,
                when_busy=busy,
                result_type=JsonValue,
            )
            self.checker.check_result(key, result)

    # Operators

    def clear(self, key: str, process: Process) -> None:
        self.create_manager(process).clear_idempotency_sync(key)

    def forget_expired(self, process: Process) -> None:
        self.create_manager(process).forget_expired_sync()
