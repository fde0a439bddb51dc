"""Commands behind a pooler, with a server that weakens commits: all work, and none is weak."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cache_upload_env import write_captures
from support.download_operator import DownloadOperator, wait_until
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


SUBMIT = COMMANDS[4]
POLL_S = 5.0


def measure_claim_s(operator: DownloadOperator) -> float:
    """Return how long a worker that waits takes to start a new run."""
    operator.settings["TILEFERRY_WORKER_POLL_S"] = str(POLL_S)
    operator.settings["TILEFERRY_WORKER_SWEEP_S"] = "60"
    with operator.start("worker") as worker:
        wait_until(lambda: "started;" in worker.read_errors(), "the start")
        time.sleep(1.5)  # it has found nothing, and waits
        assert operator.run_in_process(*SUBMIT).code == 0
        submitted_s = time.monotonic()
        wait_until(lambda: "started: download area" in worker.read_errors(), "the claim")
        took_s = time.monotonic() - submitted_s
        worker.send_signal(signal.SIGTERM)
        assert worker.wait().code == 0
    return took_s


def test_worker_behind_a_pooler_is_notified_through_the_listen_url(
    operator: DownloadOperator, database_url: str
) -> None:
    operator.settings["TILEFERRY_DATABASE_LISTEN_URL"] = database_url
    assert measure_claim_s(operator) < 1.0
    ran = operator.run_in_process("doctor")
    assert "notifications    arrive through database_listen_url" in ran.out


def test_worker_behind_a_pooler_polls_without_a_listen_url(operator: DownloadOperator) -> None:
    assert measure_claim_s(operator) < POLL_S + 1.0
    ran = operator.run_in_process("doctor")
    assert "notifications    a pooler loses them: workers poll" in ran.out


def test_worker_polls_if_the_listen_url_is_that_of_the_pooler(operator: DownloadOperator) -> None:
    operator.settings["TILEFERRY_DATABASE_LISTEN_URL"] = operator.database_url
    assert measure_claim_s(operator) < POLL_S + 1.0
    ran = operator.run_in_process("doctor")
    assert "notifications    none arrives through database_listen_url" in ran.out


def test_invalid_listen_url_is_refused_without_its_password(operator: DownloadOperator) -> None:
    operator.settings["TILEFERRY_DATABASE_LISTEN_URL"] = "postgresql://me:p@ss@host/db"
    ran = operator.run_in_process("worker", "--until-idle")
    assert ran.code == 2, ran.err
    assert "TILEFERRY_DATABASE_LISTEN_URL" in ran.err
    assert "p@ss" not in ran.err


def test_schema_is_upgraded_behind_a_pooler(
    tmp_path: Path, empty_database_url: str, reference_provider: RunningProvider
) -> None:
    with run_pgbouncer(empty_database_url, tmp_path, resets=True) as url:
        operator = DownloadOperator(tmp_path, url, reference_provider.url)
        assert operator.run_in_process("db", "upgrade").code == 0
        assert operator.run_in_process("db", "status").code == 0
