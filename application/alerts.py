"""Evaluates alerts continuously: log, audit event and webhook, once for all workers."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from logging import Logger

from attrs import define, field

from tileferry.application.audit import AuditTrail
from tileferry.application.audit_reader import AuditReader, DecodedEntry
from tileferry.application.ports.audit import AlertReceiver
from tileferry.application.ports.clock import Clock
from tileferry.application.retries.idempotent_call import WhenBusy
from tileferry.application.retries.manager import RetryManager
from tileferry.domain.audit import AlertChanged, AlertRule, AlertState, AlertTracker
from tileferry.domain.errors import (
    AlertDeliveryError,
    IdempotencyInProgressError,
    RetryError,
    TileManagerError,
)
from tileferry.domain.retry import (
    ErrorClass,
    Final,
    Retryable,
    RetryCategory,
    compute_idempotency_key,
)
from tileferry.domain.text import format_error

LOOK_BACK = timedelta(days=1)
"""How far a new monitor looks back for alerts that are raised."""
_KIND = AlertChanged.event_type


@define(kw_only=True)
class AlertMonitor:
    """Follows the audit log of all processes, and announces changes.

    An idempotency key for each change makes sure that one of several workers announces it.
    """

    rule: AlertRule
    reader: AuditReader
    retries: RetryManager
    audit: AuditTrail
    clock: Clock
    logger: Logger
    receivers: Sequence[AlertReceiver] = ()
    is_stopping: Callable[[], bool] = lambda: False
    """Whether a delivery should not be tried again."""
    _tracker: AlertTracker = field(init=False)
    _last: int | None = field(default=None, init=False)
    """The number of the last entry that was read."""

    @_tracker.default
    def _make_tracker(self) -> AlertTracker:
        return AlertTracker(self.rule)

    def beat(self) -> bool:
        """Evaluate once; errors are logged, and the next call tries again."""
        try:
            self.evaluate()
        except TileManagerError as error:
            self.logger.warning(
                "alerts were not evaluated: %s",
                format_error(error),
                extra={"kind": "alert.evaluation_failed"},
            )
        return True

    def evaluate(self) -> Sequence[AlertChanged]:
        """Read the new entries, and announce the changes that follow; return those announced."""
        self._read_log()
        return [change for change in self._tracker.evaluate(self._now()) if self._announce(change)]

    def list_current(self) -> Sequence[AlertChanged]:
        """Return the alerts as of now; nothing is announced."""
        self._read_log()
        return self._tracker.list_current(self._now())

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now(), UTC)

    def _read_log(self) -> None:
        if self._last is None:
            head, now = self.reader.log.read_head().sequence, self._now()
            for read in self.reader.read_since(now - LOOK_BACK, holding=[_KIND]):
                self._observe(read)
            begin = now - self.rule.window
            for read in self.reader.read_since(begin, holding=["retry_attempt"]):
                if read.event is not None and read.event.timestamp > begin:
                    self._observe(read)
            self._last = head
        for entry in self.reader.iter_entries(after=self._last):
            self._last = entry.sequence
            self._observe(DecodedEntry.from_entry(entry))

    def _observe(self, read: DecodedEntry) -> None:
        if read.event is not None:
            self._tracker.observe(read.event, read.entry.sequence)

    def _announce(self, change: AlertChanged) -> bool:
        """Announce a change, unless another worker does; return whether it was this one."""
        before = self._tracker.get_last_change(change.retry_category)
        key = compute_idempotency_key(
            _KIND, None, change.retry_category, {"state": change.state, "after": before}
        )
        is_first = False

        def record() -> None:
            nonlocal is_first
            self.audit.emit(change)
            is_first = True

        try:
            self.retries.execute_with_retry_sync(
                RetryCategory.EXECUTION_INTENT,
                f"Announce alert: {change.retry_category} {change.state}",
                record,
                idempotency_key=key,
                when_busy=WhenBusy.REFUSE,
            )
        except IdempotencyInProgressError:
            return False
        # Known from now on, even if no sink that can be read took the event.
        self._tracker.observe(change, before)
        if is_first:
            self._log(change)
            for receiver in self.receivers:
                self._deliver(receiver, change)
        return is_first

    def _log(self, change: AlertChanged) -> None:
        is_raised, limit = change.state is AlertState.RAISED, change.threshold_per_minute
        log = self.logger.error if is_raised else self.logger.info
        log(
            "alert %s: %s had %d retries in %g s, limit %s per minute",
            change.state,
            change.retry_category,
            change.retries,
            change.window_seconds,
            "none" if limit is None else f"{limit:g}",
            extra={
                "kind": "alert.raised" if is_raised else "alert.cleared",
                "category": change.retry_category,
                "retries": change.retries,
                "window_s": change.window_seconds,
                "threshold_per_minute": limit,
            },
        )

    def _deliver(self, receiver: AlertReceiver, change: AlertChanged) -> None:
        try:
            self.retries.execute_with_retry_sync(
                RetryCategory.API_REQUEST,
                f"Deliver alert: {change.retry_category} {change.state}",
                lambda: receiver.send(change),
                classifier=self._classify,
            )
        except (AlertDeliveryError, RetryError) as error:
            self.logger.error(  # noqa: TRY400  # the message is complete
                "%s", format_error(error), extra={"kind": "alert.delivery_failed"}
            )

    def _classify(self, error: BaseException) -> ErrorClass:
        worth_it = isinstance(error, AlertDeliveryError) and error.is_retryable
        return Retryable() if worth_it and not self.is_stopping() else Final()
