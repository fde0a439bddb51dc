"""The simulator itself, and a slice of its seeds."""

import subprocess
import sys
from pathlib import Path

import pytest

from simulation.bugs import BUGS, plant
from simulation.faults import FaultKind
from simulation.mutations import mutate
from simulation.runner import Summary, get_menu, run_seed, shrink
from simulation.scenarios import SCENARIOS

ROOT = Path(__file__).parents[2]
SLICES = {"download": 150, "idempotency": 150, "queue": 100, "upload": 150}
"""Seeds of each scenario; ``make simulate`` runs many more."""


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_no_seed_of_the_slice_violates_an_invariant(scenario: str) -> None:
    summary = Summary()
    for seed in range(SLICES[scenario]):
        summary.add(run_seed(scenario, seed))
    assert summary.failed == []
    tried = {kind for kind, _ in summary.fault_pairs}
    weights = SCENARIOS[scenario].weights
    left = {kind.value for kind in FaultKind if weights.get(kind, 1.0)} - tried
    assert len(left) <= (2 if scenario == "queue" else 0)
    assert summary.checks > SLICES[scenario]


@pytest.mark.parametrize(
    ("bug", "scenario", "seed"),
    [
        ("wait_for_runs_follows_the_wall_clock", "queue", 103),
        ("dates_follow_the_wall_clock", "download", 109),
        ("dates_follow_the_wall_clock", "download", 40_035_597),
        ("dates_follow_the_wall_clock", "download", 40_046_127),
    ],
)
def test_seed_fails_only_with_its_bug(bug: str, scenario: str, seed: int) -> None:
    """For bugs that take many seeds. After a change, ``--bugs NAME`` tells another one."""
    assert run_seed(scenario, seed).violation is None
    with plant(bug):
        assert run_seed(scenario, seed).violation is not None


def get_hashes(scenario: str, hash_seed: str) -> list[str]:
    """Run seeds in a process of their own, whose sets have another order."""
    script = (
        "from simulation.runner import run_seed;"
        f"print(*(run_seed({scenario!r}, seed).trace_hash for seed in range(5)))"
    )
    done = subprocess.run(  # noqa: S603  # our own interpreter
        [sys.executable, "-c", script],
        env={"PYTHONHASHSEED": hash_seed},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_seed_is_one_history_in_every_process(scenario: str) -> None:
    here = [run_seed(scenario, seed, keeps_trace=True).trace_hash for seed in range(5)]
    assert len(set(here)) == 5
    assert get_hashes(scenario, "1") == get_hashes(scenario, "2") == here


def test_failing_seed_is_shrunk_to_the_faults_that_it_needs() -> None:
    get_menu("upload")
    with plant("acknowledged_envelope_is_repeated"):
        outcomes = (run_seed("upload", seed) for seed in range(400))
        failed = next(one for one in outcomes if one.violation and len(one.plan.faults) > 2)
        shortest = shrink(failed)
        again = run_seed("upload", failed.seed, keep=[f.number for f in shortest.plan.faults])
    assert 0 < len(shortest.plan.faults) < len(failed.plan.faults)
    assert (again.violation, again.trace_hash) == (shortest.violation, shortest.trace_hash)
    assert f"--seed {failed.seed} --faults " in shortest.command
    assert run_seed("upload", failed.seed).violation is None


@pytest.mark.parametrize(
    "name",
    [
        "tiles_are_not_flushed",
        "pinned_tiles_are_evicted",
        "retries_cost_no_token",
        "retry_does_not_look_at_its_claim",
        "stop_is_not_noticed_during_a_run",
    ],
)
def test_planted_bug_is_found(name: str) -> None:
    (scenario,) = BUGS[name].scenarios
    get_menu(scenario)
    with plant(name):
        assert any(run_seed(scenario, seed).violation for seed in range(80))


@pytest.mark.parametrize("name", sorted(BUGS))
def test_every_planted_bug_fits_the_source(name: str) -> None:
    assert mutate(BUGS[name]).co_code
    assert set(BUGS[name].scenarios) <= set(SCENARIOS)
