"""Proposals from an audit log."""

from datetime import UTC, datetime, timedelta

import pytest
from support.audit_events import create_call_events
from support.managers import RetryBench

from tileferry.adapters.memory import ManualClock, MemoryAuditSink
from tileferry.application import policy_tuning
from tileferry.application.audit_reader import AuditReader
from tileferry.application.policy_tuning import PolicyTuning, TunablePolicy
from tileferry.domain.audit import AuditEvent
from tileferry.domain.retry import POLICY_MATRIX, Retryable, RetryCategory, RetryPolicy

E = Retryable()
START_S = 1_800_000_000.0
API = POLICY_MATRIX[RetryCategory.API_REQUEST]
RUN = RetryPolicy(name="RUN", max_attempts=3, base_delay=60.0, max_delay=600.0)
POLICIES = {
    "API_REQUEST": TunablePolicy(policy=API, tunable=["max_attempts"]),
    "RUN": TunablePolicy(policy=RUN, tunable=["max_attempts"]),
    "KV_GET": TunablePolicy(policy=POLICY_MATRIX[RetryCategory.KV_GET], tunable=[]),
}


def make_history() -> list[AuditEvent]:
    """Forty calls and ten runs, over five hours; each needs one retry."""
    events: list[AuditEvent] = []
    for number in range(40):
        clock = ManualClock(START_S + 360 * number)
        events += create_call_events([E], clock=clock, key=f"c{number}")
    for number in range(10):
        clock = ManualClock(START_S + number)
        category = RetryCategory.EXECUTION_INTENT
        events += create_call_events(
            [E], clock=clock, key=f"r{number}", policy=RUN, category=category
        )
    return events


def make_tuning(events: list[AuditEvent]) -> PolicyTuning:
    log = MemoryAuditSink()
    log.emit(events)
    return PolicyTuning(reader=AuditReader(log=log, retries=RetryBench().create_manager()))


def test_each_policy_is_reported_with_its_own_calls() -> None:
    """Calls, runs and partitions alike: the policy's name tells them apart, not the category."""
    found = make_tuning(make_history()).propose(POLICIES, since=None)
    assert [(one.report.name, one.report.calls) for one in found] == [
        ("API_REQUEST", 40),
        ("RUN", 10),
        ("KV_GET", 0),
    ]
    assert [one.hours for one in found] == [4, 1, 0]
    assert [one.report.calls_missing for one in found] == [0, 20, 30]
    assert [one.left_out for one in found] == [0, 0, 0]


def test_only_the_period_counts() -> None:
    events = make_history()
    since = events[0].timestamp + timedelta(seconds=0.5)
    (api, *_) = make_tuning(events[1:]).propose(POLICIES, since=since)
    assert (api.report.calls, api.left_out) == (39, 1)


def test_newest_calls_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_tuning, "CALLS_KEPT_MAX", 35)
    (api, *_) = make_tuning(make_history()).propose(POLICIES, since=None)
    assert (api.report.calls, api.left_out) == (35, 5)


def test_simulation_replays_the_calls_of_one_policy_in_the_period() -> None:
    """Runs share no policy with requests, and calls that began before the period are left out."""
    once = RetryPolicy(name="API_REQUEST", max_attempts=1)
    tuning, category = make_tuning(make_history()), RetryCategory.API_REQUEST
    found = tuning.simulate("API_REQUEST", category, once, since=None)
    assert (found.summary.calls, found.summary.lost) == (40, 40)
    assert (found.unfinished, found.incomplete) == (0, 0)
    since = datetime.fromtimestamp(START_S + 360 * 10 + 0.5, UTC)
    recent = tuning.simulate("API_REQUEST", category, once, since=since)
    assert (recent.summary.calls, recent.incomplete) == (29, 1)
    run = tuning.simulate("RUN", RetryCategory.EXECUTION_INTENT, RUN, since=None)
    assert (run.summary.calls, run.summary.lost) == (10, 0)
    other = tuning.simulate("EXECUTION_INTENT", RetryCategory.EXECUTION_INTENT, RUN, since=None)
    assert other.summary.calls == 0
