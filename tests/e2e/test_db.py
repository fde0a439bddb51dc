"""``tileferry db``: psql on the configured database, and the embedded server."""

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from attrs import frozen
from support.operator import CommandResult, Operator
from support.postgres_server import copy_server_data, delay_start

from tileferry.adapters.postgres import EmbeddedServer

SECRET = "canary-password"  # noqa: S105  # of nobody


def test_shell_opens_database_without_showing_password(tmp_path: Path, database_url: str) -> None:
    operator = Operator(tmp_path, database_url.replace("postgres@", f"postgres:{SECRET}@"))
    script = "SELECT current_database();\n\\! tr '\\0' ' ' < /proc/$PPID/cmdline\n"
    ran = operator.run("db", "shell", stdin=script)
    assert ran.code == 0, ran.err
    assert database_url.partition("?")[0].rpartition("/")[2] in ran.out
    assert "psql" in ran.out  # its own command line
    assert SECRET not in ran.out + ran.err


def test_shell_stops_script_at_first_error(tmp_path: Path, database_url: str) -> None:
    script = "BEGIN;\nCREATE TABLE kept (a int);\nSELECT nonsense;\nCOMMIT;\n"
    operator = Operator(tmp_path, database_url)
    ran = operator.run("db", "shell", stdin=script)
    assert (ran.code, "nonsense" in ran.err) == (7, True)
    assert operator.run("db", "shell", stdin="SELECT * FROM kept;").code == 7


def test_shell_opens_embedded_database(tmp_path: Path) -> None:
    operator = Operator(tmp_path, "")
    settings = {"TILEFERRY_DATA_DIR": str(tmp_path / "pg")}
    script = "SELECT current_database() || '!';"
    ran = operator.run("db", "shell", stdin=script, unset=("TILEFERRY_DATABASE_URL",), **settings)
    assert (ran.code, "tileferry!" in ran.out) == (0, True), ran.err


def test_shell_shows_how_to_connect(tmp_path: Path, database_url: str) -> None:
    operator = Operator(tmp_path, database_url.replace("postgres@", f"postgres:{SECRET}@"))
    ran = operator.run_in_process("db", "shell", "--json")
    assert (ran.code, ran.json["user"]) == (0, "postgres")
    assert ran.json["database"] in database_url
    assert SECRET not in ran.out


def test_shell_without_psql_says_what_to_install(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tileferry.adapters.postgres.server_process.find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = Operator(tmp_path, database_url).run_in_process("db", "shell", "--json")
    assert (ran.code, ran.json["error"]["type"]) == (7, "DatabaseError")
    assert "install the PostgreSQL client" in ran.json["error"]["message"]


@frozen
class EmbeddedOperator(Operator):
    """Somebody without a database server."""

    def environment(self, **settings: str) -> dict[str, str]:
        found = super().environment(TILEFERRY_DATA_DIR=str(self.data_dir), **settings)
        del found["TILEFERRY_DATABASE_URL"]
        return found

    @property
    def data_dir(self) -> Path:
        return self.home / "my data" / "pg"

    def read_status(self) -> dict[str, object]:
        ran = self.run("db", "status", "--json")
        assert ran.code in {0, 7}, ran.err
        found: dict[str, object] = ran.json["embedded"]
        return found


@pytest.fixture
def prepared_operator(embedded: EmbeddedOperator, initialized_data_dir: Path) -> EmbeddedOperator:
    """An operator who has created the database before."""
    copy_server_data(initialized_data_dir, embedded.data_dir)
    return embedded


@pytest.fixture
def embedded(servers_root: Path) -> Iterator[EmbeddedOperator]:
    home = servers_root / f"operator-{uuid4().hex[:12]}"  # the disk would be slow
    home.mkdir()
    yield EmbeddedOperator(home, "")
    EmbeddedServer(home / "my data" / "pg").stop()
    shutil.rmtree(home)


def test_server_is_kept_from_start_to_stop(embedded: EmbeddedOperator) -> None:
    status = embedded.read_status()
    assert status.pop("data_dir") == str(embedded.data_dir)
    assert status == {"state": "absent", "pid": None, "kept": False, "users": 0}
    assert EmbeddedServer(embedded.data_dir).find_status().state == "stopped", "at its end"
    shutil.rmtree(embedded.data_dir)
    assert f"in {embedded.data_dir}; created just now" in embedded.run("doctor").out
    started = embedded.run("db", "start", "--json").json["embedded"]
    assert (started["state"], started["kept"]) == ("running", True)
    status = embedded.read_status()
    assert (status["pid"], status["kept"], status["users"]) == (started["pid"], True, 0)
    shown = embedded.run("db", "status").out
    assert f"running, process {started['pid']}, kept until it is stopped" in shown
    checked = embedded.run("doctor").out
    assert f"in {embedded.data_dir}; running, process {started['pid']}" in checked
    assert embedded.run("db", "stop").out == "Stopped the embedded server.\n"
    assert embedded.run("db", "stop", "--json").json["stopped"] is False


def test_stop_is_refused_while_a_worker_runs(prepared_operator: EmbeddedOperator) -> None:
    embedded = prepared_operator
    ready = embedded.home / "ready"
    settings = {
        "TILEFERRY_WORKER_READINESS_FILE": str(ready),
        "TILEFERRY_PARTITIONS_RAW_ROOT": str(embedded.home / "raw"),
        "TILEFERRY_C11_CACHE_ROOT": str(embedded.home / "cache"),
        "TILEFERRY_C11_SATELLITE_PROVIDER_URL": "http://127.0.0.1:1",
        "TILEFERRY_C11_SERVICE_API_KEY": SECRET,
    }
    with subprocess.Popen(  # noqa: S603  # our own command
        [*embedded.command, "worker"],
        env=embedded.environment(**settings),
        cwd=embedded.home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as worker:
        try:
            _wait_for(ready, worker)
            _check_refusal(embedded.run("db", "stop", "--json"), worker.pid)
            assert EmbeddedServer(embedded.data_dir).find_status().users == 1
        finally:
            worker.send_signal(signal.SIGTERM)
            out, _ = worker.communicate(timeout=60)
    assert worker.returncode in {0, 130}, out
    assert EmbeddedServer(embedded.data_dir).find_status().state == "stopped"


def _wait_for(file: Path, worker: "subprocess.Popen[str]") -> None:
    for _ in range(600):
        if file.exists():
            return
        assert worker.poll() is None, worker.communicate()[0]
        time.sleep(0.1)
    pytest.fail("the worker is not ready")


def _check_refusal(ran: CommandResult, pid: int) -> None:
    error = ran.json["error"]
    assert (ran.code, error["type"]) == (4, "DatabaseRefusedError")
    assert f"is in use by process {pid}; end the processes" in error["message"]
    assert "then run `tileferry db stop` again" in error["message"]


@pytest.mark.parametrize("command", ["start", "stop"])
def test_server_of_others_is_not_managed(tmp_path: Path, database_url: str, command: str) -> None:
    ran = Operator(tmp_path, database_url).run_in_process("db", command, "--json")
    assert (ran.code, ran.json["error"]["type"]) == (4, "DatabaseRefusedError")
    assert "database_url is set, so there is no embedded server" in ran.err
    shown = Operator(tmp_path, database_url).run_in_process("db", "status", "--json").json
    assert shown["embedded"] is None


def test_slow_start_ends_with_a_clear_line(prepared_operator: EmbeddedOperator) -> None:
    embedded = prepared_operator
    go = delay_start(embedded.data_dir / "pgdata")
    ran = embedded.run("runs", "list", TILEFERRY_DATABASE_START_TIMEOUT_S="1")
    assert ran.code == 7
    assert "is not ready after 1 s, and is still starting: LOG:" in ran.err
    assert ran.err.count("\n") == 1
    with subprocess.Popen(  # noqa: S603  # our own command
        [*embedded.command, "runs", "list"],
        env=embedded.environment(),
        cwd=embedded.home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as waiting:
        assert waiting.stderr is not None
        said = waiting.stderr.readline()
        assert "the embedded database server is not ready after 2 s; waiting: LOG:" in said
        go.touch()
        waiting.communicate(timeout=60)
    assert waiting.returncode == 0
