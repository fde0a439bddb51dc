"""Run seeds: one, a range of them, or the shortest list of faults that still fails."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from attrs import define, evolve, field, frozen

from simulation.faults import TARGETS, FaultKind, FaultMenu, FaultPlan, PortKind, draw_plan
from simulation.scenarios import SCENARIOS
from simulation.world import World

if TYPE_CHECKING:
    from simulation.real_stores import RealServer

MENU_SEEDS = 8
"""So many histories without faults show which calls a scenario makes."""


@frozen(kw_only=True)
class Outcome:
    """The end of one history."""

    scenario: str
    seed: int
    violation: str | None
    trace_hash: str
    plan: FaultPlan
    steps: int
    simulated_s: float
    checks: int
    fault_pairs: Counter[tuple[str, str]]
    transitions: Counter[str]
    port_kinds: dict[str, PortKind]
    trace: Sequence[str] = ()
    server: "RealServer | None" = None
    """The server of the real stores, if there were any."""

    @property
    def command(self) -> str:
        """The command that replays this history."""
        numbers = ",".join(str(fault.number) for fault in self.plan.faults) or "none"
        return (
            f"python -m simulation --scenario {self.scenario} --seed {self.seed}"
            f" --faults {numbers} --trace{'' if self.server is None else ' --real'}"
        )


def run_plan(
    scenario: str,
    seed: int,
    plan: FaultPlan,
    *,
    keeps_trace: bool = False,
    server: "RealServer | None" = None,
) -> Outcome:
    """Run one history with these faults; with a server, over real stores as well."""
    if server is None:
        return _run_world(scenario, World(seed, plan), keeps_trace=keeps_trace)
    with server.open_stores() as real:
        found = _run_world(scenario, World(seed, plan, real=real), keeps_trace=keeps_trace)
    plain = run_plan(scenario, seed, plan)
    if found.violation is None and found.trace_hash != plain.trace_hash:
        found = evolve(found, violation="real stores: the history is not the one in memory")
    return evolve(found, server=server)


def _run_world(scenario: str, world: World, *, keeps_trace: bool) -> Outcome:
    kind = SCENARIOS[scenario]
    if world.real is not None:
        world.real.attach(world)
    kind(world)
    world.run(liveness_s=kind.liveness_s)
    return Outcome(
        scenario=scenario,
        seed=world.seed,
        violation=None if world.violation is None else str(world.violation),
        trace_hash=world.trace_hash,
        plan=world.plan,
        steps=world.step,
        simulated_s=world.time_s,
        checks=world.checks,
        fault_pairs=world.fault_pairs,
        transitions=world.transitions,
        port_kinds=world.port_kinds,
        trace=world.trace if keeps_trace else (),
    )


@cache
def get_menu(scenario: str) -> FaultMenu:
    """Return the calls that a scenario makes without faults, and what operators can do."""
    calls: Counter[str] = Counter()
    kinds: dict[str, PortKind] = {}
    actions: set[str] = set()
    for seed in range(MENU_SEEDS):
        world = World(seed)
        SCENARIOS[scenario](world)
        actions |= set(world.actions)
        world.run(liveness_s=SCENARIOS[scenario].liveness_s)
        calls |= world.call_counts
        kinds |= world.port_kinds
    return FaultMenu(
        calls=dict(calls),
        kinds=dict(sorted(kinds.items())),
        actions=tuple(sorted(actions)),
        weights=SCENARIOS[scenario].weights,
        early=SCENARIOS[scenario].early,
        lasts_s_max=SCENARIOS[scenario].lasts_s_max,
    )


def get_plan(scenario: str, seed: int) -> FaultPlan:
    """Return the faults of a seed."""
    return draw_plan(seed, get_menu(scenario))


def run_seed(
    scenario: str,
    seed: int,
    *,
    keep: Iterable[int] | None = None,
    keeps_trace: bool = False,
    server: "RealServer | None" = None,
) -> Outcome:
    """Run the history of a seed, or with only some of its faults."""
    plan = get_plan(scenario, seed)
    if keep is not None:
        plan = plan.keep(list(keep))
    if server is not None:  # real stores cannot lose their power
        possible = [one for one in plan.faults if one.kind is not FaultKind.POWER_LOSS]
        plan = FaultPlan(possible)
    return run_plan(scenario, seed, plan, keeps_trace=keeps_trace, server=server)


def shrink(failed: Outcome) -> Outcome:
    """Return a failing history of the same seed from which no fault can be left out."""
    shortest = failed
    for fault in failed.plan.faults:
        left = [one.number for one in shortest.plan.faults if one != fault]
        plan = shortest.plan.keep(left)
        shorter = run_plan(failed.scenario, failed.seed, plan, server=failed.server)
        if shorter.violation is not None:
            shortest = shorter
    return shortest


@define
class Summary:
    """What many histories tried and found."""

    seeds: int = 0
    steps: int = 0
    simulated_s: float = 0.0
    checks: int = 0
    fault_pairs: Counter[tuple[str, str]] = field(factory=Counter)
    transitions: Counter[str] = field(factory=Counter)
    port_kinds: dict[str, PortKind] = field(factory=dict)
    failed: list[tuple[str, str]] = field(factory=list)
    """What was violated, and the command that replays it."""

    def add(self, outcome: Outcome) -> None:
        """Count a history; a failing one is shrunk."""
        self.seeds += 1
        self.steps += outcome.steps
        self.simulated_s += outcome.simulated_s
        self.checks += outcome.checks
        self.fault_pairs += outcome.fault_pairs
        self.transitions += outcome.transitions
        self.port_kinds |= outcome.port_kinds
        if outcome.violation is not None:
            shortest = shrink(outcome)
            self.failed.append((shortest.violation or "", shortest.command))

    def merge(self, other: "Summary") -> None:
        """Add what another process counted."""
        self.seeds += other.seeds
        self.steps += other.steps
        self.simulated_s += other.simulated_s
        self.checks += other.checks
        self.fault_pairs += other.fault_pairs
        self.transitions += other.transitions
        self.port_kinds |= other.port_kinds
        self.failed += other.failed

    def format(self) -> str:
        """Return the summary for people."""
        kinds: Counter[str] = Counter()
        for (kind, _), times in self.fault_pairs.items():
            kinds[kind] += times
        pairs = sum(len([p for p in self.port_kinds.values() if p in t]) for t in TARGETS.values())
        lines = [
            (
                f"{self.seeds:,} seeds, {self.simulated_s / 86_400:,.1f} simulated days,"
                f" {self.steps:,} calls, {self.checks:,} checks"
            ),
            f"{sum(kinds.values()):,} faults: "
            + ", ".join(f"{kind} {times:,}" for kind, times in sorted(kinds.items())),
            f"{len(self.fault_pairs):,} of {pairs:,} pairs of fault and call were tried",
        ]
        if self.transitions:
            lines.append(f"{len(self.transitions)} transitions were taken")
        lines.append(f"{len(self.failed)} violations")
        for violation, command in self.failed[:10]:
            lines += [f"  {violation}", f"    {command}"]
        return "\n".join(lines)
