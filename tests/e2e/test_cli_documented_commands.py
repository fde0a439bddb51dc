"""Every command that a document or a help text shows is typed, in the order in which it stands."""

from pathlib import Path

import pytest
from support.documented_commands import DocumentedEnv, extract_commands, list_pages
from support.operator import enter_environment
from support.provider import RunningProvider

from tileferry.adapters.postgres import Database
from tileferry.entrypoints.cli.tree import iter_commands

PAGES = list_pages()
REFUSED = {
    "tileferry config init": "the operator has a file already",
    "tileferry backup restore /srv/backups/tileferry-2026-11-18": "nothing is overwritten",
    "tileferry runs retry --source satellite --reason 'the link is back'": "fewer runs match",
    "tileferry db start": "the operator has a server of another kind",
    "tileferry db stop": "the same",
    "tileferry state mark-terminal satellite/acme/roads/2026-03-01": "it was retried just before",
}
"""How commands begin that end with 4 where they stand, and why."""
STOPPED = ("tileferry worker", "tileferry provider serve", "tileferry audit tail --follow")
ELSEWHERE = ("tileferry demo", "tileferry serve", "tileferry push")
"""What has a test of its own, and takes its time."""


@pytest.fixture
def desktop(
    tmp_path: Path,
    database: Database,
    database_url: str,
    reference_provider: RunningProvider,
    monkeypatch: pytest.MonkeyPatch,
) -> DocumentedEnv:
    desktop = DocumentedEnv(tmp_path, database_url, reference_provider)
    desktop.set_up(database)
    shell = {"NO_COLOR": "1", "COLUMNS": "80", "XDG_CONFIG_HOME": str(tmp_path / "config")}
    shell["XDG_DATA_HOME"] = str(tmp_path / "data")
    enter_environment(monkeypatch, tmp_path, {**desktop.settings, **shell})
    return desktop


def check_command(desktop: DocumentedEnv, command: str) -> None:
    if command.startswith(ELSEWHERE):
        return
    typed = desktop.type_command(command)
    allowed = {0, 3}
    refused = any(command == begin or command.startswith(f"{begin} --") for begin in REFUSED)
    if refused and "--user" not in command:  # the operator has no file in that folder
        allowed = {4}
    if command.startswith(STOPPED):
        allowed = {0, 130}
    assert typed.ran.code in allowed, (command, typed.ran)
    assert "Traceback" not in typed.ran.err


@pytest.mark.parametrize("page", PAGES)
def test_documented_commands_work_in_page_order(desktop: DocumentedEnv, page: str) -> None:
    for command in PAGES[page]:
        check_command(desktop, command)


def help_examples() -> list[str]:
    return [command for _, leaf in iter_commands() for command in extract_commands(leaf.epilog)]


def test_help_examples_work_in_order(desktop: DocumentedEnv) -> None:
    for command in help_examples():
        check_command(desktop, command)


def test_operator_pages_contain_commands() -> None:
    assert {"README.md", "_docs/pilot-guide.md", "_docs/administrator-guide.md"} <= set(PAGES)
