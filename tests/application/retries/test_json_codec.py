"""Results as JSON: what has a form, and what is refused before it is made."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, Optional, TypedDict, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.application import JsonCodec
from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidValueError, MisuseError

CODEC = JsonCodec()
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_json_values_round_trip(value: Any) -> None:
    assert CODEC.decode(CODEC.encode(value)) == value


class Point(TypedDict):
    x: float
    names: list[str]


class Picture(TypedDict):
    content: bytes


def test_number_types_are_preserved() -> None:
    for value in (1.0, -0.0, 1e300, 1, 2**60, {"a": (1.0, 2)}):
        again = CODEC.decode(CODEC.encode(value))
        assert repr(again) == repr(value).replace("(", "[").replace(")", "]")
    assert CODEC.decode(CODEC.encode(MappingProxyType({"a": 1}))) == {"a": 1}


@pytest.mark.parametrize(
    "kind",
    [
        Literal["a", 1], Annotated[int, "x"], Point, list[Point],
        None, list[Any], JsonValue, str, int, float, bool, type(None), list, dict, list[int],
        tuple[int, ...], tuple[str, int], dict[str, float], dict[str, Any], Mapping[str, list[int]],
        Sequence[str], Optional[str], Union[int, str], int | None,  # noqa: UP007, UP045  # old forms too
        dict[str, dict[str, list[bool]]],
    ],
)  # fmt: skip
def test_json_types_are_accepted(kind: Any) -> None:
    CODEC.check_type(kind)


@pytest.mark.parametrize(
    "kind",
    [bytes, set, set[int], object, list[bytes], dict[int, str], dict[str, set[int]], int | bytes,
     Literal[b"a"], Annotated[bytes, 1], Picture, complex, type, tuple[bytes, ...],
     InvalidValueError],
)  # fmt: skip
def test_non_json_types_are_rejected(kind: Any) -> None:
    with pytest.raises(MisuseError, match=r"result_type: .* cannot be stored as JSON"):
        CODEC.check_type(kind)
