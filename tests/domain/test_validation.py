"""Validators that the other tests do not reach by themselves."""

from datetime import UTC, datetime
from typing import Any

import pytest
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import aware, is_name, name, text


@frozen
class Sample:
    """Something with checked fields."""

    label: str = field(default="a", validator=name)
    title: str = field(default="A", validator=text)
    at: datetime = field(default=datetime(2026, 1, 1, tzinfo=UTC), validator=aware)


@pytest.mark.parametrize("label", ["a", "Z9", "flight-7_b.2", "0", "a" * 64])
def test_valid_names_are_accepted(label: str) -> None:
    assert Sample(label=label).label == label


@pytest.mark.parametrize(
    "label",
    [
        "",
        ".",
        "..",
        "a..b",
        "/a",
        "a/b",
        "a\\b",
        "a\0",
        "a\n",
        " a",
        "-a",
        "_a",
        "é",
        "a" * 65,
        7,
        None,
    ],
)
def test_invalid_names_are_rejected(label: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"Sample\.label: is not a plain name") as refusal:
        Sample(label=label)
    assert "1 to 64" in refusal.value.remedy


@given(st.text(max_size=70))
def test_name_is_safe_as_path_component(label: str) -> None:
    if is_name(label):
        assert label.isascii()
        assert label.isprintable()
        assert not {"/", "\\", "\0", " "} & set(label)
        assert label not in {".", ".."}
        assert len(label) <= 64


@pytest.mark.parametrize("title", ["", None, 3])
def test_empty_or_non_text_is_rejected(title: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"Sample\.title: must be non-empty text"):
        Sample(title=title)


@pytest.mark.parametrize("at", [datetime(2026, 1, 1), "2026-01-01", None])  # noqa: DTZ001  # the point
def test_naive_or_non_datetime_is_rejected(at: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"Sample\.at: must be a time with a time zone"):
        Sample(at=at)
