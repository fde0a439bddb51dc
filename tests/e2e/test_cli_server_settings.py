"""The start of every command detects a server that breaks promises, and says what it means."""

from pathlib import Path

import psycopg
import pytest
from support.download_operator import DownloadOperator, wait_until
from support.postgres_server import PostgresServerProcess
from support.provider import API_KEY, RunningProvider

FSYNC = (
    "warning: fsync is off on the server: a power cut can lose or damage the database;"
    " set fsync to on, unless the data may be lost\n"
)
PAGES = FSYNC.replace("fsync", "full_page_writes")
READ_ONLY = (
    "the server is a read-only replica: only commands that change nothing work;"
    " use the address of the primary in TILEFERRY_DATABASE_URL\n"
)
REFUSAL = "the server is a read-only replica; use the address of the primary"


@pytest.fixture
def operator(
    tmp_path: Path, server: PostgresServerProcess, reference_provider: RunningProvider
) -> DownloadOperator:
    settings = {"TILEFERRY_C11_SERVICE_API_KEY": API_KEY}
    return DownloadOperator(tmp_path, server.url, reference_provider.url, settings=settings)


def configure(server: PostgresServerProcess, **settings: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        for name, value in settings.items():
            connection.execute(f"ALTER SYSTEM SET {name} = {value}".encode())
        connection.execute("SELECT pg_reload_conf()")

    def is_configured() -> bool:
        with psycopg.connect(server.url) as fresh:
            shown = {name: fresh.execute(f"SHOW {name}".encode()).fetchone() for name in settings}
        return shown == {name: (value,) for name, value in settings.items()}

    wait_until(is_configured, "the reload of the settings")


def test_each_command_says_once_what_the_settings_of_its_server_mean(
    operator: DownloadOperator, server: PostgresServerProcess
) -> None:
    configure(server, fsync="on", synchronous_commit="off")  # the latter is logged, not shown
    assert operator.run_in_process("db", "upgrade").err == ""
    told = [line["message"] for line in operator.read_log() if line["kind"] == "database.settings"]
    assert told == ["synchronous_commit is off on the server; our transactions turn it on"]

    configure(server, fsync="off", full_page_writes="off")
    listed = operator.run("runs", "list", "--json")
    assert (listed.code, listed.json["runs"], listed.err) == (0, [], FSYNC + PAGES)
    # A worker has an installation of its own within that of the command.
    assert operator.run("worker", "--until-idle").err.count("fsync is off") == 1
    assert operator.run("doctor").err == ""  # the table has it
    logged = {line["kind"]: line["level"] for line in operator.read_log()}
    assert logged["database.weak_server"] == "WARNING"

    (server.data_dir / "pgdata" / "standby.signal").touch()
    server.restart()
    pinned = operator.run_in_process("flight", "pin", "F1")
    assert pinned.code == 7
    assert REFUSAL in pinned.err
    listed = operator.run("runs", "list")
    assert (listed.code, listed.err) == (0, f"{FSYNC}{PAGES}warning: {READ_ONLY}")
