"""Mutations: a function of the product, and a text in it that is replaced."""

import ast
import inspect
import textwrap
from collections.abc import Iterable
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any

from attrs import field, frozen


def _to_tuple(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(names)


@frozen
class Bug:
    """One mutation."""

    place: str
    """``application.cache.group_commit:GroupCommit._commit``"""
    old: str
    """Occurs once in the source of that function."""
    new: str
    scenarios: tuple[str, ...] = field(default=("download",), converter=_to_tuple)
    """The scenarios that must find it, the quickest first."""


def find_function(place: str) -> FunctionType:
    """Return the function of a place, without its decorators."""
    module, _, path = place.partition(":")
    found: Any = import_module(f"tileferry.{module}")
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    plain = inspect.unwrap(found)
    assert isinstance(plain, FunctionType), f"{place} is not a function"
    return plain


def mutate(bug: Bug) -> CodeType:
    """Return the code of a function with the bug in it."""
    function = find_function(bug.place)
    source = textwrap.dedent(inspect.getsource(function))
    times = source.count(bug.old)
    assert times == 1, f"{bug.place} has {bug.old!r} {times} times, not once"
    tree = ast.parse(source.replace(bug.old, bug.new))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    space: dict[str, Any] = {}
    code = compile(tree, f"<bug in {bug.place}>", "exec")
    exec(code, dict(function.__globals__), space)  # noqa: S102  # the texts above
    made: FunctionType = space[definition.name]
    return made.__code__
