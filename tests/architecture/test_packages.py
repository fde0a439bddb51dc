"""The architecture's rules that no linter checks by itself."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NOT_SHIPPED = {"tests", "benchmarks", "simulation", "tools", "build", "dist"}

# The pure parts of the standard library that the inner layers may use, and attrs.
PURE = {
    "array", "attrs", "base64", "bisect", "builtins", "collections", "contextlib", "datetime",
    "decimal", "email", "enum", "functools", "hashlib", "heapq", "hmac", "html", "importlib",
    "inspect", "ipaddress", "itertools", "json", "logging", "math", "operator", "pathlib", "re",
    "string", "struct", "types", "typing", "unicodedata", "uuid", "zlib",
}  # fmt: skip


def find_packages() -> set[str]:
    """Every folder with Python files that is part of the product."""
    return {
        ".".join(("tileferry", *file.parent.relative_to(ROOT).parts))
        for top in ROOT.iterdir()
        if top.is_dir() and top.name[0] not in "._" and top.name not in NOT_SHIPPED
        for file in top.rglob("*.py")
    }


def test_wheel_ships_every_package() -> None:
    assert set(PYPROJECT["tool"]["setuptools"]["packages"]) == find_packages()


def test_every_top_level_package_is_in_layers_contract() -> None:
    tops = {name for name in find_packages() if name.count(".") == 1}
    linter = PYPROJECT["tool"]["importlinter"]
    layers = next(item for item in linter["contracts"] if item["id"] == "layers")
    assert set(linter["root_packages"]) == set(layers["layers"]) == tops


def test_every_top_level_package_is_typed_mapped_and_type_checked() -> None:
    for name in (name for name in find_packages() if name.count(".") == 1):
        folder = name.removeprefix("tileferry.")
        assert (ROOT / folder / "py.typed").exists()
        assert PYPROJECT["tool"]["setuptools"]["package-dir"][name] == folder
        assert PYPROJECT["tool"]["setuptools"]["package-data"][name] == ["py.typed"]
        assert (ROOT / ".types/tileferry" / folder).resolve() == ROOT / folder
        assert f"-p {name} " in (ROOT / "Makefile").read_text(encoding="utf-8").replace("\n", " ")


def find_imports(folder: str) -> Iterator[tuple[str, str]]:
    for file in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield str(file.relative_to(ROOT)), alias.name
            elif isinstance(node, ast.ImportFrom):
                yield str(file.relative_to(ROOT)), node.module or "."


@pytest.mark.parametrize(
    ("folder", "own"),
    [("domain", {"domain"}), ("application", {"domain", "application"})],
)
def test_inner_layers_import_only_pure_modules(folder: str, own: set[str]) -> None:
    strangers = {
        (file, module)
        for file, module in find_imports(folder)
        if module.split(".")[0] not in PURE
        and not any(
            module == f"tileferry.{name}" or module.startswith(f"tileferry.{name}.") for name in own
        )
    }
    assert strangers == set()


@pytest.mark.parametrize("folder", ["domain", "application"])
def test_inner_layers_do_no_io(folder: str) -> None:
    forbidden = {"open", "print", "input", "exec", "eval", "breakpoint", "__import__"}
    calls = {
        (str(file.relative_to(ROOT)), node.func.id)
        for file in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert {call for call in calls if call[1] in forbidden} == set()


def test_only_container_imports_dependency_injector() -> None:
    users = {
        file
        for folder in ("domain", "application", "adapters", "entrypoints", "migrations")
        for file, module in find_imports(folder)
        if module.split(".")[0] == "dependency_injector"
    }
    assert users <= {"entrypoints/container.py"}
