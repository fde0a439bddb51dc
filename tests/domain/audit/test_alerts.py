"""When an alert is raised, and when it is cleared."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from support.audit_events import AT, create_idempotency_used, create_retry_attempted

from tileferry.domain.audit import (
    AlertChanged,
    AlertRule,
    AlertState,
    AlertThresholds,
    AlertTracker,
)
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import RetryCategory

API = RetryCategory.API_REQUEST.value
RUN = RetryCategory.EXECUTION_INTENT.value
RULE = AlertRule(thresholds=AlertThresholds(retries_per_minute=10))


def retry(tracker: AlertTracker, at_s: float, count: int = 1, category: str = API) -> None:
    event = evolve(create_retry_attempted(1), retry_category=category)
    for _ in range(count):
        tracker.observe(evolve(event, timestamp=AT + timedelta(seconds=at_s)), 1)


def evaluate(tracker: AlertTracker, at_s: float) -> Sequence[AlertChanged]:
    """Evaluate, and record the changes as a worker does."""
    changes = tracker.evaluate(AT + timedelta(seconds=at_s))
    for number, change in enumerate(changes):
        tracker.observe(change, 100 + number)
    return changes


def test_alert_is_raised_once_and_cleared_once() -> None:
    tracker = AlertTracker(RULE)
    retry(tracker, 0, 10)
    assert evaluate(tracker, 1) == []  # as many as allowed
    retry(tracker, 2)
    (raised,) = evaluate(tracker, 3)
    assert (raised.state, raised.retry_category, raised.retries) == (AlertState.RAISED, API, 11)
    assert (raised.window_seconds, raised.threshold_per_minute) == (60.0, 10)
    assert evaluate(tracker, 4) == []
    retry(tracker, 30, 6)
    assert evaluate(tracker, 61) == []  # 7 of 10: above the share that clears it
    (cleared,) = evaluate(tracker, 91)
    assert (cleared.state, cleared.retries) == (AlertState.CLEARED, 0)
    assert evaluate(tracker, 92) == []
    assert tracker.raised == {}


def test_categories_have_their_own_alerts_and_limits() -> None:
    rule = evolve(RULE, thresholds=AlertThresholds(by_category={RUN: 1}))
    tracker = AlertTracker(rule)
    retry(tracker, 0, 50)
    retry(tracker, 0, 2, RUN)
    assert [change.retry_category for change in evaluate(tracker, 1)] == [RUN]
    assert rule.is_active
    assert RULE.is_active
    assert not AlertRule().is_active


def test_removed_limit_clears_the_alert() -> None:
    tracker = AlertTracker(RULE)
    retry(tracker, 0, 11)
    (raised,) = evaluate(tracker, 1)
    unlimited = AlertTracker(AlertRule())
    unlimited.observe(raised, 5)
    (cleared,) = evaluate(unlimited, 2)
    assert (cleared.state, cleared.threshold_per_minute) == (AlertState.CLEARED, None)


def test_rate_is_per_minute_whatever_the_window() -> None:
    rule = evolve(RULE, window_s=600.0)
    tracker = AlertTracker(rule)
    retry(tracker, 0, 100)
    assert evaluate(tracker, 1) == []
    retry(tracker, 0)
    assert len(evaluate(tracker, 1)) == 1


def test_current_alerts_need_no_worker() -> None:
    tracker = AlertTracker(RULE)
    retry(tracker, 0, 11)
    now = AT + timedelta(seconds=1)
    assert [one.retry_category for one in tracker.list_current(now)] == [API]
    assert tracker.raised == {}
    assert tracker.get_last_change(API) == 0
    evaluate(tracker, 1)
    assert tracker.get_last_change(API) == 100
    assert [one.timestamp for one in tracker.list_current(AT + timedelta(seconds=2))] == [now]
    assert tracker.list_current(AT + timedelta(seconds=90)) == []


def test_other_events_are_ignored() -> None:
    tracker = AlertTracker(RULE)
    tracker.observe(create_idempotency_used(1, "k"), 1)
    assert evaluate(tracker, 1) == []


@pytest.mark.parametrize("changes", [{"window_s": 0}, {"clear_share": 1.5}, {"window_s": 1e6}])
def test_invalid_rule_is_rejected(changes: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError):
        AlertRule(**changes)  # type: ignore[arg-type]  # floats of both fields


@given(
    st.lists(st.tuples(st.integers(0, 300), st.sampled_from([API, RUN])), max_size=60),
    st.lists(st.integers(0, 400), max_size=60),
    st.floats(0, 20),
    st.floats(0, 1),
    st.floats(5, 120),
)
def test_states_alternate_and_follow_the_counts(
    retries: list[tuple[int, str]],
    looks: list[int],
    limit: float,
    share: float,
    window_s: float,
) -> None:
    """Whatever happens: raised and cleared alternate, and each agrees with a plain count."""
    thresholds = AlertThresholds(retries_per_minute=limit)
    tracker = AlertTracker(AlertRule(thresholds=thresholds, window_s=window_s, clear_share=share))
    states: dict[str, AlertState] = {}
    pending = sorted(retries)
    for at_s in sorted(looks):
        while pending and pending[0][0] <= at_s:
            retry(tracker, *(pending[0][0], 1, pending.pop(0)[1]))
        now = AT + timedelta(seconds=at_s)
        begin = now - timedelta(seconds=window_s)
        for change in evaluate(tracker, at_s):
            seen = sum(
                category == change.retry_category and begin < AT + timedelta(seconds=time_s) <= now
                for time_s, category in retries
            )
            rate = seen * 60 / window_s
            assert change.retries == seen
            before = states.get(change.retry_category, AlertState.CLEARED)
            assert change.state is not before
            assert rate > limit if change.state is AlertState.RAISED else rate <= limit * share
            states[change.retry_category] = change.state
