"""Times and durations as operators write them."""

from datetime import UTC, datetime, timedelta

import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.times import in_seconds, since_of

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
def test_a_duration_is_written_short(seconds: float, text: str) -> None:
    assert in_seconds(seconds) == text
