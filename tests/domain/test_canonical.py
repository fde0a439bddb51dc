"""One value, one sequence of bytes."""

import json
from enum import Enum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import json_values

from tileferry.domain import canonical
from tileferry.domain.canonical import DEPTH_MAX, JsonValue, canonical_json
from tileferry.domain.errors import InvalidValueError


class Colour(StrEnum):
    """An enum whose members are text."""

    RED = "red"


class OldColour(str, Enum):  # noqa: UP042  # the older kind shows its name where text is asked for
    """An enum of the older kind."""

    RED = "red"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "null"),
        (True, "true"),
        (1, "1"),
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e300, str(int(1e300))),
        (2**60, "1152921504606846976"),
        (2.0**60, "1152921504606846976"),
        (1e-7, "1e-07"),
        ("Größe", '"Größe"'),
        ("\u2028\x00", '"\u2028\\u0000"'),
        (Colour.RED, '"red"'),
        (OldColour.RED, '"red"'),
        ([], "[]"),
        ((1, [2, ()]), "[1,[2,[]]]"),
        ({"b": 1, "a": {"d": 2, "c": 3}}, '{"a":{"c":3,"d":2},"b":1}'),
        ({"B": 0, "a": 0, "é": 0, "": 0}, '{"":0,"B":0,"a":0,"é":0}'),
    ],
)
def test_canonical_json_format(value: Any, written: str) -> None:
    assert canonical_json(value) == written.encode("utf-8")


@pytest.mark.parametrize(
    ("value", "path", "problem"),
    [
        (float("nan"), "payload", "finite number"),
        ({"a": [1, float("inf")]}, "payload.a[1]", "finite number"),
        ({"a": {1: 2}}, "payload.a", "key that is not text"),
        ({"a": {"\ud800": 2}}, "payload.a", "not valid Unicode"),
        (["ok", "\udfff"], "payload[1]", "not valid Unicode"),
        ({"a": b"bytes"}, "payload.a", "no canonical JSON form"),
        ({1, 2}, "payload", "no canonical JSON form"),
        ([2**1024], "payload[0]", "more than 1024 bits"),
    ],
)
def test_unsupported_value_is_rejected_by_path(value: Any, path: str, problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem) as refusal:
        canonical_json(value, field="payload")
    assert refusal.value.field == path


def test_largest_integer_is_accepted() -> None:
    assert canonical_json(2**1024 - 1) == str(2**1024 - 1).encode()


def _make_nested(depth: int) -> JsonValue:
    value: JsonValue = 0
    for _ in range(depth):
        value = [value]
    return value


def test_depth_is_bounded() -> None:
    assert canonical_json(_make_nested(DEPTH_MAX)).count(b"[") == DEPTH_MAX == 32
    with pytest.raises(InvalidValueError, match="nested more than 32 levels deep"):
        canonical_json(_make_nested(DEPTH_MAX + 1))


def test_cyclic_value_is_rejected() -> None:
    endless: list[Any] = []
    endless.append({"again": endless})
    with pytest.raises(InvalidValueError, match="nested more than"):
        canonical_json(endless)


def test_shared_references_expanding_beyond_limit_are_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert canonical.NODES_MAX == 1_000_000
    monkeypatch.setattr(canonical, "NODES_MAX", 9_999)  # a million take their time
    value: JsonValue = None
    for _ in range(4):
        value = [value] * 10
    with pytest.raises(InvalidValueError, match="exceeds the limit of 9999 values"):
        canonical_json(value)


@given(json_values)
def test_canonical_json_round_trips(value: JsonValue) -> None:
    assert json.loads(canonical_json(value)) == value


@given(json_values)
def test_canonical_json_is_stable_after_round_trip(value: JsonValue) -> None:
    once = canonical_json(value)
    assert canonical_json(json.loads(once)) == once


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=6), st.randoms())
def test_key_order_does_not_matter(value: dict[str, JsonValue], chance: Any) -> None:
    items = list(value.items())
    chance.shuffle(items)
    assert canonical_json(dict(items)) == canonical_json(value)


@given(json_values, json_values)
def test_different_values_have_different_bytes(left: JsonValue, right: JsonValue) -> None:
    same_bytes = canonical_json(left) == canonical_json(right)
    assert same_bytes == (json.dumps(_tag_types(left)) == json.dumps(_tag_types(right)))


def _tag_types(value: Any) -> Any:
    """Python takes True for 1; JSON does not."""
    if isinstance(value, bool):
        return ["bool", value]
    if isinstance(value, int | float):
        return ["number", str(int(value)) if value == int(value) else value]
    if isinstance(value, dict):
        return ["object", sorted((key, _tag_types(item)) for key, item in value.items())]
    if isinstance(value, list):
        return ["array", [_tag_types(item) for item in value]]
    return value
