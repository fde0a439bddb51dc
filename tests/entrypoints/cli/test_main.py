"""The command line as a whole: every group of commands is there, by its name."""

import pytest
from support.operator import run_here

from tileferry.entrypoints.cli.main import GROUPS


def test_the_help_names_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = run_here("--help")
    assert ran.code == 0
    words = [line.strip("│ ").split(" ")[0] for line in ran.out.splitlines()]
    assert set(GROUPS) <= set(words)
