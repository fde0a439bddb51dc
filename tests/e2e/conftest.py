"""An operator and a provider to download from; other modules have operators of their own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.call_faults import NO_COMPILER, FaultServer, compile_call_faults, start_fault_server
from support.control_plane import ControlPlane, create_postgres_control_plane
from support.download_env import DERKACHI, ZOOM
from support.download_operator import DownloadOperator
from support.fault_scenarios import FaultyInstallation
from support.operator import Operator, enter_environment
from support.provider import RunningProvider
from support.readiness_env import ReadinessEnv
from support.scripted_provider import ScriptedProvider

from tileferry.adapters.postgres import Database


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider.for_area(DERKACHI, ZOOM, 20)


@pytest.fixture
def operator(
    tmp_path: Path,
    database_url: str,
    provider: ScriptedProvider,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[DownloadOperator]:
    """An operator in this process; each call to the provider is made once."""
    with provider.serve() as url:
        person = DownloadOperator(tmp_path, database_url, url)
        enter_environment(monkeypatch, tmp_path, person.environment)
        monkeypatch.setenv("TILEFERRY_C11_MAX_5XX_RETRIES", "0")
        yield person


@pytest.fixture
def auditor(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """Somebody who reads the audit log, in this process."""
    person = Operator(tmp_path, database_url)
    enter_environment(monkeypatch, tmp_path, person.environment())
    return person


@pytest.fixture
def readiness_env(
    tmp_path: Path, database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> ReadinessEnv:
    """An operator's cache, to be judged in this process."""
    operator = Operator(tmp_path, database_url)
    settings = {"TILEFERRY_C11_CACHE_ROOT": str(tmp_path / "cache")}
    enter_environment(monkeypatch, tmp_path, operator.environment(**settings))
    return ReadinessEnv(operator, database)


@pytest.fixture
def control_plane(database: Database) -> ControlPlane:
    """The control plane's books."""
    return create_postgres_control_plane(database)


@pytest.fixture(scope="module")
def fault_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultServer]:
    """Run the process that commands with faults are forked from."""
    library = compile_call_faults(tmp_path_factory.mktemp("library"))
    if library is None:
        pytest.skip(NO_COMPILER)
    with start_fault_server(library, tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def faulty_installation(
    fault_server: FaultServer,
    reference_provider: RunningProvider,
    postgres_url: str,
    tmp_path: Path,
) -> Iterator[FaultyInstallation]:
    """An operator's home, whose commands can be made to fail at any call."""
    name = f"faults_{os.getpid()}"
    made = FaultyInstallation(
        fault_server, reference_provider, postgres_url, tmp_path / "home", name
    )
    made.create()
    yield made
    made.drop()
