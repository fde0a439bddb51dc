"""Times and durations as operators read them."""

from datetime import UTC, datetime

from tileferry.domain.text import in_utc


def in_seconds(seconds: float) -> str:
    """Write a duration as people read it, short."""
    if seconds < 10:  # noqa: PLR2004  # below, hundredths matter
        return f"{_trimmed(seconds, 2)} s"
    if seconds < 120:  # noqa: PLR2004  # up to two minutes people count in seconds
        return f"{_trimmed(seconds, 1)} s"
    if seconds < 2 * 3_600:
        return f"{_trimmed(seconds / 60, 1)} min"
    return f"{_trimmed(seconds / 3_600, 1)} h"


def _trimmed(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")


def clock_time(moment: datetime) -> str:
    """Write a time to the second, without its zone: what stands beside it says UTC, or is a log."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def when(moment: datetime, now: datetime) -> str:
    """Write a time together with how far away it is."""
    away_s = (moment - now).total_seconds()
    far = f"in {in_seconds(away_s)}" if away_s > 0 else f"{in_seconds(-away_s)} ago"
    return f"{in_utc(moment)} ({far})"
