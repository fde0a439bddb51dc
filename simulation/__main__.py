"""``python -m simulation``: run many seeds, or replay one."""

import argparse
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from simulation.bugs import BUGS, plant
from simulation.exhaustive import SingleFault, run_exhaustively
from simulation.runner import Outcome, Summary, get_menu, run_plan, run_seed
from simulation.scenarios import SCENARIOS

if TYPE_CHECKING:
    from simulation.real_stores import RealServer

CHUNK, REAL_CHUNK = 100, 5
FAILED_MAX = 20
"""A run that found so many violations ends."""


SEED_S_MAX = 60
"""A history that takes so much real time hangs."""


def _report_hang(_number: int, _frame: object) -> None:
    raise RuntimeError(f"the history hangs: it has not ended after {SEED_S_MAX} s")


def run_range(scenario: str, first: int, count: int, server: "RealServer | None" = None) -> Summary:
    """Run seeds one after the other."""
    summary = Summary()
    signal.signal(signal.SIGALRM, _report_hang)
    for seed in range(first, first + count):
        signal.alarm(SEED_S_MAX)
        summary.add(run_seed(scenario, seed, server=server))
        signal.alarm(0)
        if len(summary.failed) >= FAILED_MAX:
            break
    return summary


def hunt_bug(name: str, seeds_max: int) -> tuple[str, int | None, str]:
    """Return how many seeds it takes to find a planted bug, and what finds it."""
    scenarios = BUGS[name].scenarios
    for scenario in scenarios:
        get_menu(scenario)
    with plant(name):
        for number in range(seeds_max):
            scenario = scenarios[number % len(scenarios)]
            outcome = run_seed(scenario, number // len(scenarios))
            if outcome.violation is not None:
                return name, number + 1, outcome.violation
    return name, None, ""


def hunt_bugs(names: list[str], seeds_max: int, jobs: int) -> int:
    """Look for planted bugs; return how many were not found."""
    missed = 0
    with ProcessPoolExecutor(jobs) as pool:
        for name, seeds, violation in pool.map(hunt_bug, names, [seeds_max] * len(names)):
            missed += seeds is None
            print(
                f"{name:45} {'NOT FOUND' if seeds is None else seeds!s:>9}  {violation[:100]}",
                flush=True,
            )
    print(f"{len(names) - missed} of {len(names)} planted bugs found")
    return missed


def run_all(
    scenarios: list[str], first: int, count: int, jobs: int, server: "RealServer | None" = None
) -> Summary:
    """Run as many seeds, divided between the scenarios and the processes."""
    summary = Summary()
    share = -(-count // len(scenarios))
    chunk = CHUNK if server is None else REAL_CHUNK
    ranges = [
        (scenario, first + start, min(chunk, share - start), server)
        for start in range(0, share, chunk)
        for scenario in scenarios
    ]
    if jobs == 1:
        for one in ranges:
            summary.merge(run_range(*one))
        return summary
    with ProcessPoolExecutor(jobs) as pool:
        for part in pool.map(run_range, *zip(*ranges, strict=True)):
            summary.merge(part)
            if len(summary.failed) >= FAILED_MAX:
                pool.shutdown(cancel_futures=True)
                break
    return summary


def show(outcome: Outcome) -> None:
    """Print one history."""
    sys.stdout.writelines(outcome.trace)
    for fault in outcome.plan.faults:
        print(f"fault {fault}")
    if outcome.plan.faults and not outcome.fault_pairs:
        print("no fault happened: its call was not made")
    print(f"{outcome.steps} calls, {outcome.simulated_s:.1f} s, hash {outcome.trace_hash}")
    print(outcome.violation or "no violation")


def main() -> int:
    """Run what the arguments ask for; return 1 if an invariant was violated."""
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), help="only this scenario")
    parser.add_argument("--seed", type=int, help="replay one seed")
    parser.add_argument("--faults", help="only these of its faults, such as 3,17, or none")
    parser.add_argument("--fault", help="only this fault: KIND:CALL:NTH or KIND:CALL:NTH:permanent")
    parser.add_argument("--trace", action="store_true", help="print every call of the history")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes run them")
    parser.add_argument("--bugs", help="look for planted bugs: names with commas, or all")
    parser.add_argument("--bug", choices=sorted(BUGS), help="replay with this planted bug")
    parser.add_argument(
        "--exhaustive", action="store_true", help="try every single fault in small histories"
    )
    parser.add_argument(
        "--real", action="store_true", help="run the seeds over real stores as well, and compare"
    )
    given = parser.parse_args()
    with _open_server(wanted=given.real) as server:
        return _run(given, server)


def _open_server(*, wanted: bool) -> "AbstractContextManager[RealServer | None]":
    if not wanted:
        return nullcontext()
    from simulation.real_stores import run_server  # noqa: PLC0415  # most runs need no Postgres

    return run_server()


def _run(given: argparse.Namespace, server: "RealServer | None") -> int:
    if given.bugs:
        names = sorted(BUGS) if given.bugs == "all" else given.bugs.split(",")
        return int(hunt_bugs(names, given.seeds, given.jobs) > 0)
    scenarios = [given.scenario] if given.scenario else sorted(SCENARIOS)
    if given.exhaustive:
        started_s = time.perf_counter()
        failures = run_exhaustively(scenarios, given.jobs)
        print(f"{time.perf_counter() - started_s:.1f} s")
        return int(failures > 0)
    if given.seed is not None:
        keep = None
        if given.faults is not None:
            keep = [int(one) for one in given.faults.split(",") if one.isdecimal()]
        for scenario in scenarios:
            get_menu(scenario)  # before the bug: it must not change the faults of a seed
        with plant(given.bug):
            outcomes = [
                run_plan(
                    scenario,
                    given.seed,
                    SingleFault.parse(given.fault).create_plan(),
                    keeps_trace=given.trace,
                    server=server,
                )
                if given.fault
                else run_seed(
                    scenario, given.seed, keep=keep, keeps_trace=given.trace, server=server
                )
                for scenario in scenarios
            ]
        for outcome in outcomes:
            show(outcome)
        return int(any(outcome.violation for outcome in outcomes))
    started_s = time.perf_counter()
    summary = run_all(scenarios, given.first, given.seeds, given.jobs, server)
    print(summary.format())
    print(f"{time.perf_counter() - started_s:.1f} s")
    return int(bool(summary.failed))


if __name__ == "__main__":
    sys.exit(main())
