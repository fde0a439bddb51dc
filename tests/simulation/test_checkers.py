"""Which checker of the simulator looks at which invariant."""

import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from simulation.checkers.base import Checker
from simulation.checkers.clock import StopChecker
from simulation.scheduler import Process
from simulation.world import World

ROOT = Path(__file__).parents[2]
WORLD = "simulation/world.py::World"


def _iter_checkers(base: type[Checker]) -> Iterator[type[Checker]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _iter_checkers(kind)


def list_checkers() -> dict[str, list[str]]:
    """Return the checkers of each invariant, as they say themselves."""
    for path in sorted((ROOT / "simulation" / "checkers").glob("[a-z]*.py")):
        import_module(f"simulation.checkers.{path.stem}")
    found: dict[int, set[str]] = {number: {WORLD} for number in (5, 18, 38)}
    for kind in (kind for kind in _iter_checkers(Checker) if "invariants" in vars(kind)):
        name = f"{kind.__module__.replace('.', '/')}.py::{kind.__name__}"
        for number in kind.invariants:
            found.setdefault(number, set()).add(name)
    return {str(number): sorted(found[number]) for number in sorted(found)}


def test_every_checker_is_named_at_its_invariants() -> None:
    claims = tomllib.loads((ROOT / "tests/invariants.toml").read_text(encoding="utf-8"))
    assert claims["checkers"] == list_checkers()
    assert set(claims["checkers"]) <= set(claims["claims"])


def test_every_claimed_invariant_has_a_checker_or_a_reason_why_not() -> None:
    claims = tomllib.loads((ROOT / "tests/invariants.toml").read_text(encoding="utf-8"))
    simulated, outside = set(claims["checkers"]), claims["outside_the_simulator"]
    assert simulated.isdisjoint(outside)
    assert simulated | set(outside) == set(claims["claims"])
    for number, entry in outside.items():
        assert entry["why"], number
        assert entry["checked_by"], number
        for path in entry["checked_by"]:
            assert (ROOT / path).is_file(), f"{number}: {path} does not exist"


@pytest.mark.parametrize(
    ("restarts", "stops", "suspended", "reported"),
    [(0, 3, "", 1), (0, 4, "", 0), (1, 0, "", 0), (0, 3, "worker", 0), (0, 3, "other", 0)],
)
def test_process_that_goes_on_after_its_grace_is_reported(
    restarts: int, stops: int, suspended: str, reported: int
) -> None:
    world = World(0)
    process = Process(name="worker", main=lambda _process: world.wait(20.0))
    world.start_process(process)
    world.start_process(Process(name="other", main=lambda _process: world.wait(20.0)))
    counts = iter([3, stops])
    StopChecker(world, 10.0).note_signal(process, lambda: next(counts, stops))
    process.generation += restarts
    if suspended:
        world.processes[suspended].stopped_until_s = 5.0
    world.run(liveness_s=60.0)
    assert (world.violation is not None) == bool(reported)
