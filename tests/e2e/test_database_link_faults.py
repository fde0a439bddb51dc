"""Commands whose link to Postgres is cut, late or torn to pieces at the n-th message."""

import os
from collections.abc import Iterator

import pytest
from support.fault_scenarios import (
    DOCUMENTED_CODES,
    SCENARIOS,
    FaultScenario,
    FaultyInstallation,
    prepare,
    try_every,
)
from support.network_faults import FaultyNetwork, LinkFault, NetworkFault, create_faulty_network


@pytest.fixture
def network(faulty_installation: FaultyInstallation) -> Iterator[FaultyNetwork]:
    with create_faulty_network(faulty_installation.database_url) as running:
        yield running


def check_fault(
    faulty_installation: FaultyInstallation,
    network: FaultyNetwork,
    scenario: FaultScenario,
    fault: NetworkFault,
) -> bool:
    """Run the command with the fault, then without; return whether the fault was reached."""
    faulty_installation.restore()
    network.arm(fault)
    url = network.get_proxied_url(faulty_installation.database_url)
    result = faulty_installation.run(*scenario.command, database_url=url).result
    reached = network.has_failed()
    network.disarm()
    assert result.code in DOCUMENTED_CODES, result
    assert "Traceback" not in result.err, result.err
    assert "internal error" not in result.err, result.err
    has_lost_nothing = fault.kind in {LinkFault.DELAY, LinkFault.SPLIT}
    if has_lost_nothing:
        assert result.code in scenario.done_codes, result
    faulty_installation.check_cache()
    if result.code == 0:  # it has said that all is done
        scenario.is_complete(faulty_installation)
    if result.code == 0 and has_lost_nothing:
        faulty_installation.check_runs()
        return reached
    faulty_installation.pass_time()
    again = faulty_installation.run(*scenario.command).result
    assert again.code in scenario.done_codes, again
    faulty_installation.check_cache()
    faulty_installation.check_uploads(complete=True)
    faulty_installation.check_runs()
    scenario.is_complete(faulty_installation)
    return reached


@pytest.mark.skipif("SOAK" not in os.environ, reason="every message of every command: make soak")
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("kind", LinkFault, ids=str)
def test_invariants_7_9_10_every_message(
    faulty_installation: FaultyInstallation, network: FaultyNetwork, name: str, kind: LinkFault
) -> None:
    scenario = SCENARIOS[name]
    prepare(faulty_installation, scenario)

    def check(number: int) -> bool:
        if kind is LinkFault.SPLIT and number:  # the first one has torn all messages
            return False
        return check_fault(faulty_installation, network, scenario, NetworkFault(kind, number))

    try_every(f"{name}: {kind.name}", check)


SLICE = (
    ("download:CUT_IN_MESSAGE:45", "download:SPLIT:0"),
    ("upload:LOSE_ANSWER:70",),
    ("worker:CUT:60",),
)
"""What is tried in ``make test``: command, fault and number of the message."""


def parse_fault(text: str) -> tuple[FaultScenario, NetworkFault]:
    """Parse a name as in ``SLICE``."""
    name, kind, number = text.split(":")
    return SCENARIOS[name], NetworkFault(LinkFault[kind], int(number))


@pytest.mark.parametrize("faults", SLICE, ids=lambda faults: faults[0].partition(":")[0])
def test_invariants_7_9_10_some_messages(
    faulty_installation: FaultyInstallation, network: FaultyNetwork, faults: tuple[str, ...]
) -> None:
    prepare(faulty_installation, parse_fault(faults[0])[0])
    for text in faults:
        assert check_fault(faulty_installation, network, *parse_fault(text)), text


@pytest.mark.skipif("FAULT" not in os.environ, reason="repeats the fault that FAULT names")
def test_one_fault(faulty_installation: FaultyInstallation, network: FaultyNetwork) -> None:
    scenario, fault = parse_fault(os.environ["FAULT"])
    prepare(faulty_installation, scenario)
    check_fault(faulty_installation, network, scenario, fault)
