"""The command line as a whole: every noun is there, explains itself, and has an example."""

import inspect
import subprocess
import sys
from importlib.metadata import version

import pytest
from support.operator import run_in_process

from tileferry.entrypoints.cli.tree import CHAPTERS, NOUNS, iter_commands

LEAVES = dict(iter_commands())
HEAVY = (
    "alembic", "httpx", "psycopg", "rich", "sqlalchemy", "structlog", "typed_settings",
    "tileferry.adapters", "tileferry.application", "tileferry.domain",
    "tileferry.entrypoints.container",
)  # fmt: skip
"""What no help may wait for."""


def test_help_lists_every_command_group_in_its_section() -> None:
    ran = run_in_process("--help")
    assert ran.code == 0
    for chapter, nouns in CHAPTERS.items():
        listed = ran.out.split(f"{chapter}:")[1].split(":\n")[0]
        assert all(f"\n  {noun} " in listed for noun in nouns), chapter


@pytest.mark.parametrize("noun", NOUNS)
def test_summary_matches_command_group_help(noun: str) -> None:
    ran = run_in_process(noun, "--help")
    assert ran.code == 0
    assert NOUNS[noun] in " ".join(ran.out.split())


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_command_has_help_and_example(words: tuple[str, ...]) -> None:
    command = LEAVES[words]
    assert inspect.cleandoc(command.help)[-1] in ".)", "a sentence, or several"
    assert f"  tileferry {' '.join(words)}" in command.epilog
    assert all(parameter.help for parameter in command.params if parameter.name != "help")


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_command_has_json_and_config_options(
    words: tuple[str, ...],
) -> None:
    options = {option for parameter in LEAVES[words].params for option in parameter.opts}
    assert "--json" in options
    # The provider is the other side, and the demo makes a configuration of its own.
    assert ("--config" in options) is (words[0] not in {"provider", "demo"})


def test_help_does_not_import_heavy_modules() -> None:
    script = (
        "import sys, importlib\n"
        "from tileferry.entrypoints.cli.tree import NOUNS\n"
        "for noun in NOUNS: importlib.import_module('tileferry.entrypoints.cli.' + noun)\n"
        f"print(sorted(set({HEAVY}) & set(sys.modules)))"
    )
    done = subprocess.run(  # noqa: S603  # our own interpreter
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_provider_help_refers_to_fault_list() -> None:
    assert "`tileferry provider faults` lists all" in " ".join(
        run_in_process("provider", "serve", "--help").out.split()
    )


def test_version_is_installed_version() -> None:
    ran = run_in_process("--version")
    assert (ran.code, ran.out) == (0, f"tileferry {version('tileferry')}\n")


def test_misspelled_command_gets_suggestion() -> None:
    ran = run_in_process("downlod")
    assert (ran.code, ran.out) == (2, "")
    assert "No such command 'downlod'. Did you mean 'download'?" in ran.err
    assert "Did you mean" not in run_in_process("fly").err
