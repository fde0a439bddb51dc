"""The start of every command detects a server that breaks promises, and says what it means."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from support.download_operator import DownloadOperator
from support.postgres_server import PostgresServerProcess, get_server_folder, run_postgres_server
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
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServerProcess]:
    with run_postgres_server(get_server_folder(tmp_path_factory.mktemp("server")) / "own") as own:
        yield own


@pytest.fixture
def operator(
    tmp_path: Path, server: PostgresServerProcess, reference_provider: RunningProvider
) -> DownloadOperator:
    settings = {"TILEFERRY_C11_SERVICE_API_KEY": API_KEY}
    return DownloadOperator(tmp_path, server.url, reference_provider.url, settings=settings)


def turn_off(server: PostgresServerProcess, *names: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        for name in names:
            connection.execute(f"ALTER SYSTEM SET {name} = off")
        connection.execute("SELECT pg_reload_conf()")


def test_each_command_says_once_what_the_settings_of_its_server_mean(
    operator: DownloadOperator, server: PostgresServerProcess
) -> None:
    turn_off(server, "synchronous_commit")  # harmless: it is logged, not shown
    assert operator.run("db", "upgrade").err == ""
    told = [line["message"] for line in operator.read_log() if line["kind"] == "database.settings"]
    assert told == ["synchronous_commit is off on the server; our transactions turn it on"]

    turn_off(server, "fsync", "full_page_writes")
    listed = operator.run("runs", "list", "--json")
    assert (listed.code, listed.json["runs"], listed.err) == (0, [], FSYNC + PAGES)
    # A worker has an installation of its own within that of the command.
    assert operator.run("worker", "--until-idle").err.count("fsync is off") == 1
    assert operator.run("doctor").err == ""  # the table has it
    logged = {line["kind"]: line["level"] for line in operator.read_log()}
    assert logged["database.weak_server"] == "WARNING"

    (server.data_dir / "pgdata" / "standby.signal").touch()
    server.restart()
    pinned = operator.run("flight", "pin", "F1")
    assert pinned.code == 7
    assert REFUSAL in pinned.err
    listed = operator.run("runs", "list")
    assert (listed.code, listed.err) == (0, f"{FSYNC}{PAGES}warning: {READ_ONLY}")
