"""One fault at each call of a small history, for every call and every kind, as SQLite tests.

A seed runs without faults first. Then it runs once for each of its calls, each kind of fault and
each duration: once, or permanently.
"""

import signal
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache

from attrs import define, field, frozen

from simulation.faults import TARGETS, Fault, FaultKind, FaultPlan, PortKind
from simulation.runner import Outcome, run_plan
from simulation.scenarios import SCENARIOS
from simulation.world import World

KINDS = (
    FaultKind.ERROR_BEFORE,
    FaultKind.ERROR_AFTER,
    FaultKind.CRASH_BEFORE,
    FaultKind.CRASH_AFTER,
    FaultKind.POWER_LOSS,
    FaultKind.DELAY,
)
ERRORS = frozenset({FaultKind.ERROR_BEFORE, FaultKind.ERROR_AFTER})
DELAY_S = 30.0
"""Longer than a lease."""
PERMANENT_S = 600.0
"""A permanent error lasts for so long, while commands are run again and again; then it ends."""
PERMANENT_HITS = 6
"""A permanent crash, power loss or delay happens to so many calls of the name."""
CANDIDATES = 24
"""The seeds among which the small histories are chosen."""
CALLS_MAX = 150
"""The second history makes at most so many calls: each is run about twelve times."""
CHUNK = 60
CHUNK_S_MAX = 300
SHOWN_MAX = 10


@frozen
class SingleFault:
    """One kind of fault at one call, once or permanently."""

    kind: FaultKind
    call: str
    nth: int
    is_permanent: bool = False

    @classmethod
    def parse(cls, text: str) -> "SingleFault":
        """Return the fault of ``KIND:CALL:NTH`` or ``KIND:CALL:NTH:permanent``."""
        kind, call, nth, *more = text.split(":")
        if more not in ([], ["permanent"]):
            raise ValueError(f"fault {text}: must be KIND:CALL:NTH or KIND:CALL:NTH:permanent")
        return cls(FaultKind(kind), call, int(nth), bool(more))

    def __str__(self) -> str:
        return f"{self.kind}:{self.call}:{self.nth}{':permanent' if self.is_permanent else ''}"

    def create_plan(self) -> FaultPlan:
        """Return the faults of a history with this fault only."""
        lasts_s = DELAY_S if self.kind is FaultKind.DELAY else 0.0
        hits = PERMANENT_HITS if self.is_permanent else 1
        if self.is_permanent and self.kind in ERRORS:
            lasts_s, hits = PERMANENT_S, 1
        return FaultPlan(
            [
                Fault(
                    number=number,
                    kind=self.kind,
                    call=self.call,
                    nth=self.nth + number,
                    lasts_s=lasts_s,
                )
                for number in range(hits)
            ]
        )


@frozen
class FaultlessHistory:
    """The calls of a seed without faults."""

    seed: int
    calls: Counter[str]
    kinds: dict[str, PortKind]

    @classmethod
    def run(cls, scenario: str, seed: int) -> "FaultlessHistory":
        world = World(seed)
        SCENARIOS[scenario](world)
        world.run(liveness_s=SCENARIOS[scenario].liveness_s)
        return cls(seed, world.call_counts, world.port_kinds)

    def list_faults(self) -> list[SingleFault]:
        """Return every fault that can happen to one of its calls."""
        return [
            SingleFault(kind, call, nth, is_permanent)
            for call, times in sorted(self.calls.items())
            for nth in range(1, times + 1)
            for kind in KINDS
            if self.kinds[call] in TARGETS[kind]
            for is_permanent in (False, True)
        ]


@cache
def choose_histories(scenario: str) -> list[FaultlessHistory]:
    """Return two small histories: the shortest, and the shortest that makes the most calls."""
    found = [FaultlessHistory.run(scenario, seed) for seed in range(CANDIDATES)]
    shortest = min(found, key=lambda one: one.calls.total())
    small = [one for one in found if one.calls.total() <= CALLS_MAX] or [shortest]
    richest = min(small, key=lambda one: (-len(one.calls), one.calls.total()))
    return [shortest] if richest is shortest else [shortest, richest]


@define
class Report:
    """What one scenario was put through."""

    histories: int = 0
    faults: Counter[str] = field(factory=Counter)
    failed: list[tuple[str, str]] = field(factory=list)
    """What was violated, and the command that replays it."""

    def add(self, fault: SingleFault, outcome: Outcome) -> None:
        self.histories += 1
        self.faults[f"{fault.kind} {'permanently' if fault.is_permanent else 'once'}"] += 1
        violation = outcome.violation
        if not outcome.fault_pairs:
            violation = f"the call was not made, so the fault {fault} did not happen"
        if violation is not None:
            command = (
                f"python -m simulation --scenario {outcome.scenario} --seed {outcome.seed}"
                f" --fault {fault} --trace"
            )
            self.failed.append((violation, command))

    def merge(self, other: "Report") -> None:
        self.histories += other.histories
        self.faults += other.faults
        self.failed += other.failed

    def format(self) -> str:
        """Return the report for people."""
        kinds = ", ".join(f"{kind} {times:,}" for kind, times in sorted(self.faults.items()))
        lines = [f"{self.histories:,} single faults: {kinds}", f"{len(self.failed)} violations"]
        for violation, command in self.failed[:SHOWN_MAX]:
            lines += [f"  {violation}", f"    {command}"]
        return "\n".join(lines)


def run_faults(scenario: str, seed: int, faults: Sequence[SingleFault]) -> Report:
    """Run a seed once with each of the faults."""
    report = Report()
    for fault in faults:
        report.add(fault, run_plan(scenario, seed, fault.create_plan()))
    return report


def _report_hang(_number: int, _frame: object) -> None:
    raise RuntimeError(f"a history hangs: {CHUNK} have not ended after {CHUNK_S_MAX} s")


def _run_chunk(scenario: str, seed: int, faults: Sequence[SingleFault]) -> Report:
    signal.signal(signal.SIGALRM, _report_hang)
    signal.alarm(CHUNK_S_MAX)
    report = run_faults(scenario, seed, faults)
    signal.alarm(0)
    return report


def run_exhaustively(scenarios: Sequence[str], jobs: int) -> int:
    """Try every single fault of the small histories; return how many violate an invariant."""
    failures = 0
    with ProcessPoolExecutor(jobs) as pool:
        for scenario in scenarios:
            report, chunks = Report(), []
            for history in choose_histories(scenario):
                faults = history.list_faults()
                calls = f"{history.calls.total()} calls of {len(history.calls)} names"
                print(f"{scenario}, seed {history.seed}: {calls}, {len(faults):,} faults")
                chunks += [
                    (scenario, history.seed, faults[start : start + CHUNK])
                    for start in range(0, len(faults), CHUNK)
                ]
            for part in pool.map(_run_chunk, *zip(*chunks, strict=True)):
                report.merge(part)
            print(report.format(), flush=True)
            failures += len(report.failed)
    return failures
