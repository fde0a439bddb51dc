"""An operator and a provider to download from; other modules have operators of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.area_operator import AreaOperator
from support.download_site import DERKACHI, ZOOM
from support.operator import Operator, move_in
from support.readiness_site import Site
from support.scripted_provider import ScriptedProvider
from support.work_desk import Desk, postgres_desk

from tileferry.adapters.postgres import Database


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider.of_area(DERKACHI, ZOOM, 20)


@pytest.fixture
def operator(
    tmp_path: Path,
    database_url: str,
    provider: ScriptedProvider,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[AreaOperator]:
    """An operator in this process; each call to the provider is made once."""
    with provider.served() as url:
        person = AreaOperator(tmp_path, database_url, url)
        move_in(monkeypatch, tmp_path, person.environment)
        monkeypatch.setenv("TILEFERRY_C11_MAX_5XX_RETRIES", "0")
        yield person


@pytest.fixture
def auditor(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """Somebody who reads the audit log, in this process."""
    person = Operator(tmp_path, database_url)
    move_in(monkeypatch, tmp_path, person.environment())
    return person


@pytest.fixture
def site(
    tmp_path: Path, database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Site:
    """An operator's cache, to be judged in this process."""
    operator = Operator(tmp_path, database_url)
    settings = {"TILEFERRY_C11_CACHE_ROOT": str(tmp_path / "cache")}
    move_in(monkeypatch, tmp_path, operator.environment(**settings))
    return Site(operator, database)


@pytest.fixture
def desk(database: Database) -> Desk:
    """The control plane's books."""
    return postgres_desk(database)
