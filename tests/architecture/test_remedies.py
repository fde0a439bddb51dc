"""Only the command line names its commands and options; all other code names a remedy."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tileferry.domain.errors import Remedy
from tileferry.entrypoints.cli.remedies import WORDINGS
from tileferry.entrypoints.cli.tree import iter_commands

ROOT = Path(__file__).parents[2]
COMMANDS = dict(iter_commands())
COMMAND = re.compile(r"`tileferry ([a-z -]+?)(?: \{[^}]*\})?`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
COMMAND_LINE = re.compile(
    r"\btileferry (?:" + "|".join(sorted({words[0] for words in COMMANDS})) + r")\b"
    r"|(?<![\w-])--[a-z][a-z-]*"
    r"|\b(?:" + "|".join(" ".join(words) for words in COMMANDS if len(words) > 1) + r")\b"
)
NEUTRAL = {"backfill plan"}
"""Commands that are also the field's word for a thing."""


def find_messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module, except its docstrings."""
    tree = ast.parse(path.read_text())
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


@pytest.mark.parametrize("layer", ["domain", "application", "adapters"])
def test_messages_name_no_command_line(layer: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]}"
        for path in sorted((ROOT / layer).rglob("*.py"))
        for line, text in find_messages(path)
        for match in COMMAND_LINE.finditer(text)
        if match[0] not in NEUTRAL
    ]
    assert not found


def test_every_remedy_is_worded_for_the_command_line() -> None:
    assert WORDINGS.keys() == set(Remedy)


@pytest.mark.parametrize("remedy", Remedy, ids=lambda remedy: remedy.name)
def test_worded_remedy_names_existing_command_or_option(remedy: Remedy) -> None:
    wording = WORDINGS[remedy]
    options = {
        option for command in COMMANDS.values() for each in command.params for option in each.opts
    }
    commands = [tuple(match[1].split()) for match in COMMAND.finditer(wording)]
    assert wording.count("`") == 2 * len(commands)
    assert commands or OPTION.search(wording)
    assert set(commands) <= COMMANDS.keys()
    assert set(OPTION.findall(wording)) <= options
