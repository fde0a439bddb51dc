"""One fault at each call of a small history: a slice, and that it finds bugs."""

import sys

import pytest

from simulation.__main__ import main
from simulation.bugs import plant
from simulation.exhaustive import KINDS, SingleFault, choose_histories, run_faults
from simulation.faults import TARGETS
from simulation.scenarios import SCENARIOS

STRIDE = 17
"""Every so many faults of the shortest history; no divisor of the variants of a call."""


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_no_single_fault_of_the_slice_violates_an_invariant(scenario: str) -> None:
    history = choose_histories(scenario)[0]
    faults = history.list_faults()
    possible = [
        kind
        for call, times in history.calls.items()
        for _ in range(times)
        for kind in KINDS
        if history.kinds[call] in TARGETS[kind]
    ]
    assert len(set(faults)) == len(faults) == 2 * len(possible)
    report = run_faults(scenario, history.seed, faults[::STRIDE])
    assert (report.failed, report.histories) == ([], len(faults[::STRIDE]))


def test_single_fault_finds_a_planted_bug_and_can_be_replayed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    history = choose_histories("download")[0]
    faults = [fault for fault in history.list_faults() if fault.kind == "power_loss"]
    with plant("tiles_are_not_flushed"):
        (violation, command), *_ = run_faults("download", history.seed, faults).failed
    for bug, expected in (["--bug", "tiles_are_not_flushed"], 1), ([], 0):
        monkeypatch.setattr(sys, "argv", [*command.split()[2:], *bug])
        assert main() == expected
        last = capsys.readouterr().out.splitlines()[-1]
        assert last == (violation if expected else "no violation")


@pytest.mark.parametrize(
    "text", ["error_after:store.flush:2", "delay:provider.post_batch:1:permanent"]
)
def test_fault_is_named_as_it_is_given(text: str) -> None:
    fault = SingleFault.parse(text)
    assert str(fault) == text
    plan = fault.create_plan()
    assert {one.call for one in plan.faults} == {fault.call}
    assert plan.faults[0].nth == fault.nth
    assert (len(plan.faults) > 1) == fault.is_permanent


def test_fault_at_a_call_that_is_not_made_is_reported() -> None:
    seed = choose_histories("upload")[0].seed
    report = run_faults("upload", seed, [SingleFault.parse("delay:store.no_such_call:1")])
    assert "did not happen" in report.failed[0][0]


def test_unknown_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="must be KIND:CALL:NTH"):
        SingleFault.parse("delay:provider.post_batch:1:often")
