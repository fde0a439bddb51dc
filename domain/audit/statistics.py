"""Retry statistics of the audit log by category, and alerts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from attrs import define, field, frozen, validators

from tileferry.domain.audit.alert_thresholds import AlertThresholds
from tileferry.domain.audit.calls import get_policy_name, is_first_failure
from tileferry.domain.audit.events import (
    AuditEvent,
    CallFailed,
    EventsLost,
    IdempotencyAction,
    IdempotencyOutcome,
    IdempotencyUsed,
    RetryAttempted,
    RetrySucceeded,
)
from tileferry.domain.validation import aware

_MINUTE_S = 60


def _to_minute(moment: datetime) -> int:
    return int(moment.timestamp()) // _MINUTE_S


def _from_minute(minute: int) -> datetime:
    return datetime.fromtimestamp(minute * _MINUTE_S, UTC)


@define
class CategoryStatistics:
    """The retries of one category. A call that succeeds at once has no event and is not counted."""

    category: str
    retried_calls: int = 0
    """Calls whose first failure was retried."""
    attempts: int = 0
    """Attempts in the log: all failures, and each success after a failure."""
    retries: int = 0
    succeeded: int = 0
    """Calls that succeeded after at least one retry."""
    given_up: int = 0
    """Calls that failed finally, with or without a retry."""
    given_up_after_retries: int = 0
    not_retryable: int = 0
    """Calls of ``given_up`` whose last error was not retryable."""
    waited_s: float = 0.0
    wait_s_max: float = 0.0
    """The longest single wait."""
    idempotency_hits: int = 0
    idempotency_records: int = 0
    idempotency_failures_returned: int = 0
    """Hits of ``idempotency_hits`` that returned a stored failure."""
    idempotency_failures_recorded: int = 0
    retries_by_minute: Counter[int] = field(factory=Counter)
    """The number of retries by minute since the epoch."""
    _ended_attempts: int = field(default=0, init=False)

    @property
    def ended_calls(self) -> int:
        """Retried calls whose end is in the log."""
        return self.succeeded + self.given_up_after_retries

    @property
    def success_rate(self) -> float | None:
        """The share of ended retried calls that succeeded."""
        return self.succeeded / self.ended_calls if self.ended_calls else None

    @property
    def mean_attempts(self) -> float | None:
        """The mean number of attempts of an ended retried call."""
        return self._ended_attempts / self.ended_calls if self.ended_calls else None

    @property
    def mean_wait_s(self) -> float | None:
        """The mean length of a single wait."""
        return self.waited_s / self.retries if self.retries else None

    @property
    def busiest_minute(self) -> tuple[datetime, int] | None:
        """The first minute with the most retries, and their number."""
        if not self.retries_by_minute:
            return None
        minute = min(self.retries_by_minute, key=lambda m: (-self.retries_by_minute[m], m))
        return _from_minute(minute), self.retries_by_minute[minute]

    def add(self, event: AuditEvent) -> None:
        """Count one event of this category."""
        match event:
            case RetryAttempted():
                self.attempts += 1
                self.retries += 1
                self.retried_calls += is_first_failure(event.decision_record.failure)
                self.waited_s += event.delay_seconds
                self.wait_s_max = max(self.wait_s_max, event.delay_seconds)
                self.retries_by_minute[_to_minute(event.timestamp)] += 1
            case CallFailed():
                self.attempts += 1
                self.given_up += 1
                self.not_retryable += not event.is_retryable
                retried = not is_first_failure(event.decision_record.failure)
                self.given_up_after_retries += retried
                self._ended_attempts += event.total_attempts if retried else 0
            case RetrySucceeded():
                self.attempts += 1
                self.succeeded += 1
                self._ended_attempts += event.total_attempts
            case IdempotencyUsed(action=IdempotencyAction.HIT):
                self.idempotency_hits += 1
                self.idempotency_failures_returned += _is_stored_failure(event)
            case IdempotencyUsed(action=IdempotencyAction.RECORD):
                self.idempotency_records += 1
                self.idempotency_failures_recorded += _is_stored_failure(event)
            case _:  # cleared keys, and kinds without a category
                pass


def _is_stored_failure(event: IdempotencyUsed) -> bool:
    return event.outcome is IdempotencyOutcome.FAILURE


@define(kw_only=True)
class AuditStatistics:
    """The statistics of all categories over a period."""

    until: datetime = field(validator=aware)
    since: datetime | None = field(default=None, validator=validators.optional(aware))
    """The start of the period; ``None`` for the first entry of the log."""
    events: int = field(default=0, init=False)
    events_by_type: Counter[str] = field(factory=Counter, init=False)
    by_category: dict[str, CategoryStatistics] = field(factory=dict, init=False)
    by_policy: dict[str, CategoryStatistics] = field(factory=dict, init=False)
    """The same by policy: a category may have several, such as API_REQUEST and DOWNLOAD."""
    gaps: list[EventsLost] = field(factory=list, init=False)
    _first: datetime | None = field(default=None, init=False)

    def add(self, event: AuditEvent) -> None:
        """Count one event, unless it is older than ``since``."""
        if self.since is not None and event.timestamp < self.since:
            return
        self.events += 1
        self.events_by_type[event.event_type] += 1
        self._first = event.timestamp if self._first is None else min(self._first, event.timestamp)
        if isinstance(event, EventsLost):
            self.gaps.append(event)
        category = getattr(event, "retry_category", None)
        if category is not None:
            self.by_category.setdefault(category, CategoryStatistics(category)).add(event)
            policy = get_policy_name(event)
            if policy is not None:
                self.by_policy.setdefault(policy, CategoryStatistics(category)).add(event)

    def find_policies(self, category: str) -> Mapping[str, CategoryStatistics]:
        """Return the statistics of each policy of a category."""
        return {name: tally for name, tally in self.by_policy.items() if tally.category == category}

    @property
    def begins(self) -> datetime:
        """The start of the period."""
        return self.since or min(self._first or self.until, self.until)

    @property
    def minutes(self) -> float:
        """The length of the period, at least one minute, so that rates are meaningful."""
        return max((self.until - self.begins).total_seconds() / _MINUTE_S, 1.0)

    def rate_per_minute(self, category: str) -> float:
        """Return the mean number of retries per minute over the period."""
        return self._get_or_empty(category).retries / self.minutes

    def build_series(self, category: str, buckets: int) -> "RetrySeries":
        """Return the retries of a category over time, in at most ``buckets`` equal parts."""
        first, last = _to_minute(self.begins), _to_minute(self.until)
        width = -(-(last - first + 1) // buckets)
        counts = [0] * -(-(last - first + 1) // width)
        for minute, retries in self._get_or_empty(category).retries_by_minute.items():
            place = (minute - first) // width
            # Events from a writer whose clock is ahead are counted in the last bucket.
            counts[min(max(place, 0), len(counts) - 1)] += retries
        return RetrySeries(begins=_from_minute(first), width_minutes=width, counts=tuple(counts))

    def _get_or_empty(self, category: str) -> CategoryStatistics:
        return self.by_category.get(category) or CategoryStatistics(category)


@frozen(kw_only=True)
class RetrySeries:
    """Counts over time. Each covers the same number of whole minutes."""

    begins: datetime
    width_minutes: int
    counts: tuple[int, ...]


@frozen(kw_only=True)
class RetryAlert:
    """The busiest minute of a category, with more retries than allowed."""

    category: str
    minute: datetime
    retries: int
    threshold: float


def find_alerts(statistics: AuditStatistics, thresholds: AlertThresholds) -> Sequence[RetryAlert]:
    """Return an alert for each category above its limit.

    The busiest minute is compared, not the average, so that a quiet day does not hide a short
    burst.
    """
    found = []
    for category, tally in statistics.by_category.items():
        threshold, busiest = thresholds.get_limit(category), tally.busiest_minute
        if threshold is not None and busiest is not None and busiest[1] > threshold:
            minute, retries = busiest
            found.append(
                RetryAlert(category=category, minute=minute, retries=retries, threshold=threshold)
            )
    return found
