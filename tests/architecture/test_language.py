"""Documents, help pages and messages avoid words that need a second reading."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tileferry.entrypoints.cli.tree import NOUNS, iter_commands

ROOT = Path(__file__).parents[2]

BANNED_WORDS = (
    "anew",
    "as it likes",
    "asks for patience",
    "at it still",
    "betake",
    "goes on where",
    "is told",
    "lately",
    "mend",
    "mended",
    "mending",
    "mends",
    "nobody",
    "still at it",
    "therein",
    "thereof",
    "told so",
    "whoever",
    "whomever",
)

PACKAGES = ("adapters", "application", "domain", "migrations")
"""Packages whose messages are checked."""

DOCSTRING_PACKAGES = ("migrations",)
"""Packages whose docstrings and comments are checked as well."""

UNCHECKED_HELP: frozenset[str] = frozenset()
"""Commands whose help is not checked yet."""

PAGES = [*ROOT.glob("*.md"), *(ROOT / "_docs").rglob("*.md")]
SCHEMAS = [*(ROOT / "_docs").rglob("*.json")]
_BANNED = re.compile(rf"\b(?:{'|'.join(BANNED_WORDS)})\b", re.IGNORECASE)


def find_banned_words(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line, from 0, and the word; a phrase may be broken across lines."""
    flat = re.sub(r"\s", " ", text)
    for found in _BANNED.finditer(flat):
        yield text.count("\n", 0, found.start()), found[0]


def hide_code(page: str) -> str:
    """Blank out inline code: names of keys and fields are not prose."""
    return re.sub(r"`[^`\n]+`", lambda code: " " * len(code[0]), page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documents_use_plain_words(page: Path) -> None:
    text = hide_code(page.read_text(encoding="utf-8"))
    problems = [f"{page}:{line + 1}: {word!r}" for line, word in find_banned_words(text)]
    assert problems == []


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_schema_descriptions_use_plain_words(schema: Path) -> None:
    descriptions = iter_descriptions(json.loads(schema.read_text(encoding="utf-8")))
    problems = [
        f"{schema}: {word!r} in {text!r}"
        for text in descriptions
        for _, word in find_banned_words(text)
    ]
    assert problems == []


def iter_descriptions(node: Any) -> Iterator[str]:
    """Yield every title and description in a schema."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in {"title", "description"} and isinstance(value, str):
                yield value
            else:
                yield from iter_descriptions(value)
    elif isinstance(node, list):
        for item in node:
            yield from iter_descriptions(item)


@pytest.mark.parametrize("noun", sorted(NOUNS.keys() - UNCHECKED_HELP))
def test_help_uses_plain_words(noun: str) -> None:
    texts = {noun: NOUNS[noun]}
    for words, command in iter_commands():
        if words[0] == noun:
            name = " ".join(words)
            texts[name] = "\n".join(filter(None, (command.help, command.epilog)))
            texts |= {f"{name} {one.opts[0]}": one.help or "" for one in command.params}
    problems = [
        f"{place}: {word!r} in {text!r}"
        for place, text in texts.items()
        for _, word in find_banned_words(text)
    ]
    assert problems == []


def list_modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_messages_use_plain_words(package: str) -> None:
    problems = [
        f"{module}:{line + 1}: {word!r}"
        for module in list_modules(package)
        for start, text in iter_messages(module.read_text(encoding="utf-8"))
        for line, word in ((start - 1 + offset, word) for offset, word in find_banned_words(text))
    ]
    assert problems == []


def iter_messages(source: str) -> Iterator[tuple[int, str]]:
    """Yield every string of a module with its line, but docstrings and single words (keys)."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        if isinstance(node.value, str) and len(node.value.split()) > 1:
            yield node.lineno, node.value


@pytest.mark.parametrize("package", DOCSTRING_PACKAGES)
def test_docstrings_and_comments_use_plain_words(package: str) -> None:
    problems = [
        f"{module}:{line + 1}: {word!r}"
        for module in list_modules(package)
        for line, word in find_banned_words(module.read_text(encoding="utf-8"))
    ]
    assert problems == []


def test_banned_word_is_reported_with_its_line() -> None:
    assert [*find_banned_words("Fetch it\nanew, and it goes\non where it was.")] == [
        (1, "anew"),
        (1, "goes on where"),
    ]
    assert [*iter_messages('"""Mend it."""\nx = ["mend", "mend it"]')] == [(2, "mend it")]
