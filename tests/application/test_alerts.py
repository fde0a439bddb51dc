"""The monitor of a worker: it follows the audit log, and announces changes once."""

import logging
from typing import Any

import pytest
from attrs import define, evolve, field
from support.audit_events import create_call_events
from support.managers import RetryBench, find_log_messages

from tileferry.adapters.memory import ManualClock, MemoryAuditSink
from tileferry.application.alerts import AlertMonitor
from tileferry.application.audit_reader import AuditReader
from tileferry.domain.audit import AlertChanged, AlertRule, AlertThresholds
from tileferry.domain.errors import (
    AlertDeliveryError,
    DatabaseError,
    IdempotencyInProgressError,
)
from tileferry.domain.retry import POLICY_MATRIX, Retryable, RetryCategory

RULE = AlertRule(thresholds=AlertThresholds(retries_per_minute=3))
API = RetryCategory.API_REQUEST


@define
class Receiver:
    """A webhook that refuses the first deliveries."""

    errors: list[AlertDeliveryError] = field(factory=list)
    taken: list[AlertChanged] = field(factory=list)
    calls: int = 0

    def send(self, change: AlertChanged) -> None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        self.taken.append(change)


def refuse(*, is_retryable: bool = True) -> AlertDeliveryError:
    return AlertDeliveryError(receiver="h", problem="status 503", is_retryable=is_retryable)


@define
class AlertBench:
    bench: RetryBench = field(factory=RetryBench)
    receiver: Receiver = field(factory=Receiver)

    def create_monitor(self, **options: Any) -> AlertMonitor:
        manager = self.bench.create_manager()
        defaults: dict[str, Any] = {
            "rule": RULE,
            "reader": AuditReader(log=self.bench.sink, retries=manager),
            "retries": manager,
            "audit": self.bench.trail,
            "clock": self.bench.clock,
            "logger": logging.getLogger("tests.alerts"),
            "receivers": [self.receiver],
        }
        return AlertMonitor(**(defaults | options))

    def fail(self, count: int, category: RetryCategory = API) -> None:
        policy = evolve(POLICY_MATRIX[category], max_attempts=9, name="RUN")
        for number in range(count):
            clock = ManualClock(self.bench.clock.now())
            (event, _) = create_call_events(
                [Retryable()], clock=clock, key=f"k{number}", category=category, policy=policy
            )
            self.bench.sink.emit([event])

    def read_changes(self) -> list[tuple[str, str]]:
        events = [event for event in self.bench.events if isinstance(event, AlertChanged)]
        return [(event.state, event.retry_category) for event in events]


RAISED, CLEARED = ("raised", API), ("cleared", API)


def test_alert_is_logged_audited_and_delivered_once(caplog: pytest.LogCaptureFixture) -> None:
    alerts = AlertBench()
    monitor = alerts.create_monitor()
    assert monitor.evaluate() == []
    alerts.fail(4)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert monitor.beat()
        assert alerts.read_changes() == [RAISED]
        assert [one.state for one in alerts.receiver.taken] == ["raised"]
        alerts.bench.clock.advance(61)
        for _ in range(2):
            monitor.beat()
    assert alerts.read_changes() == [RAISED, CLEARED]
    assert [one.state for one in alerts.receiver.taken] == ["raised", "cleared"]
    assert find_log_messages(caplog, "alert.raised") == [
        "alert raised: RETRY_API_REQUEST had 4 retries in 60 s, limit 3 per minute"
    ]
    assert len(find_log_messages(caplog, "alert.cleared")) == 1


def test_several_workers_announce_a_change_once() -> None:
    """Also those that look at the log before another one has written to it."""
    alerts = AlertBench()
    first, second = alerts.create_monitor(), alerts.create_monitor()
    assert (first.evaluate(), second.evaluate()) == ([], [])
    alerts.fail(5)
    for monitor in (first, second):
        monitor._read_log()
    assert len(first._tracker.evaluate(first._now())) == 1
    (change,) = second._tracker.evaluate(second._now())
    assert len(first.evaluate()) == 1
    assert not second._announce(change)  # it has not read what the first one wrote
    assert second.evaluate() == []
    assert alerts.create_monitor().evaluate() == []  # started later
    assert (alerts.read_changes(), alerts.receiver.calls) == ([RAISED], 1)
    alerts.bench.clock.advance(61)
    late = alerts.create_monitor()
    assert [one.state for one in late.evaluate()] == ["cleared"]
    assert (first.evaluate(), second.evaluate()) == ([], [])
    alerts.fail(5)
    assert len(second.evaluate()) == 1
    assert alerts.read_changes() == [RAISED, CLEARED, RAISED]


def test_change_that_another_worker_is_announcing_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alerts = AlertBench()
    monitor = alerts.create_monitor()
    alerts.fail(5)
    busy = IdempotencyInProgressError(
        key="k", owner="other", lease_expires_at=alerts.bench.events[0].timestamp
    )

    def raise_busy(*_args: object, **_named: object) -> None:
        raise busy

    with monkeypatch.context() as patch:
        patch.setattr(type(monitor.retries), "execute_with_retry_sync", raise_busy)
        patch.setattr(type(monitor.reader), "_read", lambda _self, call: call())
        assert monitor.evaluate() == []
    assert len(monitor.evaluate()) == 1


def test_current_alerts_are_listed_without_announcing() -> None:
    alerts = AlertBench()
    alerts.fail(5, RetryCategory.EXECUTION_INTENT)
    (alert,) = alerts.create_monitor().list_current()
    assert (alert.retry_category, alert.retries) == (RetryCategory.EXECUTION_INTENT, 5)
    assert (alerts.read_changes(), alerts.receiver.calls) == ([], 0)


@pytest.mark.parametrize(
    ("errors", "calls", "delivered"),
    [
        ([refuse(), refuse()], 3, True),
        ([refuse(), refuse(), refuse()], 3, False),
        ([refuse(is_retryable=False)], 1, False),
    ],
)
def test_delivery_is_retried_by_its_policy(
    errors: list[AlertDeliveryError],
    calls: int,
    *,
    delivered: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    alerts = AlertBench()
    alerts.receiver.errors = list(errors)
    alerts.fail(5)
    assert alerts.create_monitor().beat()
    assert (alerts.receiver.calls, len(alerts.receiver.taken)) == (calls, delivered)
    assert bool(find_log_messages(caplog, "alert.delivery_failed")) == (not delivered)
    assert alerts.read_changes() == [RAISED]


def test_stopping_worker_does_not_retry_a_delivery() -> None:
    alerts = AlertBench()
    alerts.receiver.errors = [refuse(), refuse()]
    alerts.fail(5)
    alerts.create_monitor(is_stopping=lambda: True).beat()
    assert (alerts.receiver.calls, alerts.bench.clock.slept) == (1, [])


def test_unreadable_log_is_reported_and_read_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    alerts = AlertBench()
    monitor = alerts.create_monitor(rule=evolve(RULE, thresholds=AlertThresholds()))
    gone = DatabaseError(problem="gone", remedy="start it")

    def fail(_sink: object) -> None:
        raise gone

    with monkeypatch.context() as patch:
        patch.setattr(MemoryAuditSink, "read_head", fail)
        assert monitor.beat()
    assert find_log_messages(caplog, "alert.evaluation_failed") == [
        "alerts were not evaluated: database: gone; start it"
    ]
    assert monitor.beat()


def test_unreadable_entry_is_skipped() -> None:
    alerts = AlertBench()
    monitor = alerts.create_monitor()
    monitor.evaluate()
    alerts.fail(5)
    broken = evolve(next(alerts.bench.sink.iter_entries()), body=b"{", sequence=1)
    alerts.bench.sink._entries[0] = broken
    assert [one.retries for one in monitor.evaluate()] == [4]


def test_removed_limit_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    alerts = AlertBench()
    alerts.fail(5)
    alerts.create_monitor().beat()
    unlimited = alerts.create_monitor(rule=AlertRule())
    with caplog.at_level(logging.INFO):
        unlimited.beat()
    assert find_log_messages(caplog, "alert.cleared")[0].endswith("limit none per minute")
