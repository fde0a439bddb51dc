"""A database server that is killed under a command: no traceback, exit code 7, nothing lost."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from support.cache_upload_env import write_captures
from support.download_operator import DownloadOperator, RunningCommand, wait_until
from support.operator import CommandResult
from support.postgres_server import PostgresServerProcess, get_server_folder, run_postgres_server
from support.provider import API_KEY, RunningProvider

AREA = ("--bbox", "36.20,50.00,36.22,50.02", "--zoom", "15")
DOWNLOAD = ("download", *AREA, "--flight", "F1", "--sector", "stable_rear")
WRITERS = {
    "download": DOWNLOAD,
    "ingest": ("ingest", "--flight", "F2", "card"),
    "upload": ("upload", "--flight", "F1", "--on-ground"),
    "import": ("cache", "import", "area.mbtiles", "--flight", "F3", "--sector", "stable_rear"),
}
READERS = {
    "export": ("cache", "export", "other.mbtiles"),
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
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServerProcess]:
    with run_postgres_server(get_server_folder(tmp_path_factory.mktemp("server")) / "own") as own:
        yield own


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
            ("db", "upgrade"),
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
        yield lambda: int((watcher.execute(BLOCKED).fetchone() or (0,))[0])
    server.start()


def check_end(ran: CommandResult) -> None:
    assert ran.code == 7, ran
    assert "Traceback" not in ran.err
    assert "internal error" not in ran.err
    assert "database: " in ran.err


@pytest.mark.parametrize("name", WRITERS)
def test_writer_ends_cleanly_and_can_be_repeated(
    operator: DownloadOperator, server: PostgresServerProcess, name: str
) -> None:
    command = WRITERS[name]
    if name == "download":
        command = (*DOWNLOAD, "--again")
    with hold_all_tables(server) as count_blocked, operator.start(*command) as running:
        wait_until(lambda: count_blocked() > 0, "the wait for a table")
        server.stop("immediate")
        ran = running.wait()
    check_end(ran)
    again = operator.run_in_process(*WRITERS[name])
    assert again.code == 0, again.err


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
        server.stop("immediate")
        wait_until(lambda: not ready.exists(), "the removal of the readiness file")
        server.start()
        wait_until(ready.exists, "the return of the readiness file")
        running.send_signal(signal.SIGTERM)
        ran = running.wait()
    assert (ran.code, ready.exists()) == (0, False), ran.err


def test_killed_embedded_server_ends_a_command_cleanly(
    tmp_path: Path, reference_provider: RunningProvider
) -> None:
    operator = EmbeddedOperator(
        tmp_path,
        "",
        reference_provider.url,
        settings={
            "TILEFERRY_C11_SERVICE_API_KEY": API_KEY,
            "TILEFERRY_DATA_DIR": str(tmp_path / "pg"),
        },
    )
    assert operator.run("db", "upgrade").code == 0
    reference_provider.set_faults({"fault": "slow", "call": "tile", "bytes_per_s": 20_000})
    with operator.start(*DOWNLOAD) as running:
        wait_until(lambda: len(reference_provider.requests) > 2, "the first tile")
        os.kill(
            int((tmp_path / "pg" / "pgdata" / "postmaster.pid").read_text().split()[0]),
            signal.SIGKILL,
        )
        check_end(running.wait())
    reference_provider.set_faults()
    assert operator.run(*DOWNLOAD).code == 0


class EmbeddedOperator(DownloadOperator):
    """An operator without a database server."""

    @property
    def environment(self) -> dict[str, str]:
        found = super().environment
        return {name: found[name] for name in found if name != "TILEFERRY_DATABASE_URL"}
