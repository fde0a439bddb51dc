"""Times and durations as operators read them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from tileferry.entrypoints.cli.formatting import (
    format_clock_time,
    format_duration,
    format_relative_time,
)

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.05, "0.05 s"),
        (1.5, "1.5 s"),
        (16.5, "16.5 s"),
        (90, "90 s"),
        (150, "2.5 min"),
        (7_200, "2 h"),
        (100_000, "27.8 h"),
    ],
)
def test_duration_is_abbreviated(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_time_is_shown_in_utc_with_relative_offset() -> None:
    tokyo = NOW.astimezone(timezone(timedelta(hours=9)))
    assert format_clock_time(tokyo) == "2026-11-16 09:00:00"
    assert (
        format_relative_time(tokyo + timedelta(minutes=5), NOW)
        == "2026-11-16 09:05:00 UTC (in 5 min)"
    )
    assert (
        format_relative_time(tokyo - timedelta(seconds=90), NOW)
        == "2026-11-16 08:58:30 UTC (90 s ago)"
    )
