"""Times and durations as operators write them."""

import re
from datetime import UTC, date, datetime, time, timedelta

from attrs import evolve

from tileferry.domain.checks import DURATION_MAX, date_of, moment_of
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


def day_or_moment_of(text: str, *, option: str) -> datetime:
    """Read a date, of which the beginning counts, or a time with its zone."""
    day = date_of(text)
    if day is not None:
        return datetime.combine(day, time.min, UTC)
    try:
        return moment_of(text, field=option)
    except InvalidValueError as error:
        remedy = "write it as 2026-11-01, or as 2026-11-01T12:00:00Z with its zone"
        raise evolve(error, remedy=remedy) from None
