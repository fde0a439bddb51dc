"""Reads a backfill plan from a file, as it was made or not at all."""

from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json_input import parse_json
from tileferry.domain.json_object import JsonObject
from tileferry.domain.partitions.backfill import (
    BACKFILL_PARTITIONS_MAX,
    BACKFILL_VERSION,
    BackfillAction,
    BackfillLine,
    BackfillPlan,
    BackfillRequest,
    PartitionFingerprint,
    SkipReason,
)
from tileferry.domain.partitions.partition import PartitionStatus
from tileferry.domain.runs import RunId
from tileferry.domain.tiles.area import AREA_FIELDS, area_from

PLAN_BYTES_MAX = BACKFILL_PARTITIONS_MAX * 640
"""A line of ours is shorter, with the longest names it can have."""
_AGAIN = "make a new one with backfill plan"
_HEAD = ("source", "customer_id", "query_name", "first_date", "last_date")
_FLAGS = ("reprocess", "include_terminal")
_NAMES = ("version", "made_at", *_HEAD, *AREA_FIELDS, *_FLAGS, "lines", "hash")
_LINE = ("logical_date", "action", "why", "seen")
_SEEN = (
    "status",
    "attempt_count",
    "current_run_id",
    "active_run_id",
    "last_run_id",
    "abandoned",
    "marked",
)


def plan_from_json(content: bytes) -> BackfillPlan:
    """Read what ``to_json`` wrote; another version, or an edit, is refused by what is wrong."""
    data = JsonObject.of(parse_json(content, field="plan", bytes_max=PLAN_BYTES_MAX), "plan")
    data.check_version(BACKFILL_VERSION, remedy=_AGAIN)
    data.check_names(_NAMES)
    request = _request_from(data)
    lines = data.get_list("lines")
    if len(lines) != request.count:
        raise InvalidValueError(
            field="plan.lines",
            value=len(lines),
            problem=f"must be {request.count} lines, one for each date of the range",
        )
    with data.naming():
        plan = BackfillPlan(
            made_at=data.get_moment("made_at"),
            request=request,
            lines=[_line_from(line, f"plan.lines[{index}]") for index, line in enumerate(lines)],
        )
    if data.get("hash", str) != plan.hash:
        raise InvalidValueError(
            field="plan.hash",
            value=data.fields["hash"],
            problem=f"is not that of its content, {plan.hash}: the plan was changed since",
            remedy=_AGAIN,
        )
    return plan


def _request_from(data: JsonObject) -> BackfillRequest:
    area = area_from(data)
    with data.naming():
        return BackfillRequest(
            source=data.get("source", str),
            customer_id=data.get("customer_id", str),
            query_name=data.get("query_name", str),
            first_date=data.get_date("first_date"),
            last_date=data.get_date("last_date"),
            area=area,
            reprocess=data.get("reprocess", bool),
            include_terminal=data.get("include_terminal", bool),
        )


def _line_from(value: JsonValue, path: str) -> BackfillLine:
    data = JsonObject.of(value, path)
    data.check_names(_LINE)
    seen = data.fields["seen"]
    with data.naming():
        return BackfillLine(
            logical_date=data.get_date("logical_date"),
            action=data.get_member("action", BackfillAction),
            why=None if data.fields["why"] is None else data.get_member("why", SkipReason),
            seen=None if seen is None else _seen_from(seen, f"{path}.seen"),
        )


def _seen_from(value: JsonValue, path: str) -> PartitionFingerprint:
    data = JsonObject.of(value, path)
    data.check_names(_SEEN)
    with data.naming():
        return PartitionFingerprint(
            status=data.get_member("status", PartitionStatus),
            attempt_count=data.get("attempt_count", int),
            current_run_id=_run_from(data, "current_run_id"),
            active_run_id=_run_from(data, "active_run_id"),
            last_run_id=RunId(data.get("last_run_id", str)),
            abandoned=data.get("abandoned", bool),
            marked=data.get("marked", bool),
        )


def _run_from(data: JsonObject, name: str) -> RunId | None:
    return None if data.fields[name] is None else RunId(data.get(name, str))
