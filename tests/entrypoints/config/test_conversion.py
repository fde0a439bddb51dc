"""Values of files and variables in the types of settings."""

from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from tileferry.entrypoints.config import Secret
from tileferry.entrypoints.config.conversion import convert_value

FOLDER = Path("/etc/tileferry")


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "kind", "converted"),
    [
        ("on", bool, True),
        ("OFF", bool, False),
        (0, bool, False),
        ("7", int, 7),
        (7.0, int, 7),
        (7, float, 7.0),
        ("1e3", float | None, 1000.0),
        (date(2026, 5, 1), str | None, "2026-05-01"),
        ("key", Path | None, FOLDER / "key"),
        ("/key", Path, Path("/key")),
        ("red", Colour, Colour.RED),
        ("red:red", list[Colour], [Colour.RED, Colour.RED]),
        (["red"], list[Colour], [Colour.RED]),
        ({"a": "1,2,3,4"}, dict[str, str], {"a": "1,2,3,4"}),
        ("text", Secret | None, Secret("text")),
    ],
)
def test_values_are_converted_to_the_declared_type(value: Any, kind: Any, converted: Any) -> None:
    found = convert_value(value, kind, FOLDER)
    assert (type(found), found) == (type(converted), converted)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("maybe", bool),
        (2, bool),
        (7.5, int),
        (True, int),
        ("7.0", int),
        ([], float),
        ({}, str),
        (True, Path),
        ("~no-such-user/x", Path),
        ("green", Colour),
        (5, Colour),
        (5, list[Colour]),
        ("red:green", list[Colour]),
        ("a=b", dict[str, str]),
        ({"a": []}, dict[str, str]),
        (5, Secret | None),
    ],
)
def test_values_of_another_type_are_rejected(value: Any, kind: Any) -> None:
    with pytest.raises(ValueError, match=r".*"):
        convert_value(value, kind, FOLDER)


def test_secrets_are_compared_by_value_and_not_shown() -> None:
    secret = Secret("canary")
    assert secret == Secret("canary") != Secret("other")
    assert secret not in ("canary", None)
    assert len({secret, Secret("canary")}) == 1
    assert "canary" not in f"{secret} {secret!r}"
