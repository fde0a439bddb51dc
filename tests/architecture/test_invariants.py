"""A claimed invariant names tests that exist."""

import ast
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INVARIANTS = range(1, 43)


def problems(claims: Mapping[str, list[str]]) -> list[str]:
    """Say what is wrong with the claims."""
    found = [
        f"{number}: no such invariant" for number in claims if number not in map(str, INVARIANTS)
    ]
    for number, tests in claims.items():
        if not tests:
            found.append(f"{number}: claimed without a test")
        found += [f"{number}: {test} does not exist" for test in tests if not exists(test)]
    return found


def exists(test: str) -> bool:
    """Tell whether a node id, without its parameters, names a test in this tree."""
    file, *names = test.split("::")
    path = ROOT / file
    if not names or not path.is_file():
        return False
    defined = names_defined_in(path)
    return all(name in defined for name in names) and names[-1].lower().startswith("test")


@cache
def names_defined_in(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
    }


def test_every_claim_is_backed_by_a_test() -> None:
    claims = tomllib.loads((ROOT / "tests/invariants.toml").read_text(encoding="utf-8"))["claims"]
    assert problems(claims) == []


THIS = "tests/architecture/test_invariants.py"


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"1": [f"{THIS}::test_every_claim_is_backed_by_a_test"]}, []),
        ({"43": [f"{THIS}::test_every_claim_is_backed_by_a_test"]}, ["43: no such invariant"]),
        ({"2": []}, ["2: claimed without a test"]),
        ({"2": [f"{THIS}::test_gone"]}, [f"2: {THIS}::test_gone does not exist"]),
        ({"2": [f"{THIS}::exists"]}, [f"2: {THIS}::exists does not exist"]),
        ({"2": ["tests/none.py::test_x"]}, ["2: tests/none.py::test_x does not exist"]),
        ({"2": [THIS]}, [f"2: {THIS} does not exist"]),
    ],
)
def test_invalid_claims_are_reported(claims: dict[str, list[str]], expected: list[str]) -> None:
    assert problems(claims) == expected
