"""How the help of commands looks, and how little it waits for."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.operator import run_in_process

from tileferry.entrypoints.cli.command_group import format_examples
from tileferry.entrypoints.cli.tree import iter_commands

LEAVES = dict(iter_commands())
GROUPS = sorted({words[:count] for words in LEAVES for count in range(1, len(words))})
EXAMPLES = [
    line.strip()
    for command in LEAVES.values()
    for line in command.epilog.replace("\\\n", "").splitlines()[2:]
]
SAMPLE_FILES = ("area.mbtiles", "january.plan", "other.mbtiles", "record.json")
LONG = (
    "tileferry runs cancel R1 --reason 'the wrong area, and the wrong flight too' --config a.toml"
)


@pytest.fixture(autouse=True)
def set_terminal_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_help_fits_80_columns_and_shows_no_types(words: tuple[str, ...]) -> None:
    ran = run_in_process(*words, "--help")
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= 80
    assert not re.search(r"<\w|\{\w", ran.out)


@pytest.mark.parametrize("words", GROUPS, ids=" ".join)
def test_group_help_lists_commands_without_truncation(words: tuple[str, ...]) -> None:
    listed = run_in_process(*words, "--help").out.split("Commands:\n")[1]
    assert all(line.endswith(".") for line in listed.splitlines())
    assert "..." not in listed


def test_help_shows_required_arguments() -> None:
    out = run_in_process("runs", "show", "--help").out
    assert " runs show [OPTIONS] RUN\n" in out
    assert "Arguments:\n  RUN  Run id.  [required]\n" in out


def test_optional_argument_is_in_brackets() -> None:
    assert "inspect [OPTIONS] [PARTITION]\n" in run_in_process("state", "inspect", "--help").out


def test_example_heading_is_singular_or_plural() -> None:
    assert format_examples("tileferry a") == "\b\nExample:\n  tileferry a"
    assert (
        format_examples("tileferry a", "tileferry b")
        == "\b\nExamples:\n  tileferry a\n  tileferry b"
    )


def test_long_example_is_folded_with_shell_continuation() -> None:
    _, _, *rows = format_examples(LONG).splitlines()
    assert len(rows) > 1
    assert max(map(len, rows)) <= 76
    assert shlex.split("\n".join(rows).replace("\\\n", "")) == shlex.split(LONG)


def test_help_does_not_import_validation_libraries() -> None:
    script = (
        "import sys\n"
        "from tileferry.entrypoints.cli.main import main\n"
        "try: main(['runs', 'submit', 'download', '--help'])\n"
        "except SystemExit: print(sorted({'pydantic', 'rich', 'attrs'} & set(sys.modules)))\n"
    )
    done = subprocess.run(  # noqa: S603  # our own interpreter
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("\n[]\n")


def test_show_completion_prints_shell_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    ran = run_in_process("--show-completion")
    assert ran.code == 0
    assert "complete_bash" in ran.out


@pytest.mark.parametrize("line", EXAMPLES)
def test_help_examples_parse(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in SAMPLE_FILES:
        Path(name).touch()
    Path("card").mkdir()
    program, *words = shlex.split(line)
    assert program == "tileferry"
    for count in range(len(words), 0, -1):
        command = LEAVES.get(tuple(words[:count]))
        if command is not None:
            command.make_context("tileferry", words[count:])  # a usage error would be raised
            return
    pytest.fail("it is no command")
