"""A database serves one cache: whatever would write to another is refused, with its cure."""

from pathlib import Path

import pytest
from sqlalchemy import text
from support.download_operator import DOWNLOAD, DownloadOperator
from support.operator import run_in_process

from tileferry.adapters.postgres import Database
from tileferry.entrypoints.installation import Installation

CURE = "empty the table bound_cache"
UNBINDING = "DELETE FROM bound_cache;"
WORKER = ("worker", "--until-idle")


@pytest.fixture
def other_cache_root(operator: DownloadOperator, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another cache root, set after the first one was filled."""
    assert run_in_process(*DOWNLOAD).code == 0
    other = operator.home / "other"
    monkeypatch.setenv("TILEFERRY_C11_CACHE_ROOT", str(other))
    return other


def test_foreign_cache_is_rejected_and_stays_empty(
    operator: DownloadOperator, other_cache_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = run_in_process(*DOWNLOAD, "--json")
    assert (ran.code, ran.json["error"]["exit_code"]) == (4, 4)
    said = ran.json["error"]["message"]
    assert str(operator.cache_root) in said
    assert str(other_cache_root) in said
    assert CURE in said
    assert not (other_cache_root / ".c6").exists()
    assert run_in_process("cache", "verify").code == 4
    monkeypatch.setenv("TILEFERRY_C11_CACHE_ROOT", str(operator.cache_root))
    assert run_in_process("cache", "verify").code == 0


@pytest.mark.usefixtures("other_cache_root")
def test_doctor_reports_foreign_cache() -> None:
    ran = run_in_process("doctor", "--json")
    [found] = [one for one in ran.json["findings"] if one["subject"] == "cache's database"]
    assert (ran.code, found["verdict"]) == (4, "failed")
    assert CURE in found["found"]


@pytest.mark.usefixtures("other_cache_root")
def test_worker_with_foreign_cache_accepts_only_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEFERRY_PARTITIONS_RAW_ROOT", "raw")
    ran = run_in_process(*WORKER)
    assert (ran.code, "--kind acquire_partition" in ran.err) == (4, True)
    assert run_in_process(*WORKER, "--kind", "acquire_partition").code == 0


def test_documented_sql_rebinds_database_to_another_cache(
    database: Database, other_cache_root: Path
) -> None:
    with database.transaction() as connection:
        connection.execute(text(UNBINDING))
    assert run_in_process(*DOWNLOAD).code == 0
    assert (other_cache_root / ".c11" / "cache-id").exists()
    assert run_in_process("cache", "verify").code == 0


@pytest.mark.usefixtures("operator")
def test_moved_cache_stays_bound(
    operator: DownloadOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_in_process(*DOWNLOAD).code == 0
    moved = operator.cache_root.rename(operator.home / "moved")
    monkeypatch.setenv("TILEFERRY_C11_CACHE_ROOT", str(moved))
    assert run_in_process("cache", "verify").code == 0


def test_moved_cache_releases_the_reservation_of_a_killed_command(
    operator: DownloadOperator, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Installation() as killed, killed.hold_cache():
        killed.build_downloader().budget_enforcer.reserve_headroom(1)
    moved = operator.cache_root.rename(operator.home / "moved")
    monkeypatch.setenv("TILEFERRY_C11_CACHE_ROOT", str(moved))
    assert run_in_process(*DOWNLOAD).code == 0
    with database.read_connection() as connection:
        assert connection.execute(text("SELECT count(*) FROM cache_reservations")).scalar() == 0
