"""The command line as a whole: every noun is there, explains itself, and has an example."""

import inspect
import subprocess
import sys
from importlib.metadata import version

import pytest
from support.operator import run_here

from tileferry.entrypoints.cli.tree import CHAPTERS, NOUNS, leaves

LEAVES = dict(leaves())
HEAVY = (
    "alembic", "httpx", "psycopg", "rich", "sqlalchemy", "structlog", "typed_settings",
    "tileferry.adapters", "tileferry.application", "tileferry.domain",
    "tileferry.entrypoints.container",
)  # fmt: skip
"""What no help may wait for."""


def test_the_help_names_every_noun_in_its_chapter() -> None:
    ran = run_here("--help")
    assert ran.code == 0
    for chapter, nouns in CHAPTERS.items():
        listed = ran.out.split(f"{chapter}:")[1].split(":\n")[0]
        assert all(f"\n  {noun} " in listed for noun in nouns), chapter


@pytest.mark.parametrize("noun", NOUNS)
def test_the_summary_is_what_the_noun_says_of_itself(noun: str) -> None:
    ran = run_here(noun, "--help")
    assert ran.code == 0
    assert NOUNS[noun] in " ".join(ran.out.split())


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_command_explains_itself_with_an_example(words: tuple[str, ...]) -> None:
    command = LEAVES[words]
    assert inspect.cleandoc(command.help)[-1] in ".)", "a sentence, or several"
    assert f"  tileferry {' '.join(words)}" in command.epilog
    assert all(parameter.help for parameter in command.params if parameter.name != "help")


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_command_prints_json_on_request_and_takes_a_configuration(
    words: tuple[str, ...],
) -> None:
    options = {option for parameter in LEAVES[words].params for option in parameter.opts}
    assert "--json" in options
    # The provider is the other side, and the demo makes a configuration of its own.
    assert ("--config" in options) is (words[0] not in {"provider", "demo"})


def test_no_help_imports_what_only_a_run_needs() -> None:
    script = (
        "import sys, importlib\n"
        "from tileferry.entrypoints.cli.tree import NOUNS\n"
        "for noun in NOUNS: importlib.import_module('tileferry.entrypoints.cli.commands.' + noun)\n"
        f"print(sorted(set({HEAVY}) & set(sys.modules)))"
    )
    done = subprocess.run(  # noqa: S603  # our own interpreter
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_provider_s_help_says_where_its_faults_are_listed() -> None:
    assert "`tileferry provider faults` lists all" in " ".join(
        run_here("provider", "serve", "--help").out.split()
    )


def test_the_version_is_the_installed_one() -> None:
    ran = run_here("--version")
    assert (ran.code, ran.out) == (0, f"tileferry {version('tileferry')}\n")


def test_a_misspelt_noun_is_told_with_what_it_may_have_been() -> None:
    ran = run_here("downlod")
    assert (ran.code, ran.out) == (2, "")
    assert "No such command 'downlod'. Did you mean 'download'?" in ran.err
    assert "Did you mean" not in run_here("fly").err
