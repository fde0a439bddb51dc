"""The documented forms of what commands print for scripts, and whether an object has its form."""

import json
from functools import cache, lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from support.contract_pages import CLI_JSON, CONTRACTS, marked

FOLDER = (CONTRACTS / CLI_JSON).parent / "json"
COMMON = "common.json"
"""What several forms have in common; it is no form itself."""


@cache
def documents() -> dict[str, dict[str, Any]]:
    """Return all files by their names."""
    files = sorted(FOLDER.glob("*.json"))
    return {file.name: json.loads(file.read_text(encoding="utf-8")) for file in files}


def forms() -> list[str]:
    """Return the names of all forms."""
    return [name.removesuffix(".json") for name in documents() if name != COMMON]


@cache
def validator(form: str) -> Draft202012Validator:
    """Return what knows a form."""
    found = {name: Resource.from_contents(body) for name, body in documents().items()}
    assert f"{form}.json" in found, f"the form {form} is not documented"
    registry: Registry[Any] = Registry().with_resources(found.items())
    return Draft202012Validator(documents()[f"{form}.json"], registry=registry)


def problems_of(printed: Any, form: str) -> list[str]:
    """Return what is not as the form has it."""
    return [f"{one.json_path}: {one.message}" for one in validator(form).iter_errors(printed)]


@cache
def exit_codes() -> dict[str, set[int]]:
    """Return how a command may end that has printed a form, as the page says it."""
    return {form.strip("`"): {*map(int, codes.split())} for _, form, codes, _ in rows()}


def rows() -> list[list[str]]:
    """Return the page's table of forms, where each links to its file."""
    return [
        [commands, form.strip("[").partition("]")[0], codes, about]
        for commands, form, codes, about in marked(CLI_JSON, "forms")
    ]


def read(line: str, code: int | None = None) -> Any:
    """Return the object that a command printed, which must have its documented form.

    ``code`` is how the command ended, for those that have.
    """
    _check(line, code)
    return json.loads(line)


@lru_cache(maxsize=256)  # tests look at the same object again and again
def _check(line: str, code: int | None) -> None:
    printed = json.loads(line)
    form = printed["schema"]
    problems = problems_of(printed, form)
    assert not problems, f"{form}: {problems}"
    if code is None:
        return
    assert code in exit_codes()[form], f"{form} is not documented to end with {code}"
    if "error" in printed and isinstance(printed["error"], dict):
        assert printed["error"]["exit_code"] == code
