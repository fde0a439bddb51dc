"""Alerts on the retry rate: when one is raised, and when it is cleared.

An alert is raised once, when a category has more retries in the window than its limit allows, and
cleared when the rate has dropped to a share of the limit. The gap between the two keeps a rate near
the limit from raising an alert every few seconds. The audit log has every change, so all workers
know which alerts are raised, and a new worker continues where another one ended.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from attrs import define, field, frozen

from tileferry.domain.audit.alert_thresholds import AlertThresholds
from tileferry.domain.audit.events import AlertChanged, AlertState, AuditEvent, RetryAttempted
from tileferry.domain.validation import number

_MINUTE_S = 60.0


@frozen(kw_only=True)
class AlertRule:
    """Limits by category, the window of the rate, and the share at which an alert is cleared."""

    thresholds: AlertThresholds = field(factory=AlertThresholds)
    window_s: float = field(default=60.0, validator=number(1, 86_400))
    clear_share: float = field(default=0.5, validator=number(0, 1))

    @property
    def is_active(self) -> bool:
        """Whether any category has a limit."""
        return self.thresholds.retries_per_minute is not None or bool(self.thresholds.by_category)

    @property
    def window(self) -> timedelta:
        """The period over which retries are counted."""
        return timedelta(seconds=self.window_s)

    def compute_rate(self, retries: int) -> float:
        """Return the retries per minute of a count within the window."""
        return retries * _MINUTE_S / self.window_s

    def find_change(self, category: str, retries: int, *, is_raised: bool) -> AlertState | None:
        """Return the change that follows from the retries within the window, if any."""
        limit, rate = self.thresholds.get_limit(category), self.compute_rate(retries)
        if is_raised:
            is_over = limit is None or rate <= limit * self.clear_share
            return AlertState.CLEARED if is_over else None
        return AlertState.RAISED if limit is not None and rate > limit else None


@define
class AlertTracker:
    """Follows the audit log: the retries within the window, and the alerts that are raised."""

    rule: AlertRule
    _retries: deque[tuple[datetime, str]] = field(factory=deque, init=False)
    _changes: dict[str, tuple[int, AlertChanged]] = field(factory=dict, init=False)
    """The last change of each category, and its number in the log."""

    def observe(self, event: AuditEvent, sequence: int) -> None:
        """Note an event of the log."""
        match event:
            case RetryAttempted():
                self._retries.append((event.timestamp, event.retry_category))
            case AlertChanged():
                self._changes[event.retry_category] = (sequence, event)
            case _:
                pass

    @property
    def raised(self) -> Mapping[str, AlertChanged]:
        """The alerts that are raised, by category."""
        return {
            category: event
            for category, (_, event) in self._changes.items()
            if event.state is AlertState.RAISED
        }

    def get_last_change(self, category: str) -> int:
        """Return the number of the last change of a category in the log; 0 if there is none.

        Workers that have read the same log agree on it.
        """
        return self._changes[category][0] if category in self._changes else 0

    def evaluate(self, now: datetime) -> Sequence[AlertChanged]:
        """Return the changes that are due. They apply once the log has them."""
        counts = self._count(now)
        changes = []
        for category in dict.fromkeys([*counts, *self.raised]):
            state = self.rule.find_change(
                category, counts[category], is_raised=category in self.raised
            )
            if state is not None:
                changes.append(self._build_change(category, state, counts[category], now))
        return changes

    def list_current(self, now: datetime) -> Sequence[AlertChanged]:
        """Return the alerts as of now, whether a worker has recorded them or not."""
        current = dict(self.raised)
        for change in self.evaluate(now):
            if change.state is AlertState.RAISED:
                current[change.retry_category] = change
            else:
                del current[change.retry_category]
        return list(current.values())

    def _count(self, now: datetime) -> Counter[str]:
        """Count the retries within the window, and forget older ones.

        The writers' clocks may differ, so the entries are not quite in order; a retry from a clock
        that is ahead counts until it is too old.
        """
        begin = now - self.rule.window
        self._retries = deque(one for one in self._retries if one[0] > begin)
        return Counter(category for _, category in self._retries)

    def _build_change(
        self, category: str, state: AlertState, retries: int, now: datetime
    ) -> AlertChanged:
        return AlertChanged(
            timestamp=now,
            retry_category=category,
            state=state,
            retries=retries,
            window_seconds=self.rule.window_s,
            threshold_per_minute=self.rule.thresholds.get_limit(category),
        )
