"""Formats records for scripts (fields by name, times in UTC, keys as text), and durations,
times and policies for people.
"""

from datetime import UTC, date, datetime
from enum import IntEnum
from typing import Any

from attrs import AttrsInstance, fields

from tileferry.domain.partitions import Partition, PartitionKey
from tileferry.domain.retry import BackoffKind, RetryPolicy
from tileferry.domain.text import format_utc
from tileferry.domain.tiles import BBox, TileCoverage


def record_to_json(record: AttrsInstance) -> dict[str, Any]:
    """Return the fields of a record."""
    return {item.name: _to_plain(getattr(record, item.name)) for item in fields(type(record))}


def partition_to_json(partition: Partition) -> dict[str, Any]:
    """Return a partition with its key as text and in parts."""
    body = record_to_json(partition)
    return {"partition": body.pop("key"), **record_to_json(partition.key), **body}


def time_to_json(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()


def format_extent(coverage: TileCoverage) -> str:
    """Return the box of an area, and whether the area is a shape in it."""
    return str(coverage.bbox) if coverage.shape is None else f"{coverage.bbox} (its shape only)"


def bbox_to_json(box: BBox) -> list[float]:
    return [box.west, box.south, box.east, box.north]


def _to_plain(value: Any) -> Any:
    match value:
        case datetime():
            return time_to_json(value)
        case date():
            return value.isoformat()
        case PartitionKey():
            return str(value)
        case IntEnum():
            return value.name.lower()
        case _:
            return value


def format_duration(seconds: float) -> str:
    """Return a short, readable duration."""
    if seconds < 10:  # noqa: PLR2004  # below 10 s, hundredths matter
        return f"{_trim_zeros(seconds, 2)} s"
    if seconds < 120:  # noqa: PLR2004  # below two minutes, seconds are easier to read
        return f"{_trim_zeros(seconds, 1)} s"
    if seconds < 2 * 3_600:
        return f"{_trim_zeros(seconds / 60, 1)} min"
    return f"{_trim_zeros(seconds / 3_600, 1)} h"


def format_rate(per_s: float) -> str:
    """Return a rate: whole numbers from 10 on, one decimal below."""
    return f"{per_s:,.0f}" if per_s >= 10 else _trim_zeros(per_s, 1)  # noqa: PLR2004  # see above


def _trim_zeros(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")


def format_clock_time(moment: datetime) -> str:
    """Return a time to the second, without its zone, which the caller states."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def format_relative_time(moment: datetime, now: datetime) -> str:
    """Return a time with its distance from now."""
    away_s = (moment - now).total_seconds()
    far = f"in {format_duration(away_s)}" if away_s > 0 else f"{format_duration(-away_s)} ago"
    return f"{format_utc(moment)} ({far})"


def describe_policy(policy: RetryPolicy) -> str:
    """Return the limits of a policy on one line."""
    power = policy.backoff is BackoffKind.POWER
    growth = "to the power" if power else f"x{policy.backoff_multiplier:g}"
    jitter = f"±{policy.jitter_factor:.0%}" if policy.jitter_enabled else "no jitter"
    deadline = (
        "" if policy.deadline_s is None else f", deadline {format_duration(policy.deadline_s)}"
    )
    return (
        f"{policy.max_attempts} attempts, {format_duration(policy.base_delay)} {growth}"
        f" up to {format_duration(policy.max_delay)}, {jitter}{deadline}"
    )
