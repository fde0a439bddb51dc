"""An operator and a provider to download from; other modules have operators of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.control_plane import ControlPlane, create_postgres_control_plane
from support.download_env import DERKACHI, ZOOM
from support.download_operator import DownloadOperator
from support.operator import Operator, enter_environment
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
