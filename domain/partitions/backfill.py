"""A backfill plan: the action for each date of a range, recorded before anything changes.

A plan is applied unchanged or not at all. Each line contains the partition state that it is based
on, and the hash covers every line.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from enum import StrEnum
from functools import cached_property
from hashlib import sha256

from attrs import asdict, field, frozen, validators

from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidValueError, Remedy
from tileferry.domain.json import JsonObject, parse_json
from tileferry.domain.partitions.partition import Partition, PartitionKey, PartitionStatus, day
from tileferry.domain.runs import RunId
from tileferry.domain.state_machine import field_conflict
from tileferry.domain.tiles.area import (
    AREA_FIELDS,
    OPTIONAL_AREA_FIELDS,
    Area,
    area_to_json,
    parse_area,
)
from tileferry.domain.tiles.limits import SHAPE_CHARS_MAX
from tileferry.domain.validation import as_tuple, aware, each, instance, integer, name

BACKFILL_PARTITIONS_MAX = 100_000
BACKFILL_VERSION = 1
_PREFIX = b"tileferry-backfill-plan-v1\n"
_RUN_HASH_DIGITS = 32


class BackfillAction(StrEnum):
    """The action for one date."""

    ENQUEUE = "enqueue"
    """Create the partition with its first run."""
    REQUEUE = "requeue"
    """Start a new run of a failed partition."""
    REPROCESS = "reprocess"
    """Start a new run of a success. The success stays readable until then."""
    SKIP = "skip"


class SkipReason(StrEnum):
    """Why a date is skipped. The last three are the reasons of a terminal partition."""

    SUCCESS = "success"
    RUN_ACTIVE = "run_active"
    MARKED = "marked"
    ATTEMPTS_USED_UP = "attempts_used_up"
    TOO_OLD = "too_old"


@frozen(kw_only=True)
class BackfillRequest:
    """The operator's request: a query, a range of dates (inclusive) and the area of each."""

    source: str = field(validator=name)
    customer_id: str = field(validator=name)
    query_name: str = field(validator=name)
    first_date: date = field(validator=day)
    last_date: date = field(validator=day)
    area: Area = field(validator=instance(Area))
    reprocess: bool = field(default=False, validator=instance(bool))
    """Include partitions that succeeded."""
    include_terminal: bool = field(default=False, validator=instance(bool))
    """Include partitions that are terminal."""

    def __attrs_post_init__(self) -> None:
        if self.first_date > self.last_date:
            raise field_conflict(self, "first_date", f"is after last_date, {self.last_date}")
        if self.count > BACKFILL_PARTITIONS_MAX:
            raise InvalidValueError(
                field="BackfillRequest.last_date",
                value=self.last_date.isoformat(),
                problem=f"makes {self.count} partitions; the limit is {BACKFILL_PARTITIONS_MAX}",
                remedy="make several plans with shorter ranges",
            )

    @property
    def count(self) -> int:
        """The number of partitions."""
        return self.last_date.toordinal() - self.first_date.toordinal() + 1

    @property
    def dates(self) -> Iterator[date]:
        """The dates, oldest first."""
        return map(
            date.fromordinal, range(self.first_date.toordinal(), self.last_date.toordinal() + 1)
        )

    def get_key(self, logical_date: date) -> PartitionKey:
        return PartitionKey(
            source=self.source,
            customer_id=self.customer_id,
            query_name=self.query_name,
            logical_date=logical_date,
        )


@frozen(kw_only=True)
class PartitionFingerprint:
    """The part of a partition's state that a plan depends on. Every new run, ended run or mark
    changes it.
    """

    status: PartitionStatus = field(validator=instance(PartitionStatus))
    attempt_count: int = field(validator=integer(0))
    current_run_id: RunId | None = field(validator=validators.optional(name))
    active_run_id: RunId | None = field(validator=validators.optional(name))
    last_run_id: RunId = field(validator=name)
    abandoned: bool = field(validator=instance(bool))
    marked: bool = field(validator=instance(bool))
    """Whether an operator has marked it terminal."""

    @classmethod
    def from_partition(cls, partition: Partition) -> "PartitionFingerprint":
        return cls(
            status=partition.status,
            attempt_count=partition.attempt_count,
            current_run_id=partition.current_run_id,
            active_run_id=partition.active_run_id,
            last_run_id=partition.last_run_id,
            abandoned=partition.abandoned,
            marked=partition.terminal_marker is not None,
        )


_STATUSES: Mapping[BackfillAction | SkipReason, PartitionStatus] = {
    BackfillAction.REQUEUE: PartitionStatus.FAILED,
    BackfillAction.REPROCESS: PartitionStatus.SUCCESS,
    SkipReason.SUCCESS: PartitionStatus.SUCCESS,
    SkipReason.MARKED: PartitionStatus.FAILED,
    SkipReason.ATTEMPTS_USED_UP: PartitionStatus.FAILED,
    SkipReason.TOO_OLD: PartitionStatus.FAILED,
}


@frozen(kw_only=True)
class BackfillLine:
    """The action for one date, and the state of its partition when the plan was made."""

    logical_date: date = field(validator=day)
    action: BackfillAction = field(validator=instance(BackfillAction))
    why: SkipReason | None = field(
        default=None, validator=validators.optional(instance(SkipReason))
    )
    seen: PartitionFingerprint | None = field(
        default=None, validator=validators.optional(instance(PartitionFingerprint))
    )
    """``None`` if the partition did not exist."""

    def __attrs_post_init__(self) -> None:
        if (self.why is None) == (self.action is BackfillAction.SKIP):
            raise field_conflict(
                self, "why", f"does not match {self.action}: a skip, and only a skip, has a reason"
            )
        if (self.seen is None) != (self.action is BackfillAction.ENQUEUE):
            raise field_conflict(self, "seen", f"does not match {self.action}")
        if self.seen is None:
            return
        active = self.seen.active_run_id is not None
        status = _STATUSES.get(self.why or self.action, self.seen.status)
        if self.seen.status is not status or active != (self.why is SkipReason.RUN_ACTIVE):
            raise field_conflict(
                self, "action", f"does not match the recorded status, {self.seen.status}"
            )


@frozen(kw_only=True)
class BackfillPlan:
    """One line for each date of the request, in date order."""

    made_at: datetime = field(validator=aware)
    request: BackfillRequest = field(validator=instance(BackfillRequest))
    lines: tuple[BackfillLine, ...] = field(
        converter=as_tuple,
        validator=each(instance(BackfillLine)),
        repr=lambda lines: f"{len(lines)} lines",
    )

    def __attrs_post_init__(self) -> None:
        if [line.logical_date for line in self.lines] != list(self.request.dates):
            raise InvalidValueError(
                field="BackfillPlan.lines",
                value=len(self.lines),
                problem="must have one line for each date of the range, in order",
            )
        if self.counts[BackfillAction.REPROCESS] and not self.request.reprocess:
            raise field_conflict(self, "lines", "reprocess a success, which was not requested")

    @cached_property
    def counts(self) -> Counter[BackfillAction]:
        """The number of lines by action."""
        return Counter(line.action for line in self.lines)

    @property
    def touched(self) -> int:
        """The number of partitions that the plan changes, which the operator confirms."""
        return len(self.lines) - self.counts[BackfillAction.SKIP]

    def get_key(self, line: BackfillLine) -> PartitionKey:
        return self.request.get_key(line.logical_date)

    def get_run_id(self, line: BackfillLine) -> RunId:
        """Return the id of the run that a line starts.

        The id is derived from the plan. If a partly applied plan is applied again, the runs it has
        already started are recognized by their ids and not started twice.
        """
        return RunId(f"backfill-{self.hash[:_RUN_HASH_DIGITS]}-{line.logical_date.isoformat()}")

    @cached_property
    def hash(self) -> str:
        """The sha256 of the plan's content."""
        return sha256(_PREFIX + _to_canonical_json(self._to_content())).hexdigest()

    def to_json(self) -> bytes:
        """Return the plan as the content of a plan file, including its hash."""
        return _to_canonical_json({**self._to_content(), "hash": self.hash}) + b"\n"

    def _to_content(self) -> dict[str, JsonValue]:
        request = self.request
        return {
            "version": BACKFILL_VERSION,
            "made_at": self.made_at.astimezone(UTC).isoformat(),
            "source": request.source,
            "customer_id": request.customer_id,
            "query_name": request.query_name,
            "first_date": request.first_date.isoformat(),
            "last_date": request.last_date.isoformat(),
            **area_to_json(request.area),
            "reprocess": request.reprocess,
            "include_terminal": request.include_terminal,
            "lines": [_line_to_json(line) for line in self.lines],
        }


def _line_to_json(line: BackfillLine) -> dict[str, JsonValue]:
    return {
        "logical_date": line.logical_date.isoformat(),
        "action": line.action,
        "why": line.why,
        "seen": None if line.seen is None else asdict(line.seen),
    }


def _to_canonical_json(content: Mapping[str, JsonValue]) -> bytes:
    """Return canonical JSON. The content is validated already: names, dates and integers."""
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


PLAN_BYTES_MAX = BACKFILL_PARTITIONS_MAX * 640 + SHAPE_CHARS_MAX
"""A valid line is shorter than 640 bytes, even with names of the maximum length."""
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


def parse_plan(content: bytes) -> BackfillPlan:
    """Parse a plan written by ``to_json``. Other versions and edited plans are rejected."""
    data = JsonObject.from_value(
        parse_json(content, field="plan", bytes_max=PLAN_BYTES_MAX), "plan"
    )
    data.check_version(BACKFILL_VERSION, remedy=Remedy.REPLAN_BACKFILL)
    data.check_names(_NAMES, optional=OPTIONAL_AREA_FIELDS)
    request = _parse_request(data)
    lines = data.get_list("lines")
    if len(lines) != request.count:
        raise InvalidValueError(
            field="plan.lines",
            value=len(lines),
            problem=f"must have {request.count} lines, one for each date of the range",
        )
    with data.locate_errors():
        plan = BackfillPlan(
            made_at=data.get_datetime("made_at"),
            request=request,
            lines=[_parse_line(line, f"plan.lines[{index}]") for index, line in enumerate(lines)],
        )
    if data.get("hash", str) != plan.hash:
        raise InvalidValueError(
            field="plan.hash",
            value=data.fields["hash"],
            problem=f"does not match the plan's content ({plan.hash}); the plan was edited",
            remedy=Remedy.REPLAN_BACKFILL,
        )
    return plan


def _parse_request(data: JsonObject) -> BackfillRequest:
    area = parse_area(data)
    with data.locate_errors():
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


def _parse_line(value: JsonValue, path: str) -> BackfillLine:
    data = JsonObject.from_value(value, path)
    data.check_names(_LINE)
    seen = data.fields["seen"]
    with data.locate_errors():
        return BackfillLine(
            logical_date=data.get_date("logical_date"),
            action=data.get_enum("action", BackfillAction),
            why=None if data.fields["why"] is None else data.get_enum("why", SkipReason),
            seen=None if seen is None else _parse_fingerprint(seen, f"{path}.seen"),
        )


def _parse_fingerprint(value: JsonValue, path: str) -> PartitionFingerprint:
    data = JsonObject.from_value(value, path)
    data.check_names(_SEEN)
    with data.locate_errors():
        return PartitionFingerprint(
            status=data.get_enum("status", PartitionStatus),
            attempt_count=data.get("attempt_count", int),
            current_run_id=_parse_run_id(data, "current_run_id"),
            active_run_id=_parse_run_id(data, "active_run_id"),
            last_run_id=RunId(data.get("last_run_id", str)),
            abandoned=data.get("abandoned", bool),
            marked=data.get("marked", bool),
        )


def _parse_run_id(data: JsonObject, name: str) -> RunId | None:
    return None if data.fields[name] is None else RunId(data.get(name, str))
