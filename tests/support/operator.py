"""Somebody with a database and a shell."""

import io
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from support import contracts
from tileferry.entrypoints.cli.main import main


@frozen
class CommandResult:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its one object, which has its documented form."""
        assert self.out, f"exit code {self.code}, no output, but: {self.err}"
        return contracts.parse_output(self.out, self.code)


@frozen
class Operator:
    """Runs ``tileferry`` as a process of its own."""

    home: Path
    database_url: str

    @property
    def command(self) -> list[str]:
        """How the command line is started."""
        return [sys.executable, "-m", "tileferry.entrypoints.cli"]

    def environment(self, **settings: str) -> dict[str, str]:
        """Return what a command finds set."""
        return {
            **os.environ,
            "TILEFERRY_DATABASE_URL": self.database_url,
            **create_user_folders(self.home),
            "NO_COLOR": "1",
            "COLUMNS": "80",
            **settings,
        }

    def run(
        self,
        *arguments: str,
        stdin: str | None = None,
        unset: Sequence[str] = (),
        **settings: str,
    ) -> CommandResult:
        """Run one command to its end, without the variables ``unset``."""
        environment = self.environment(**settings)
        done = subprocess.run(  # noqa: S603  # our own command
            [*self.command, *arguments],
            env={name: value for name, value in environment.items() if name not in unset},
            cwd=self.home,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def run_in_process(self, *arguments: str, **settings: str) -> CommandResult:
        """Run one command in this process, much faster, with what a process would find set."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.home)
            for name, value in self.environment(**settings).items():
                patch.setenv(name, value)
            ran = run_in_process(*arguments)
        assert "Traceback" not in ran.err, ran.err
        return ran

    def write_config(self, text: str) -> None:
        """Write the configuration file."""
        (self.home / "tileferry.toml").write_text(text, encoding="utf-8")


def create_user_folders(home: Path) -> dict[str, str]:
    """Return where a command finds the user's folders: not those of whoever runs the tests."""
    return {"XDG_DATA_HOME": str(home / "data"), "XDG_STATE_HOME": str(home / "state")}


def enter_environment(
    monkeypatch: pytest.MonkeyPatch, home: Path, environment: Mapping[str, str]
) -> None:
    """Let this process be in that folder, and find that set, until the test ends."""
    monkeypatch.chdir(home)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def run_in_process(*arguments: str) -> CommandResult:
    """Run one command in this process, which is much faster; settings are the process's own."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
    return CommandResult(code, out.getvalue(), err.getvalue())
