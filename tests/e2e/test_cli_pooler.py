"""Commands behind a pooler, with a server that weakens commits: all work, and none is weak."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cache_upload_env import write_captures
from support.download_operator import DownloadOperator
from support.pgbouncer import needs_pgbouncer, run_pgbouncer, weaken_commits
from support.provider import API_KEY, RunningProvider

pytestmark = needs_pgbouncer
AREA = ("--bbox", "36.20,50.00,36.22,50.02", "--zoom", "15")
DOWNLOAD = ("download", *AREA, "--flight", "F1", "--sector", "stable_rear")
COMMANDS = (
    DOWNLOAD,
    (*DOWNLOAD, "--again"),
    ("ingest", "--flight", "F1", "card"),
    ("upload", "--flight", "F1", "--on-ground"),
    ("runs", "submit", *DOWNLOAD[:-4], "--flight", "F2", *DOWNLOAD[-2:]),
    ("worker", "--until-idle"),
    ("cache", "verify"),
    ("flight", "pin", "F1"),
    ("cache", "export", "area.mbtiles"),
    ("audit", "verify"),
)


@pytest.fixture
def operator(
    tmp_path: Path, database_url: str, reference_provider: RunningProvider
) -> Iterator[DownloadOperator]:
    """An operator whose sessions forget everything between transactions."""
    weaken_commits(database_url)
    settings = {
        "TILEFERRY_C11_SERVICE_API_KEY": API_KEY,
        "TILEFERRY_PARTITIONS_RAW_ROOT": str(tmp_path / "raw"),
    }
    with run_pgbouncer(database_url, tmp_path, resets=True) as url:
        yield DownloadOperator(tmp_path, url, reference_provider.url, settings=settings)


def test_invariant_1_all_commits_are_durable_behind_a_pooler(operator: DownloadOperator) -> None:
    write_captures(operator.home / "card", 3)
    for command in COMMANDS:
        ran = operator.run_in_process(*command)
        assert ran.code == 0, (command, ran.err)
    ran = operator.run_in_process("doctor")
    assert "pooler           found; statements are not prepared" in ran.out


def test_schema_is_upgraded_behind_a_pooler(
    tmp_path: Path, empty_database_url: str, reference_provider: RunningProvider
) -> None:
    with run_pgbouncer(empty_database_url, tmp_path, resets=True) as url:
        operator = DownloadOperator(tmp_path, url, reference_provider.url)
        assert operator.run_in_process("db", "upgrade").code == 0
        assert operator.run_in_process("db", "status").code == 0
