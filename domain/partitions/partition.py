"""A partition: what is known of one day of one query, and which run's data speaks for it."""

from collections.abc import Mapping
from datetime import date, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import field, fields, frozen, validators

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import JsonObject
from tileferry.domain.runs import RunId
from tileferry.domain.status_fields import StatusFields, check_status_fields, field_conflict
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
    """Refuse anything but a date; a time of day would make two keys of one day."""
    if not isinstance(value, date) or isinstance(value, datetime):
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem="must be a date without a time",
        )


@frozen(kw_only=True)
class PartitionKey:
    """Names a logical partition; its text is the form in keys, messages and commands."""

    source: str = field(validator=name)
    customer_id: str = field(validator=name)
    query_name: str = field(validator=name)
    logical_date: date = field(validator=day)

    def __str__(self) -> str:
        # Plain names hold no slash, so no two keys share a text.
        return f"{self.source}/{self.customer_id}/{self.query_name}/{self.logical_date.isoformat()}"

    @classmethod
    def parse(cls, text: str) -> "PartitionKey":
        """Read the canonical form ``source/customer/query/date``, and no other."""
        parts = text.split("/")
        logical_date = parse_date(parts[-1])
        if len(parts) != len(fields(cls)) or logical_date is None:
            raise InvalidValueError(
                field="PartitionKey",
                value=text,
                problem="is not of the form source/customer/query/date",
                remedy="three plain names and a date, such as satellite/acme/roads/2024-01-31",
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
    """Read a key among other fields."""
    with data.locate_errors():
        return PartitionKey(
            source=data.get("source", str),
            customer_id=data.get("customer_id", str),
            query_name=data.get("query_name", str),
            logical_date=data.get_date("logical_date"),
        )


class PartitionStatus(StrEnum):
    """What consumers may know. Being terminal is a matter of policy, and no status."""

    PENDING = "pending"
    """A run is working on it; nothing is readable."""
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
"""Which of a partition's fields are filled in which status."""


@frozen(kw_only=True)
class Partition:
    """The state of one logical partition; it records outcomes, and schedules nothing."""

    key: PartitionKey = field(validator=instance(PartitionKey))
    status: PartitionStatus = field(validator=instance(PartitionStatus))
    attempt_count: int = field(default=0, validator=integer(0))
    """How often the validator has judged a run of it; never reset."""
    current_run_id: RunId | None = field(default=None, validator=validators.optional(name))
    """The run whose data speaks for the partition."""
    active_run_id: RunId | None = field(default=None, validator=validators.optional(name))
    """The run that is working on it now."""
    last_run_id: RunId = field(validator=name)
    """The newest run that was ever given to it."""
    abandoned: bool = field(default=False, validator=instance(bool))
    """The newest run ended before the validator had judged it."""
    needs_review: bool = field(default=False, validator=instance(bool))
    terminal_marker: str | None = field(default=None, validator=validators.optional(text))
    """Why an operator has ruled out further tries."""
    error_message: str | None = field(default=None, validator=validators.optional(text))
    """Why the newest run that ended without success did."""
    created_at: datetime = field(validator=aware)
    updated_at: datetime = field(validator=aware)

    def __attrs_post_init__(self) -> None:
        check_status_fields(self, self.status, PARTITION_STATUS_FIELDS)
        if self.active_run_id not in {None, self.last_run_id}:
            raise field_conflict(self, "active_run_id", "must be the newest run")
        if self.active_run_id is not None and self.active_run_id == self.current_run_id:
            raise field_conflict(
                self, "active_run_id", "has been judged already: it is the current run"
            )
        if self.abandoned and self.active_run_id is not None:
            raise field_conflict(self, "abandoned", "cannot be said of a run that is active")
        rejected = self.status is PartitionStatus.FAILED and not self.abandoned
        if (rejected or self.current_run_id) and not self.attempt_count:
            raise field_conflict(self, "attempt_count", "must count the verdict that was given")
        if self.updated_at < self.created_at:
            raise field_conflict(self, "updated_at", "is before created_at")

    @property
    def subject(self) -> str:
        """How messages name the partition."""
        return f"partition {self.key}"


def get_readable_run(partition: Partition) -> RunId | None:
    """Return the run whose data consumers read; only a success has one."""
    return partition.current_run_id if partition.status is PartitionStatus.SUCCESS else None
