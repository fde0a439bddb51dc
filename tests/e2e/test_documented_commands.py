"""Every command that a document or a help text shows is typed, in the order in which it stands."""

from pathlib import Path

import pytest
from support.documented import Desktop, pages, typed_in
from support.operator import move_in
from support.provider import RunningProvider

from tileferry.adapters.postgres import Database
from tileferry.entrypoints.cli.tree import leaves

PAGES = pages()
REFUSED = {
    "tileferry config init": "the operator has a file already",
    "tileferry state mark-terminal satellite/acme/roads/2026-03-01": "it was retried just before",
}
"""How commands begin that end with 4 where they stand, and why."""
STOPPED = ("tileferry worker", "tileferry provider serve", "tileferry audit tail --follow")
ELSEWHERE = ("tileferry demo",)
"""What has a test of its own, and takes its time."""


@pytest.fixture
def desktop(
    tmp_path: Path,
    database: Database,
    database_url: str,
    reference_provider: RunningProvider,
    monkeypatch: pytest.MonkeyPatch,
) -> Desktop:
    desktop = Desktop(tmp_path, database_url, reference_provider)
    desktop.set_up(database)
    move_in(monkeypatch, tmp_path, {**desktop.settings, "NO_COLOR": "1", "COLUMNS": "80"})
    return desktop


def check(desktop: Desktop, command: str) -> None:
    if command.startswith(ELSEWHERE):
        return
    typed = desktop.types(command)
    allowed = {0, 3}
    if any(command == refused or command.startswith(f"{refused} --") for refused in REFUSED):
        allowed = {4}
    if command.startswith(STOPPED):
        allowed = {0, 130}
    assert typed.ran.code in allowed, (command, typed.ran)
    assert "Traceback" not in typed.ran.err


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work_as_they_stand_there(desktop: Desktop, page: str) -> None:
    for command in PAGES[page]:
        check(desktop, command)


def examples() -> list[str]:
    return [command for _, leaf in leaves() for command in typed_in(leaf.epilog)]


def test_the_examples_of_the_help_work_in_their_order(desktop: Desktop) -> None:
    for command in examples():
        check(desktop, command)


def test_the_pages_that_operators_read_have_commands() -> None:
    assert {"README.md", "_docs/operations.md"} <= set(PAGES)
