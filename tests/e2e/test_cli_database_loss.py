"""A database server that stops under a command: writers wait for it, others end with code 7."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from support.cache_upload_env import write_captures
from support.crash_processes import SOAK_FACTOR
from support.download_operator import DownloadOperator, RunningCommand, wait_until
from support.operator import CommandResult
from support.postgres_server import (
    PostgresServerProcess,
    copy_server_data,
    run_postgres_server,
)
from support.provider import API_KEY, RunningProvider

AREA = ("--bbox", "36.20,50.00,36.22,50.02", "--zoom", "15")
DOWNLOAD = ("download", *AREA, "--flight", "F1", "--sector", "stable_rear")
WRITERS = {
    "download": DOWNLOAD,
    "ingest": ("ingest", "--flight", "F2", "card"),
    "upload": ("upload", "--flight", "F1", "--on-ground"),
    "import": ("cache", "import", "area.mbtiles", "--flight", "F3", "--sector", "stable_rear"),
}
MODES = ("immediate", "fast") if SOAK_FACTOR > 1 else ("immediate",)
READERS = {
    "runs": ("runs", "list"),
    "audit": ("audit", "tail", "--follow"),
}
LOCK_ALL = """
DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public'
    AND tablename NOT IN ('alembic_version', 'bound_cache')
  LOOP EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', name); END LOOP;
END $$
"""
BLOCKED = """
SELECT count(DISTINCT pid) FROM pg_locks
WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@pytest.fixture(scope="module")
def server(initialized_data_dir: Path, servers_root: Path) -> Iterator[PostgresServerProcess]:
    own = copy_server_data(initialized_data_dir, servers_root / f"loss-{uuid4().hex[:12]}")
    with run_postgres_server(own) as running:
        yield running


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def operator(
    home: Path, server: PostgresServerProcess, reference_provider: RunningProvider
) -> DownloadOperator:
    """An operator with a downloaded area, an archive of it and captured tiles."""
    person = DownloadOperator(
        home,
        server.url,
        reference_provider.url,
        settings={"TILEFERRY_C11_SERVICE_API_KEY": API_KEY, "TILEFERRY_PARTITIONS_RAW_ROOT": "raw"},
    )
    if not (home / "card").exists():
        write_captures(home / "card", 3)
        for command in (
            DOWNLOAD,
            ("cache", "export", "area.mbtiles"),
            ("ingest", "--flight", "F1", "card"),
        ):
            assert person.run_in_process(*command).code == 0
    return person


@contextmanager
def hold_all_tables(server: PostgresServerProcess) -> Iterator[Callable[[], int]]:
    """Let every command wait for its data; yield how many do."""
    with (
        closing(psycopg.connect(server.url)) as holder,
        closing(psycopg.connect(server.url, autocommit=True)) as watcher,
    ):
        holder.execute(LOCK_ALL)
        try:
            yield lambda: int((watcher.execute(BLOCKED).fetchone() or (0,))[0])
        finally:
            server.start()


def check_end(ran: CommandResult) -> None:
    assert ran.code == 7, ran
    assert "Traceback" not in ran.err
    assert "internal error" not in ran.err
    assert "database: " in ran.err


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WRITERS)
def test_writer_waits_for_a_restarted_server_and_ends_complete(
    operator: DownloadOperator, server: PostgresServerProcess, name: str, mode: str
) -> None:
    """Its transactions wait for locks when the server stops: each loses its connection."""
    command = WRITERS[name]
    if name == "download":
        command = (*DOWNLOAD, "--again")
    with hold_all_tables(server) as count_blocked, operator.start(*command, "--json") as running:
        wait_until(lambda: count_blocked() > 0, "the wait for a table")
        server.stop(mode)
        time.sleep(1.0)
        server.start()
        ran = running.wait()
    assert ran.code == 0, ran.err
    assert "warning: the database cannot be reached; waiting for up to 1800 s: " in ran.err
    check_report(name, ran.json)
    check_cache(operator)


def check_report(name: str, report: dict[str, Any]) -> None:
    """Check that each tile is counted once; another run of the test may have stored it before."""
    match name:
        case "download":
            assert report["outcome"] == "success"
            assert report["tiles_downloaded"] == report["tiles_requested"]
        case "ingest":
            assert report["tiles_ingested"] + report["tiles_unchanged"] == 3
        case "upload":
            assert {one["status"] for one in report["per_tile_status"]} <= {"accepted"}
        case _:
            assert not report["entries_refused"]


def check_cache(operator: DownloadOperator) -> None:
    """Check that every byte is there, and that no attempt was charged."""
    assert operator.run_in_process("cache", "verify", "--flight", "F1").code in {0, 3}
    with psycopg.connect(operator.database_url) as connection:
        charged = "SELECT count(*) FROM tiles WHERE upload_attempts > 0"
        assert connection.execute(charged).fetchone() == (0,)


def test_server_that_stays_away_ends_a_command_after_its_patience(
    operator: DownloadOperator, server: PostgresServerProcess
) -> None:
    command = (*DOWNLOAD, "--again", "--give-up-after", "1s")
    with hold_all_tables(server) as count_blocked, operator.start(*command) as running:
        wait_until(lambda: count_blocked() > 0, "the wait for a table")
        server.stop("immediate")
        ran = running.wait()
    check_end(ran)
    assert "it did not return within 1 s" in ran.err
    again = operator.run_in_process(*DOWNLOAD)
    assert again.code == 0, again.err


@pytest.mark.parametrize("name", ["download", "ingest"])
def test_interrupt_ends_the_wait_for_a_server(
    operator: DownloadOperator, server: PostgresServerProcess, name: str
) -> None:
    command = (*DOWNLOAD, "--again") if name == "download" else WRITERS[name]
    operator.log_file.unlink(missing_ok=True)
    with hold_all_tables(server) as count_blocked, operator.start(*command) as running:
        wait_until(lambda: count_blocked() > 0, "the wait for a table")
        server.stop("immediate")
        wait_until(
            lambda: any(line["kind"] == "database.away" for line in operator.read_log()), "the wait"
        )
        running.send_signal(signal.SIGINT)
        ran = running.wait()
    assert ran.code == 130, ran.err
    assert "Stopped immediately" not in ran.err  # the end of the grace period says that


def test_readers_end_cleanly(operator: DownloadOperator, server: PostgresServerProcess) -> None:
    with hold_all_tables(server) as count_blocked, ExitStack() as stack:
        running: list[RunningCommand] = [
            stack.enter_context(operator.start(*command)) for command in READERS.values()
        ]
        wait_until(lambda: count_blocked() >= len(READERS), "the wait of all for a table")
        server.stop("immediate")
        ends = [command.wait() for command in running]
    for ran in ends:
        check_end(ran)


def test_worker_is_not_ready_while_the_database_is_away(
    operator: DownloadOperator, server: PostgresServerProcess, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    operator.settings["TILEFERRY_WORKER_READINESS_FILE"] = str(ready)
    with operator.start("worker", "--kind", "upload_flight") as running:
        wait_until(ready.exists, "the readiness file")
        time.sleep(1.0)  # it has looked for runs: a commit that is lost takes 30 s to resolve
        server.stop("immediate")
        wait_until(lambda: not ready.exists(), "the removal of the readiness file")
        server.start()
        wait_until(ready.exists, "the return of the readiness file")
        running.send_signal(signal.SIGTERM)
        ran = running.wait()
    assert (ran.code, ready.exists()) == (0, False), ran.err


@pytest.mark.parametrize("mode", MODES)
def test_worker_keeps_its_run_when_the_server_is_away_for_longer_than_its_lease(
    operator: DownloadOperator,
    server: PostgresServerProcess,
    reference_provider: RunningProvider,
    mode: str,
) -> None:
    operator.settings |= {"TILEFERRY_WORKER_LEASE_S": "1.5", "TILEFERRY_WORKER_SWEEP_S": "0.1"}
    place = ("--bbox", "36.30,50.00,36.32,50.02", "--zoom", "15" if mode == "immediate" else "16")
    submitted = operator.run_in_process(
        "runs", "submit", "download", *place, "--flight", "F5", "--sector", "stable_rear", "--json"
    )
    assert submitted.code == 0, submitted.err
    reference_provider.reset()
    reference_provider.set_faults({"fault": "slow", "call": "tile", "bytes_per_s": 8_000})
    with operator.start("worker", "--until-idle") as running:
        wait_until(lambda: len(reference_provider.requests) > 1, "the first tile")
        with operator.start("worker") as sweeper:  # it waits for the database as well
            server.stop(mode)
            time.sleep(2.5)
            server.start()
            reference_provider.set_faults()
            ran = running.wait()
            sweeper.send_signal(signal.SIGTERM)
            sweeper.wait()
    assert ran.code == 0, ran.err
    with psycopg.connect(server.url) as connection:
        query = "SELECT status, lease_epoch, retry_count, rescues FROM runs ORDER BY submitted_date"
        assert connection.execute(query).fetchall()[-1] == ("passed", 1, 0, 0)


def test_killed_embedded_server_is_started_again(
    tmp_path: Path, data_dir: Path, reference_provider: RunningProvider
) -> None:
    operator = EmbeddedOperator(
        tmp_path,
        "",
        reference_provider.url,
        settings={
            "TILEFERRY_C11_SERVICE_API_KEY": API_KEY,
            "TILEFERRY_DATA_DIR": str(data_dir),
        },
    )
    reference_provider.set_faults({"fault": "slow", "call": "tile", "bytes_per_s": 20_000})
    with operator.start(*DOWNLOAD) as running:
        wait_until(lambda: len(reference_provider.requests) > 2, "the first tile")
        os.kill(
            int((data_dir / "pgdata" / "postmaster.pid").read_text().split()[0]),
            signal.SIGKILL,
        )
        wait_until(lambda: "database.back" in operator.log_file.read_text("utf-8"), "its return")
        reference_provider.set_faults()
        ran = running.wait()
    assert ran.code == 0, ran.err
    assert "warning: the database cannot be reached; waiting for up to" in ran.err


class EmbeddedOperator(DownloadOperator):
    """An operator without a database server."""

    @property
    def environment(self) -> dict[str, str]:
        found = super().environment
        return {name: found[name] for name in found if name != "TILEFERRY_DATABASE_URL"}
