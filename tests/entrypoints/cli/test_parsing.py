"""Times and durations as operators write them."""

from datetime import UTC, date, datetime, timedelta

import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.cli.parsing import parse_day, parse_day_or_time, parse_since

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("24h", timedelta(days=1)),
        ("1.5h", timedelta(minutes=90)),
        ("7d", timedelta(days=7)),
        (" 2W ", timedelta(days=14)),
        ("999999999w", timedelta(days=3650)),
    ],
)
def test_since_duration_is_relative_to_now(text: str, ago: timedelta) -> None:
    assert parse_since(text, now=NOW) == NOW - ago


def test_since_accepts_all_and_timestamp() -> None:
    assert parse_since("all", now=NOW) is None
    assert parse_since("2026-11-16T08:00:00Z", now=NOW) == NOW - timedelta(hours=1)
    assert parse_since("2026-11-16T10:00:00+02:00", now=NOW) == NOW - timedelta(hours=1)


@pytest.mark.parametrize("text", ["", "24", "h", "-1h", "1y", "yesterday", "2026-11-16T08:00:00"])
def test_invalid_since_is_rejected(text: str) -> None:
    with pytest.raises(InvalidValueError, match="--since: is neither a duration nor a time"):
        parse_since(text, now=NOW)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2026-11-16T09:00:01Z", "is in the future"),
        ("9999-12-31T23:59:59-12:00", "is in the future"),
        ("0001-01-01T00:00:00Z", "is before 1970"),
        ("0001-01-01T00:00:00+14:00", "is before 1970"),
        ("1969-12-31T23:59:59Z", "is before 1970"),
    ],
)
def test_since_in_future_or_before_1970_is_rejected(text: str, problem: str) -> None:
    with pytest.raises(InvalidValueError, match=f"--since: {problem}"):
        parse_since(text, now=NOW)


def test_since_accepts_now_and_epoch() -> None:
    assert parse_since("2026-11-16T09:00:00Z", now=NOW) == NOW
    assert parse_since("1970-01-01T00:00:00Z", now=NOW) == datetime(1970, 1, 1, tzinfo=UTC)


def test_invalid_date_is_rejected_by_option_name() -> None:
    assert parse_day("2024-02-29", option="--from") == date(2024, 2, 29)
    for text in ("", "2023-02-29", "20240229", "29.2.2024", "2024-02-29T00:00"):
        with pytest.raises(InvalidValueError, match="--from: is not a date"):
            parse_day(text, option="--from")


def test_date_means_midnight_utc_and_time_requires_zone() -> None:
    assert parse_day_or_time("2024-02-29", option="--at") == datetime(2024, 2, 29, tzinfo=UTC)
    assert parse_day_or_time("2026-11-16T10:00:00+01:00", option="--at") == NOW
    for text in ("soon", "20240229", "2026-11-16T10:00:00"):
        with pytest.raises(InvalidValueError, match=r"--at: must be an ISO 8601 time.*2026-11-01"):
            parse_day_or_time(text, option="--at")
