"""A partition: the state of one day of one query, and the run that provides its data."""

from collections.abc import Mapping
from datetime import date, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import field, fields, frozen, validators

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import JsonObject
from tileferry.domain.runs import RunId
from tileferry.domain.state_machine import StatusFields, check_status_fields, field_conflict
from tileferry.domain.validation import (
    aware,
    format_field_name,
    instance,
    integer,
    name,
    parse_date,
    text,
)

if TYPE_CHECKING:
    from attrs import Attribute


def day(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    """Reject anything but a plain date. A datetime would allow two keys for one day."""
    if not isinstance(value, date) or isinstance(value, datetime):
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem="must be a date without a time",
        )


@frozen(kw_only=True)
class PartitionKey:
    """Identifies a logical partition. Its text form is used in keys, messages and commands."""

    source: str = field(validator=name)
    customer_id: str = field(validator=name)
    query_name: str = field(validator=name)
    logical_date: date = field(validator=day)

    def __str__(self) -> str:
        # Names contain no slash, so no two keys have the same text.
        return f"{self.source}/{self.customer_id}/{self.query_name}/{self.logical_date.isoformat()}"

    @classmethod
    def parse(cls, text: str) -> "PartitionKey":
        """Parse the canonical form ``source/customer/query/date``; reject any other form."""
        parts = text.split("/")
        logical_date = parse_date(parts[-1])
        if len(parts) != len(fields(cls)) or logical_date is None:
            raise InvalidValueError(
                field="PartitionKey",
                value=text,
                problem="is not of the form source/customer/query/date",
                remedy="use three names and a date, such as satellite/acme/roads/2024-01-31",
            )
        source, customer_id, query_name, _ = parts
        return cls(
            source=source,
            customer_id=customer_id,
            query_name=query_name,
            logical_date=logical_date,
        )


KEY_FIELDS = ("source", "customer_id", "query_name", "logical_date")


def parse_partition_key(data: JsonObject) -> PartitionKey:
    """Parse the key fields of a JSON object, which may have other fields too."""
    with data.locate_errors():
        return PartitionKey(
            source=data.get("source", str),
            customer_id=data.get("customer_id", str),
            query_name=data.get("query_name", str),
            logical_date=data.get_date("logical_date"),
        )


class PartitionStatus(StrEnum):
    """The status that consumers see. "Terminal" is decided by policy and is not a status."""

    PENDING = "pending"
    """A run is in progress; nothing is readable."""
    SUCCESS = "success"
    FAILED = "failed"


PARTITION_STATUS_FIELDS: Mapping[PartitionStatus, StatusFields] = MappingProxyType(
    {
        PartitionStatus.PENDING: StatusFields(
            required=frozenset({"active_run_id"}),
            optional=frozenset({"attempt_count", "current_run_id", "error_message"}),
        ),
        PartitionStatus.SUCCESS: StatusFields(
            required=frozenset({"attempt_count", "current_run_id"}),
            optional=frozenset({"active_run_id", "abandoned", "error_message", "needs_review"}),
        ),
        PartitionStatus.FAILED: StatusFields(
            required=frozenset({"error_message"}),
            optional=frozenset({"abandoned", "attempt_count", "current_run_id", "terminal_marker"}),
        ),
    }
)
"""The fields that are filled in each status."""


@frozen(kw_only=True)
class Partition:
    """The state of one logical partition. It records outcomes and does not schedule anything."""

    key: PartitionKey = field(validator=instance(PartitionKey))
    status: PartitionStatus = field(validator=instance(PartitionStatus))
    attempt_count: int = field(default=0, validator=integer(0))
    """The number of verdicts on its runs; never reset."""
    current_run_id: RunId | None = field(default=None, validator=validators.optional(name))
    """The run that provides the partition's data."""
    active_run_id: RunId | None = field(default=None, validator=validators.optional(name))
    """The run in progress."""
    last_run_id: RunId = field(validator=name)
    """The newest run of the partition."""
    abandoned: bool = field(default=False, validator=instance(bool))
    """Whether the newest run ended before the validator's verdict."""
    needs_review: bool = field(default=False, validator=instance(bool))
    terminal_marker: str | None = field(default=None, validator=validators.optional(text))
    """The operator's reason for ruling out further retries."""
    error_message: str | None = field(default=None, validator=validators.optional(text))
    """The error of the newest run that ended without success."""
    created_at: datetime = field(validator=aware)
    updated_at: datetime = field(validator=aware)

    def __attrs_post_init__(self) -> None:
        check_status_fields(self, self.status, PARTITION_STATUS_FIELDS)
        if self.active_run_id not in {None, self.last_run_id}:
            raise field_conflict(self, "active_run_id", "must be the newest run")
        if self.active_run_id is not None and self.active_run_id == self.current_run_id:
            raise field_conflict(
                self, "active_run_id", "already has a verdict: it is the current run"
            )
        if self.abandoned and self.active_run_id is not None:
            raise field_conflict(self, "abandoned", "must be false while a run is active")
        rejected = self.status is PartitionStatus.FAILED and not self.abandoned
        if (rejected or self.current_run_id) and not self.attempt_count:
            raise field_conflict(self, "attempt_count", "must count the verdict on the current run")
        if self.updated_at < self.created_at:
            raise field_conflict(self, "updated_at", "is before created_at")

    @property
    def subject(self) -> str:
        """The name of the partition in messages."""
        return f"partition {self.key}"


def get_readable_run(partition: Partition) -> RunId | None:
    """Return the run whose data consumers read; ``None`` unless the status is success."""
    return partition.current_run_id if partition.status is PartitionStatus.SUCCESS else None
