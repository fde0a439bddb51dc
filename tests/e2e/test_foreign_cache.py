"""A database serves one cache: whatever would write to another is refused, with its cure."""

from pathlib import Path

import pytest
from sqlalchemy import text
from support.area_operator import DOWNLOAD, AreaOperator
from support.operator import run_here

from tileferry.adapters.postgres import Database

CURE = "empty the table bound_cache"
UNBINDING = "DELETE FROM bound_cache;"
WORKER = ("worker", "--until-idle")


@pytest.fixture
def elsewhere(operator: AreaOperator, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another cache root, set after the first one was filled."""
    assert run_here(*DOWNLOAD).code == 0
    other = operator.home / "other"
    monkeypatch.setenv("TILEFERRY_C11_CACHE_ROOT", str(other))
    return other


def test_another_cache_is_refused_and_nothing_is_stored_there(
    operator: AreaOperator, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = run_here(*DOWNLOAD, "--json")
    assert (ran.code, ran.json["error"]["exit_code"]) == (4, 4)
    said = ran.json["error"]["message"]
    assert str(operator.cache_root) in said
    assert str(elsewhere) in said
    assert CURE in said
    assert not (elsewhere / ".c6").exists()
    assert run_here("cache", "verify").code == 4
    monkeypatch.setenv("TILEFERRY_C11_CACHE_ROOT", str(operator.cache_root))
    assert run_here("cache", "verify").code == 0


@pytest.mark.usefixtures("elsewhere")
def test_the_doctor_finds_it() -> None:
    ran = run_here("doctor", "--json")
    [found] = [one for one in ran.json["findings"] if one["subject"] == "cache's database"]
    assert (ran.code, found["verdict"]) == (4, "failed")
    assert CURE in found["found"]


@pytest.mark.usefixtures("elsewhere")
def test_a_worker_there_takes_partitions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEFERRY_PARTITIONS_RAW_ROOT", "raw")
    ran = run_here(*WORKER)
    assert (ran.code, "--kind acquire_partition" in ran.err) == (4, True)
    assert run_here(*WORKER, "--kind", "acquire_partition").code == 0


def test_the_documented_statement_gives_the_database_another_cache(
    database: Database, elsewhere: Path
) -> None:
    with database.transaction() as connection:
        connection.execute(text(UNBINDING))
    assert run_here(*DOWNLOAD).code == 0
    assert (elsewhere / ".c11" / "cache-id").exists()
    assert run_here("cache", "verify").code == 0


@pytest.mark.usefixtures("operator")
def test_a_cache_that_moves_stays_the_databases(
    operator: AreaOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_here(*DOWNLOAD).code == 0
    moved = operator.cache_root.rename(operator.home / "moved")
    monkeypatch.setenv("TILEFERRY_C11_CACHE_ROOT", str(moved))
    assert run_here("cache", "verify").code == 0
