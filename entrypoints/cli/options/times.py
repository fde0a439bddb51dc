"""Times and durations as operators write and read them."""

import re
from datetime import UTC, date, datetime, timedelta

from tileferry.domain.checks import DURATION_MAX, date_of
from tileferry.domain.errors import InvalidValueError

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([smhdw])")
_ALL = "all"
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


def since_of(text: str, *, now: datetime) -> datetime | None:
    """Return where a stretch of time begins: ``24h`` ago, at a time, or ``None`` for ``all``."""
    asked = text.strip().lower()
    if asked == _ALL:
        return None
    match = _DURATION.fullmatch(asked)
    if match:
        seconds = float(match[1]) * _UNITS[match[2]]
        return now - timedelta(seconds=min(seconds, DURATION_MAX.total_seconds()))
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _no_beginning(text, "is neither a duration nor a time")
    if moment < _EARLIEST:
        raise _no_beginning(text, "is before anything can have been logged")
    if moment > now:
        raise _no_beginning(text, "is in the future")
    return moment


def _no_beginning(text: str, problem: str) -> InvalidValueError:
    return InvalidValueError(
        field="--since",
        value=text,
        problem=problem,
        remedy="use 90s, 15m, 24h, 7d or 2w, all, or a time with its zone such as"
        " 2026-11-16T08:00:00Z",
    )


def day_of(text: str, *, option: str) -> date:
    """Read a date that was given for an option."""
    day = date_of(text)
    if day is None:
        raise InvalidValueError(
            field=option,
            value=text,
            problem="is not a date",
            remedy="give year, month and day, such as 2024-01-31",
        )
    return day


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


def in_utc(moment: datetime) -> str:
    """Write a time to the second; all times here are UTC, whatever zone they come in."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def when(moment: datetime, now: datetime) -> str:
    """Write a time together with how far away it is."""
    away_s = (moment - now).total_seconds()
    far = f"in {in_seconds(away_s)}" if away_s > 0 else f"{in_seconds(-away_s)} ago"
    return f"{in_utc(moment)} UTC ({far})"
