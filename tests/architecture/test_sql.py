"""SQL is parameterised: no statement is built from a value that comes from outside."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("domain", "application", "adapters", "entrypoints")
STATEMENT = re.compile(
    r"\b(?:SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE (?:TABLE|DATABASE|INDEX)|ALTER TABLE|LISTEN"
    r"|NOTIFY|SET LOCAL|COPY|TRUNCATE|DROP (?:TABLE|DATABASE)|FROM|WHERE|JOIN)\s"
)
_ARCHIVES = "adapters/filesystem/archives/sqlite_archive.py"
REVIEWED = {
    (_ARCHIVES, "add"): "constants of a format",
    (_ARCHIVES, "build_size_query"): "constants of a format; the name of a table is quoted",
    (_ARCHIVES, "build_tile_query"): "constants of a format; the name of a table is quoted",
    (_ARCHIVES, "open_draft"): "constants of a format",
    ("adapters/postgres/figures.py", "_count"): "called with constants, at import",
    ("adapters/postgres/figures.py", "_find_oldest"): "called with constants, at import",
    ("adapters/postgres/figures.py", "_sample"): "literal names of tables, and a number",
    ("adapters/postgres/session.py", "configure_session"): "names and numbers of our own limits",
    ("adapters/postgres/tile_index.py", "build_lock_sql"): "called with constants, at import",
    ("adapters/postgres/tile_inventory.py", "build_reopen_sql"): "shown to people, and never run",
    ("adapters/postgres/work_reader.py", "_where"): "joins conditions that are constants",
}
"""The functions that put SQL together from other parts than constants, and why that is safe."""


def test_invariant_37_sql_is_parameterised() -> None:
    found = {(file, function) for file, function, _ in find_parts()}
    assert found == set(REVIEWED)


def find_parts() -> Iterator[tuple[str, str, str]]:
    """Yield what a function puts into a text that looks like SQL and is no constant.

    Outside of functions nothing comes from outside: the text is made at import.
    """
    for path in (path for top in PRODUCT for path in sorted((ROOT / top).rglob("*.py"))):
        for function, node in walk(ast.parse(path.read_text(encoding="utf-8")), ""):
            for part in list_parts(node) if function else ():
                if not is_constant(part):
                    yield str(path.relative_to(ROOT)), function, ast.unparse(part)


def walk(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield every node below with the name of the function that it is in."""
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, ast.FunctionDef) else name
        yield inside, child
        yield from walk(child, inside)


def list_parts(node: ast.AST) -> list[ast.expr]:
    """Return what an f-string, a sum or a ``format`` puts into SQL."""
    match node:
        case ast.JoinedStr(values=parts) if is_sql(*parts):
            return [part.value for part in parts if isinstance(part, ast.FormattedValue)]
        case ast.BinOp(op=ast.Add() | ast.Mod(), left=left, right=right) if is_sql(left, right):
            return [left, right]
        case ast.Call(func=ast.Attribute(value=text, attr="format")) if is_sql(text):
            return [*node.args, *(one.value for one in node.keywords)]
        case _:
            return []


def is_sql(*parts: ast.expr) -> bool:
    text = "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
    return STATEMENT.search(text) is not None


def is_constant(part: ast.expr) -> bool:
    """Return whether an expression is a literal, or a constant of a module."""
    return isinstance(part, ast.Constant) or (isinstance(part, ast.Name) and part.id.isupper())


def test_formatted_statements_are_found() -> None:
    source = """
def f(name):
    a = f"SELECT * FROM tiles WHERE source = '{name}'"
    b = "SELECT * FROM tiles WHERE source = " + name
    c = "SELECT * FROM tiles WHERE source = {}".format(name)
    d = f"SELECT {COLUMNS} FROM tiles"
"""
    parts = [
        part
        for _, node in walk(ast.parse(source), "")
        for part in list_parts(node)
        if not is_constant(part)
    ]
    assert [ast.unparse(part) for part in parts] == ["name"] * 3
