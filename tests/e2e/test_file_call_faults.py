"""Commands whose n-th file call fails: a clear error, nothing lost, and a re-run completes.

``make test`` tries some calls, ``make soak`` every call with every kind of fault. To repeat one:
``FAULT="download:EIO:12" .venv/bin/python -m pytest tests/e2e/test_file_call_faults.py -k one``
(``EIO+`` for a fault that stays).
"""

import os
from errno import EIO, ENOSPC

import pytest
from attrs import evolve
from support.call_faults import (
    CallFault,
    FaultKind,
    FaultyRun,
)
from support.fault_scenarios import (
    DOCUMENTED_CODES,
    DOWNLOAD,
    SCENARIOS,
    FaultScenario,
    FaultyInstallation,
    prepare,
    run_steps,
    try_every,
)

SLICE = (
    ("download:LOST:24", "download:ENOSPC+:30", "download:SHORT:6"),
    ("upload:LOST:14", "upload:EIO+:60"),
    ("worker:LOST:30",),
)
"""What is tried in ``make test``: command, kind (``+``: from then on) and number of the call."""
REASONS = ("error", "tileferry: ", os.strerror(EIO), os.strerror(ENOSPC))
"""One of these explains a command that did not do its work."""
PERMANENT = {FaultKind.EIO, FaultKind.ENOSPC}
"""What a broken or full disk goes on with; an interrupted call is retried until it is not."""
REPEATED = {FaultKind.EINTR, FaultKind.SHORT}
"""What is repeated or continued at once. A command that completed then leaves nothing behind."""


def check_fault(
    faulty_installation: FaultyInstallation, scenario: FaultScenario, fault: CallFault
) -> FaultyRun:
    """Run the command with the fault, then without."""
    faulty_installation.restore()
    ran = faulty_installation.run(*scenario.command, fault=fault)
    result = ran.result
    assert result.code in DOCUMENTED_CODES, result
    assert "Traceback" not in result.err, result.err
    assert "internal error" not in result.err, result.err
    if result.code not in scenario.done_codes:
        assert any(reason in result.err for reason in REASONS), result
    if fault.kind is not FaultKind.EINTR:  # which Python repeats: nothing was lost
        assert ran.find_resynced() == []
    check_state(faulty_installation, complete=False)
    if result.code == 0:  # it has said that all is done
        scenario.is_complete(faulty_installation)
        if fault.kind in REPEATED:
            return ran
    faulty_installation.pass_time()
    again = faulty_installation.run(*scenario.command).result
    assert again.code in scenario.done_codes, again
    check_state(faulty_installation, complete=True)
    scenario.is_complete(faulty_installation)
    return ran


def check_state(faulty_installation: FaultyInstallation, *, complete: bool) -> None:
    faulty_installation.check_cache()
    faulty_installation.check_uploads(complete=complete)
    faulty_installation.check_runs()


def list_faults() -> list[CallFault]:
    """Return the first fault of each kind."""
    return [
        CallFault(kind=kind, fail_at=0, permanently=permanently)
        for kind in FaultKind
        for permanently in (False, True)
        if not permanently or kind in PERMANENT
    ]


@pytest.mark.skipif("SOAK" not in os.environ, reason="every call of every command: make soak")
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("first", list_faults(), ids=str)
def test_invariants_1_4_5_every_call(
    faulty_installation: FaultyInstallation, name: str, first: CallFault
) -> None:
    scenario = SCENARIOS[name]
    prepare(faulty_installation, scenario)

    def check(number: int) -> bool:
        fault = evolve(first, fail_at=number)
        return bool(check_fault(faulty_installation, scenario, fault).failures)

    try_every(f"{name}: {first.kind.name}{'+' if first.permanently else ''}", check)
    verified = faulty_installation.run("cache", "verify").result
    assert verified.code == 0, verified


def parse_fault(text: str) -> tuple[FaultScenario, CallFault]:
    """Parse a name as in ``SLICE``."""
    name, kind, number = text.split(":")
    fault = CallFault(
        kind=FaultKind[kind.rstrip("+")], fail_at=int(number), permanently=kind.endswith("+")
    )
    return SCENARIOS[name], fault


@pytest.mark.parametrize("faults", SLICE, ids=lambda faults: faults[0].partition(":")[0])
def test_invariants_1_4_5_some_calls(
    faulty_installation: FaultyInstallation, faults: tuple[str, ...]
) -> None:
    prepare(faulty_installation, parse_fault(faults[0])[0])
    for text in faults:
        assert check_fault(faulty_installation, *parse_fault(text)).failures, text


def test_disk_error_is_not_blamed_on_the_archive_that_is_read(
    faulty_installation: FaultyInstallation,
) -> None:
    run_steps(DOWNLOAD, ("cache", "export", "area.mbtiles"))(faulty_installation)
    command = ("cache", "import", "area.mbtiles", "--flight", "F3", "--sector", "stable_rear")
    calls = faulty_installation.run(*command).calls
    read = next(n for n, c in enumerate(calls) if c.name == "pread" and "mbtiles" in c.path)
    result = faulty_installation.run(*command, fault=CallFault(fail_at=read)).result
    assert (result.code, "disk is failing" in result.err) == (7, True), result


def test_disk_error_while_an_export_is_verified_or_cleaned_up(
    faulty_installation: FaultyInstallation,
) -> None:
    scenario = SCENARIOS["export area.mbtiles"]
    prepare(faulty_installation, scenario)
    faulty_installation.restore()
    calls = faulty_installation.run(*scenario.command).calls
    reads = [n for n, c in enumerate(calls) if c.name == "pread" and c.path.endswith("/draft")]
    unlinked = next(n for n, c in enumerate(calls) if c.name == "unlink")
    assert calls[unlinked + 1].name == "close"
    for fail_at, code in ((reads[-1], 7), (unlinked + 1, 0)):
        ran = check_fault(faulty_installation, scenario, CallFault(fail_at=fail_at))
        assert ran.result.code == code, ran.result


def test_disk_error_while_a_sealed_run_is_cleaned_up_does_not_fail_the_run(
    faulty_installation: FaultyInstallation,
) -> None:
    scenario = SCENARIOS["worker"]
    prepare(faulty_installation, scenario)
    faulty_installation.restore()
    calls = faulty_installation.run(*scenario.command).calls
    closed = next(n for n, c in enumerate(calls) if c.name == "rmdir" and ".work" in c.path) - 1
    assert calls[closed].name == "close"
    ran = check_fault(faulty_installation, scenario, CallFault(fail_at=closed))
    assert ran.result.code == 0, ran.result


@pytest.mark.skipif("FAULT" not in os.environ, reason="repeats the fault that FAULT names")
def test_one_fault(faulty_installation: FaultyInstallation) -> None:
    scenario, fault = parse_fault(os.environ["FAULT"])
    prepare(faulty_installation, scenario)
    check_fault(faulty_installation, scenario, fault)
