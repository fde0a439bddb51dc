"""``tileferry db shell``: psql on the configured database."""

from pathlib import Path

import pytest
from support.operator import Operator

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
    monkeypatch.setattr("tileferry.adapters.postgres.psql.find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = Operator(tmp_path, database_url).run_in_process("db", "shell", "--json")
    assert (ran.code, ran.json["error"]["type"]) == (7, "DatabaseError")
    assert "install the PostgreSQL client" in ran.json["error"]["message"]
