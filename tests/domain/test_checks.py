"""Validators that the other tests do not reach by themselves."""

from datetime import UTC, datetime
from typing import Any

import pytest
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.checks import aware, is_name, name, text
from tileferry.domain.errors import InvalidValueError


@frozen
class Sample:
    """Something with checked fields."""

    label: str = field(default="a", validator=name)
    title: str = field(default="A", validator=text)
    at: datetime = field(default=datetime(2026, 1, 1, tzinfo=UTC), validator=aware)


@pytest.mark.parametrize("label", ["a", "Z9", "flight-7_b.2", "0", "a" * 64])
def test_names(label: str) -> None:
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
def test_what_is_no_name(label: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"Sample\.label: is not a plain name") as refusal:
        Sample(label=label)
    assert "1 to 64" in refusal.value.remedy


@given(st.text(max_size=70))
def test_a_name_is_safe_as_a_part_of_a_path(label: str) -> None:
    if is_name(label):
        assert label.isascii()
        assert label.isprintable()
        assert not {"/", "\\", "\0", " "} & set(label)
        assert label not in {".", ".."}
        assert len(label) <= 64


@pytest.mark.parametrize("title", ["", None, 3])
def test_text_must_be_there(title: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"Sample\.title: must be non-empty text"):
        Sample(title=title)


@pytest.mark.parametrize("at", [datetime(2026, 1, 1), "2026-01-01", None])  # noqa: DTZ001  # the point
def test_times_must_know_their_zone(at: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"Sample\.at: must be a time with its zone"):
        Sample(at=at)
