"""Histories over real stores are those in memory; what differs is found."""

import sys
from contextlib import nullcontext

import pytest

from simulation.__main__ import main
from simulation.faults import Fault, FaultKind, FaultPlan
from simulation.real_stores import RealServer
from simulation.runner import Summary, get_menu, run_plan, run_seed, shrink
from simulation.scenarios import SCENARIOS
from simulation.scenarios.cache import LEDGER, CacheScenario
from simulation.scheduler import Process
from simulation.world import World
from tileferry.adapters.memory import MemoryAuditSink, MemoryCacheLedger
from tileferry.domain.errors import DatabaseError

SEEDS = {"download": (0, 3), "idempotency": (0, 1, 2), "queue": (1, 4), "upload": (0, 1)}
"""Short histories with faults; ``make simulate`` runs more."""


@pytest.fixture
def server(postgres_url: str) -> RealServer:
    """Return the server of this run."""
    return RealServer(postgres_url, "tileferry_template")


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_seeds_of_the_slice_are_the_same_over_real_stores(
    server: RealServer, scenario: str
) -> None:
    summary = Summary()
    for seed in SEEDS[scenario]:
        summary.add(run_seed(scenario, seed, server=server))
    assert summary.failed == []


def test_difference_is_found_and_can_be_replayed(
    server: RealServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    get_menu("download")
    with monkeypatch.context() as broken:
        broken.setattr(MemoryCacheLedger, "release", lambda *_args: None)
        found = shrink(run_seed("download", 0, keep=[0], server=server))
    assert found.violation is not None
    assert found.violation.startswith("real stores: ledger")
    monkeypatch.setattr("simulation.real_stores.run_server", lambda: nullcontext(server))
    monkeypatch.setattr(sys, "argv", found.command.split()[2:])
    assert main() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no violation"


def test_difference_that_no_call_shows_is_found_at_the_end(
    server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryAuditSink, "emit", lambda *_args: None)
    found = run_plan("idempotency", 0, FaultPlan(), server=server)
    assert found.violation is not None
    assert found.violation.startswith("real stores: end of audit.iter_entries: memory [], real [")


def test_restart_of_the_server_ends_connections_alike(server: RealServer) -> None:
    restart = Fault(number=0, kind=FaultKind.DATABASE_DOWN, call="metadata.commit", lasts_s=5.0)
    found = run_plan("download", 0, FaultPlan([restart]), server=server)
    assert found.violation is None
    assert found.fault_pairs["database_down", "metadata.commit"] == 1


@pytest.mark.parametrize("is_used_again", [True, False])
def test_restart_rolls_an_open_transaction_back(*, is_used_again: bool) -> None:
    world = World(0)
    cache = CacheScenario(world)
    failures: list[DatabaseError] = []

    def reserve(process: Process) -> None:
        ledger = cache.connect(process, LEDGER, cache.ledger)
        try:
            with ledger.begin_transaction() as books:
                books.reserve("cache", 100)
                for lose in world.on_database_down[::-1]:
                    lose()
                if is_used_again:
                    books.sum_used_bytes()
        except DatabaseError as error:
            failures.append(error)

    world.start_process(Process(name="client", main=reserve))
    world.run(liveness_s=60.0)
    assert (len(failures), cache.ledger.get_reservations()) == (1, {})
    assert world.on_database_down == []
