"""Retry-After: both forms, and everything else a server may send."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import parse_retry_after

NOW = datetime(2026, 10, 21, 7, 27, 30, tzinfo=UTC)


def parse(header: str | None, cap_s: float = 300.0) -> float | None:
    return parse_retry_after(header, now=NOW, cap_s=cap_s)


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("30", 30.0),
        (" 30\t", 30.0),
        ("+7", 7.0),
        ("1.5", 1.5),
        ("0", 0.0),
        ("300", 300.0),
        ("301", 300.0),
        ("-5", 0.0),
        ("1000000000", 300.0),
        ("9" * 64, 300.0),
    ],
)
def test_spec5_retry_after_in_seconds(header: str, wait_s: float) -> None:
    assert parse(header) == wait_s


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("Wed, 21 Oct 2026 07:28:00 GMT", 30.0),
        ("Wed, 21 Oct 2026 07:28:00 -0000", 30.0),
        ("Wed, 21 Oct 2026 09:28:00 +0200", 30.0),
        ("Wednesday, 21-Oct-26 07:28:00 GMT", 30.0),
        ("Wed Oct 21 07:28:00 2026", 30.0),
        ("Wed, 21 Oct 2026 07:27:30 GMT", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 300.0),
    ],
)
def test_spec5_risk1_retry_after_as_date(header: str, wait_s: float) -> None:
    assert parse(header) == wait_s


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "   ",
        "soon",
        "NaN",
        "inf",
        "-inf",
        "1e9",
        "0x10",
        "1_000",
        "٣٠",
        "30s",
        "30, 60",
        "9" * 65,
        "Wed, 99 Oct 2026 07:28:00 GMT",
        "Wed, 21 Oct 99999 07:28:00 GMT",
        "Wed, 21 Oct 2026 25:28:00 GMT",
        "Wed, 21 Oct 2026 07:28:00 +9999999999",
    ],
)
def test_malformed_header_returns_none(header: str | None) -> None:
    assert parse(header) is None


@pytest.mark.parametrize("cap_s", [float("nan"), float("inf"), -1.0])
def test_invalid_cap_is_rejected(cap_s: float) -> None:
    with pytest.raises(InvalidValueError, match="cap_s: must be a finite number of at least 0"):
        parse("5", cap_s)


def test_naive_now_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match="now: must be a time with a time zone"):
        parse_retry_after("5", now=NOW.replace(tzinfo=None), cap_s=1.0)


@pytest.mark.parametrize("header", [b"30", 30, ["30"]])
def test_non_text_header_returns_none(header: Any) -> None:
    assert parse(header) is None


@given(st.text(max_size=80), st.floats(0, 1e6))
def test_any_header_returns_none_or_value_within_cap(header: str, cap_s: float) -> None:
    wait_s = parse(header, cap_s)
    assert wait_s is None or 0 <= wait_s <= cap_s


@given(st.integers(-(10**9), 10**9), st.floats(0, 1e6))
def test_seconds_are_clamped_to_cap(seconds: int, cap_s: float) -> None:
    assert parse(str(seconds), cap_s) == min(max(float(seconds), 0.0), cap_s)


@given(st.integers(-(10**7), 10**7))
def test_date_is_converted_to_seconds_from_now(seconds: int) -> None:
    header = format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)
    assert parse(header, 10**6) == min(max(float(seconds), 0.0), 10.0**6)
