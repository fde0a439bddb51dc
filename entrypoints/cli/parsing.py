"""Parses option values: times, durations, rates and names."""

import re
from datetime import UTC, date, datetime, time, timedelta

from attrs import evolve

from tileferry.domain.audit import AlertThresholds
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import DURATION_MAX, is_name, parse_date, parse_datetime

# times and durations

_DURATION_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([smhdw])")


_ALL = "all"


_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


def parse_wait(text: str | None) -> float:
    """Return the seconds of ``--wait``; 0 if it is not given."""
    if text is None:
        return 0.0
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidValueError(
            field="--wait", value=text, problem="is not a duration", remedy="use 90s, 10m or 2h"
        )
    return float(match[1]) * _DURATION_UNITS[match[2]]


def parse_since(text: str, *, now: datetime) -> datetime | None:
    """Return the start of a time range: ``24h`` ago, a given time, or ``None`` for ``all``."""
    asked = text.strip().lower()
    if asked == _ALL:
        return None
    match = _DURATION.fullmatch(asked)
    if match:
        seconds = parse_duration(asked, option="--since")
        return now - timedelta(seconds=min(seconds, DURATION_MAX.total_seconds()))
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _build_since_error(text, "is neither a duration nor a time")
    if moment < _EARLIEST:
        raise _build_since_error(text, "is before 1970")
    if moment > now:
        raise _build_since_error(text, "is in the future")
    return moment


def _build_since_error(text: str, problem: str) -> InvalidValueError:
    return InvalidValueError(
        field="--since",
        value=text,
        problem=problem,
        remedy="use 90s, 15m, 24h, 7d or 2w, all, or a time with a time zone such as"
        " 2026-11-16T08:00:00Z",
    )


def parse_duration(text: str, *, option: str) -> float:
    """Return a duration such as ``90s`` or ``2h`` in seconds."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidValueError(
            field=option, value=text, problem="is not a duration", remedy="use 90s, 15m or 2h"
        )
    return float(match[1]) * _DURATION_UNITS[match[2]]


def parse_day(text: str, *, option: str) -> date:
    day = parse_date(text)
    if day is None:
        raise InvalidValueError(
            field=option,
            value=text,
            problem="is not a date",
            remedy="use year, month and day, such as 2024-01-31",
        )
    return day


def parse_day_or_time(text: str, *, option: str) -> datetime:
    """Parse a date, which means its start, or a time with a time zone."""
    day = parse_date(text)
    if day is not None:
        return datetime.combine(day, time.min, UTC)
    try:
        return parse_datetime(text, field=option)
    except InvalidValueError as error:
        remedy = "use 2026-11-01, or a time with a time zone such as 2026-11-01T12:00:00Z"
        raise evolve(error, remedy=remedy) from None


# rates

_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) *([kMG]?)B?(?:/s)?")


_RATE_UNITS = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


def parse_size(text: str, *, option: str) -> int:
    """Return the bytes of an option such as ``4GB``."""
    match = _RATE.fullmatch(text.strip())
    size = int(float(match[1]) * _RATE_UNITS[match[2]]) if match and "/" not in text else 0
    if size <= 0:
        raise InvalidValueError(
            field=option,
            value=text,
            problem="is not a size in bytes",
            remedy="use a number such as 500M, 4GB or 2.5G",
        )
    return size


def parse_rate(text: str) -> float:
    """Return the bytes per second of ``--rate``, such as ``2.5M``."""
    match = _RATE.fullmatch(text.strip())
    rate = float(match[1]) * _RATE_UNITS[match[2]] if match else 0.0
    if rate <= 0:
        raise InvalidValueError(
            field="--rate",
            value=text,
            problem="is not a rate in bytes per second",
            remedy="use a number such as 500k, 2M or 2.5M",
        )
    return rate


def parse_alert_rate(text: str) -> AlertThresholds:
    """Return the limit for all categories of ``--alert-rate``, such as ``10/min``."""
    try:
        rate = float(text.strip().lower().removesuffix("/min"))
        return AlertThresholds(retries_per_minute=rate)
    except (ValueError, InvalidValueError):
        raise InvalidValueError(
            field="--alert-rate",
            value=text,
            problem="is not a rate",
            remedy="use retries per minute, such as 10/min",
        ) from None


# names


def check_name(value: str | None, given_as: str) -> None:
    """Check that a value is a valid name of a source, customer, query or run."""
    if value is not None and not is_name(value):
        raise InvalidValueError(field=given_as, value=value, problem="is not a plain name")


# distances

_DISTANCE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(m|km)", re.ASCII)
_DISTANCE_M_MIN, _DISTANCE_M_MAX = 1.0, 100_000.0


def parse_distance(text: str, *, option: str) -> float:
    """Return a distance in metres: ``500m`` or ``2km``."""
    match = _DISTANCE.fullmatch(text.strip().lower())
    metres = 0.0 if match is None else float(match[1]) * (1_000 if match[2] == "km" else 1)
    if not _DISTANCE_M_MIN <= metres <= _DISTANCE_M_MAX:
        raise InvalidValueError(
            field=option,
            value=text,
            problem="is not a distance from 1m to 100km",
            remedy="use a distance such as 500m or 2km",
        )
    return metres
