"""A run: one piece of queued work, with its lease and retry counts."""

from collections.abc import Mapping
from datetime import datetime
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NewType

from attrs import field, fields, frozen, validators

from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import Final, RateLimited, Retryable
from tileferry.domain.state_machine import StatusFields, check_status_fields, field_conflict
from tileferry.domain.validation import (
    as_tuple,
    aware,
    check_aware,
    each,
    format_field_name,
    instance,
    integer,
    name,
    text,
)

if TYPE_CHECKING:
    from attrs import Attribute


RunId = NewType("RunId", str)
"""Identifies a run and its raw directory."""
WorkerId = NewType("WorkerId", str)

ERROR_CODES = (Final.code, Retryable.code, RateLimited.code)


class RunStatus(StrEnum):
    DISCOVERED = "discovered"
    """Queued: submitted, or returned by a worker that stopped."""
    PROCESSING = "processing"
    """A worker holds its lease."""
    PASSED = "passed"
    NEEDS_REVIEW = "needs_review"
    FAILED = "failed"
    """The validator rejected the result."""
    ERROR = "error"
    """An attempt failed before the validator's verdict. The run waits for a retry, or is given up.
    """


class RunKind(StrEnum):
    """The kind of work, which selects the handler."""

    ACQUIRE_PARTITION = "acquire_partition"
    DOWNLOAD_AREA = "download_area"
    UPLOAD_FLIGHT = "upload_flight"


class RunPriority(IntEnum):
    """Lower values run first. The only purpose is that a backfill never starves new work."""

    FRESH = 0
    BACKFILL = 1


_LEASE = {"lease_owner", "lease_expires_at"}
_ERROR = {"error_class", "error_message"}
_COUNTS = {"retry_count", "rate_limited_count", "rescues"}
_VERDICT_FIELDS = StatusFields(
    required=frozenset({"lease_epoch", "error_message"}), optional=frozenset({"rescues"})
)

RUN_STATUS_FIELDS: Mapping[RunStatus, StatusFields] = MappingProxyType(
    {
        RunStatus.DISCOVERED: StatusFields(optional=frozenset({*_ERROR, *_COUNTS, "lease_epoch"})),
        RunStatus.PROCESSING: StatusFields(
            required=frozenset({*_LEASE, "lease_epoch"}), optional=frozenset({*_ERROR, *_COUNTS})
        ),
        RunStatus.PASSED: StatusFields(
            required=frozenset({"lease_epoch"}), optional=frozenset({"rescues"})
        ),
        RunStatus.NEEDS_REVIEW: _VERDICT_FIELDS,
        RunStatus.FAILED: _VERDICT_FIELDS,
        RunStatus.ERROR: StatusFields(
            required=frozenset(_ERROR),
            optional=frozenset({*_COUNTS, "lease_epoch", "next_retry_at", "needs_token"}),
        ),
    }
)
"""The fields that are filled in each status."""


def _check_error_code(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    if value not in ERROR_CODES:
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem=f"must be one of {', '.join(ERROR_CODES)}",
        )


@frozen(kw_only=True)
class Run:
    """One piece of work in the queue."""

    run_id: RunId = field(validator=name)
    kind: RunKind = field(validator=instance(RunKind))
    source: str = field(validator=name)
    submitted_date: datetime = field(validator=aware)
    """Unchanged by retries, so that the queue order stays fair."""
    priority: RunPriority = field(default=RunPriority.FRESH, validator=instance(RunPriority))
    dedupe_key: str | None = field(default=None, validator=validators.optional(text))
    """Unique among runs that have not ended."""
    payload: Mapping[str, JsonValue] = field(factory=dict, validator=instance(Mapping), hash=False)
    """The work to do, as JSON; ``kind`` determines its schema."""
    status: RunStatus = field(default=RunStatus.DISCOVERED, validator=instance(RunStatus))
    retry_count: int = field(default=0, validator=integer(0))
    """The number of charged retries; 0 during the first attempt."""
    rate_limited_count: int = field(default=0, validator=integer(0))
    next_retry_at: datetime | None = field(default=None, validator=validators.optional(aware))
    error_class: str | None = field(default=None, validator=validators.optional(_check_error_code))
    error_message: str | None = field(default=None, validator=validators.optional(text))
    """The last error, or the validator's findings."""
    lease_owner: WorkerId | None = field(default=None, validator=validators.optional(text))
    lease_expires_at: datetime | None = field(default=None, validator=validators.optional(aware))
    lease_epoch: int = field(default=0, validator=integer(0))
    """Incremented by each claim. A worker with an older epoch has lost the run."""
    rescues: int = field(default=0, validator=integer(0))
    """The number of leases of this run that expired."""
    needs_token: bool = field(default=False, validator=instance(bool))
    """Whether its next attempt takes a token of the source's retry budget."""

    def __attrs_post_init__(self) -> None:
        check_status_fields(self, self.status, RUN_STATUS_FIELDS)
        unjudged = self.status in {RunStatus.DISCOVERED, RunStatus.PROCESSING}
        if unjudged and (self.error_class is None) != (self.error_message is None):
            raise field_conflict(self, "error_class", "must be set together with error_message")
        tried = self.error_class or self.retry_count or self.rate_limited_count or self.rescues
        if self.status is RunStatus.DISCOVERED and tried and not self.lease_epoch:
            raise field_conflict(self, "lease_epoch", "must count the claims before its attempts")
        if self.needs_token and self.next_retry_at is None:
            raise field_conflict(self, "needs_token", "must be false without a next retry")

    @property
    def subject(self) -> str:
        """The name of the run in messages."""
        return f"run {self.run_id}"


_NAMES = tuple(item.name for item in fields(Run))


def restore_run(*values: object) -> Run:
    """Build a run from stored values without validation; the store enforces the rules itself.

    ``values`` are in the order of the fields.
    """
    run = object.__new__(Run)
    for name_of_field, value in zip(_NAMES, values, strict=True):
        object.__setattr__(run, name_of_field, value)
    return run


def is_due(run: Run, now: datetime) -> bool:
    """Return whether a worker may claim the run now."""
    check_aware(now)
    if run.status is RunStatus.DISCOVERED:
        return True
    return run.next_retry_at is not None and run.next_retry_at <= now


def is_permanent(run: Run) -> bool:
    """Return whether the run is in error and will not be retried."""
    return run.status is RunStatus.ERROR and run.next_retry_at is None


def has_ended(run: Run) -> bool:
    """Return whether the run has ended; only an operator can restart it."""
    return is_permanent(run) or run.status in {
        RunStatus.PASSED,
        RunStatus.NEEDS_REVIEW,
        RunStatus.FAILED,
    }


class VerdictOutcome(StrEnum):
    PASSED = "passed"
    NEEDS_REVIEW = "needs_review"
    """Readable, but a human should review it."""
    FAILED = "failed"


@frozen(kw_only=True)
class Verdict:
    """The verdict on one run. Every outcome except a clean pass has reasons."""

    run_id: RunId = field(validator=name)
    outcome: VerdictOutcome = field(validator=instance(VerdictOutcome))
    reasons: tuple[str, ...] = field(default=(), converter=as_tuple, validator=each(text))

    def __attrs_post_init__(self) -> None:
        clean = self.outcome is VerdictOutcome.PASSED
        if clean and self.reasons:
            problem, remedy = (
                "must be empty for a clean pass",
                "use needs_review for a pass with reasons",
            )
        elif not clean and not self.reasons:
            problem, remedy = f"must give the reasons for {self.outcome}", ""
        else:
            return
        raise InvalidValueError(
            field="Verdict.reasons", value=self.reasons, problem=problem, remedy=remedy
        )

    @property
    def explanation(self) -> str | None:
        """The reasons on one line; ``None`` for a clean pass."""
        return "; ".join(self.reasons) or None
