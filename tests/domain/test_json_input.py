"""JSON from somebody else."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import parse_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(codec="utf-8", exclude_characters="\0")), inner, max_size=4
        )
    ),
    max_leaves=10,
)


def parse(content: bytes, *, bytes_max: int = 100_000) -> Any:
    return parse_json(content, field="body", bytes_max=bytes_max)


@given(VALUES)
def test_valid_json_is_parsed(value: Any) -> None:
    assert parse(json.dumps(value).encode()) == value


@given(st.binary(max_size=60))
def test_invariant_30_arbitrary_bytes_raise_only_invalid_value_error(content: bytes) -> None:
    with contextlib.suppress(InvalidValueError):
        assert parse(content) == json.loads(content)


@pytest.mark.parametrize(
    ("content", "field", "problem"),
    [
        (b"", "body", "is not JSON"),
        (b"{", "body", "is not JSON"),
        (b"\xff", "body", "is not UTF-8"),
        (b"[1, NaN]", "body[1]", "is NaN, which JSON does not have"),
        (b'{"a": {"b": -Infinity}}', "body.a.b", "is -Infinity"),
        (b'{"a": 1e999}', "body.a", "is beyond what a number can be"),
        (b"[" + b"9" * 5_000 + b"]", "body[0]", "is a whole number of 5000 digits"),
        (b'{"a": {"b": 1, "c": 2, "b": 3}}', "body.a", "has the key 'b' twice"),
        (b'["\\ud800"]', "body[0]", "is not valid Unicode"),
        (b'["a\\u0000b"]', "body[0]", "holds a NUL character"),
        (b'{"a\\u0000b": 1}', "body", "holds a NUL character"),
        (b'{"\\udc00": 1}', "body", "is not valid Unicode"),
        (b"[" * 40 + b"]" * 40, "body" + "[0]" * 33, "is nested more than 32 levels deep"),
        (
            b'{"a":' * 33 + b"1" + b"}" * 33,
            "body" + ".a" * 33,
            "is nested more than 32 levels deep",
        ),
        (b"[" * 100_000, "body", "is nested more than 32 levels deep"),
    ],
)
def test_invariant_30_invalid_json_is_rejected_by_path(
    content: bytes, field: str, problem: str
) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        parse(content, bytes_max=200_000)
    assert refusal.value.field == field
    assert problem in refusal.value.problem


def test_invariant_30_oversized_input_is_rejected_unparsed() -> None:
    with pytest.raises(InvalidValueError, match=r"body: is longer than 5 bytes \(got '6 bytes'\)"):
        parse(b'"abcd"', bytes_max=5)


def test_invariant_30_input_with_too_many_values_is_rejected_unparsed() -> None:
    content = b"[" + b"[]," * 300_000 + b"0]"
    with pytest.raises(InvalidValueError, match="body: has more than 600000 values"):
        parse(content, bytes_max=len(content))
