"""Times and durations as operators write them."""

from datetime import UTC, date, datetime, timedelta

import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.cli.options.times import day_of, day_or_moment_of, since_of

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
def test_a_duration_goes_back_from_now(text: str, ago: timedelta) -> None:
    assert since_of(text, now=NOW) == NOW - ago


def test_all_and_a_time() -> None:
    assert since_of("all", now=NOW) is None
    assert since_of("2026-11-16T08:00:00Z", now=NOW) == NOW - timedelta(hours=1)
    assert since_of("2026-11-16T10:00:00+02:00", now=NOW) == NOW - timedelta(hours=1)


@pytest.mark.parametrize("text", ["", "24", "h", "-1h", "1y", "yesterday", "2026-11-16T08:00:00"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match="--since: is neither a duration nor a time"):
        since_of(text, now=NOW)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2026-11-16T09:00:01Z", "is in the future"),
        ("9999-12-31T23:59:59-12:00", "is in the future"),
        ("0001-01-01T00:00:00Z", "is before anything can have been logged"),
        ("0001-01-01T00:00:00+14:00", "is before anything can have been logged"),
        ("1969-12-31T23:59:59Z", "is before anything can have been logged"),
    ],
)
def test_a_time_that_nothing_can_be_since_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidValueError, match=f"--since: {problem}"):
        since_of(text, now=NOW)


def test_the_edges_of_time_are_taken() -> None:
    assert since_of("2026-11-16T09:00:00Z", now=NOW) == NOW
    assert since_of("1970-01-01T00:00:00Z", now=NOW) == datetime(1970, 1, 1, tzinfo=UTC)


def test_a_day_is_read_in_one_form_and_refused_by_its_option() -> None:
    assert day_of("2024-02-29", option="--from") == date(2024, 2, 29)
    for text in ("", "2023-02-29", "20240229", "29.2.2024", "2024-02-29T00:00"):
        with pytest.raises(InvalidValueError, match="--from: is not a date"):
            day_of(text, option="--from")


def test_a_day_counts_from_its_beginning_and_a_time_has_its_zone() -> None:
    assert day_or_moment_of("2024-02-29", option="--at") == datetime(2024, 2, 29, tzinfo=UTC)
    assert day_or_moment_of("2026-11-16T10:00:00+01:00", option="--at") == NOW
    for text in ("soon", "20240229", "2026-11-16T10:00:00"):
        with pytest.raises(InvalidValueError, match=r"--at: must be an ISO 8601 time.*2026-11-01"):
            day_or_moment_of(text, option="--at")
