"""What the audit log says about retries, added up."""

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve
from support.audit_events import every_kind, used
from support.retry_histories import API, call_events

from tileferry.adapters.memory import ManualClock
from tileferry.domain.audit import (
    AlertThresholds,
    AuditEvent,
    AuditStatistics,
    IdempotencyAction,
    alerts,
)
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import Final, RateLimited, Retryable, RetryCategory, RetryPolicy

# A whole minute, so that what falls into it is plain to see.
START_S = 1_750_000_020.0
START = datetime.fromtimestamp(START_S, UTC)
PLAIN = RetryPolicy(max_attempts=3, base_delay=2.0, jitter_enabled=False)
E1, E2, E3 = [Retryable()] * 1, [Retryable()] * 2, [Retryable()] * 3


def added_up(
    *calls: list[AuditEvent], minutes: float = 10, since: datetime | None = START
) -> AuditStatistics:
    statistics = AuditStatistics(since=since, until=START + timedelta(minutes=minutes))
    for events in calls:
        for event in events:
            statistics.add(event)
    return statistics


def plain_call(errors: list[Retryable], clock: ManualClock | None = None) -> list[AuditEvent]:
    return call_events(errors, clock=clock or ManualClock(START_S), policy=PLAIN)


def test_nothing_happened() -> None:
    nothing = AuditStatistics(until=START)
    assert (nothing.events, nothing.by_category, nothing.minutes) == (0, {}, 1.0)
    assert nothing.rate_per_minute(API) == 0.0
    assert nothing.series(API, 10).counts == (0,)
    assert alerts(nothing, AlertThresholds(retries_per_minute=0)) == []


def test_spec2_retry_patterns_by_category() -> None:
    """Total attempts, success rate and average attempts, as the analysis of spec 2 asks for."""
    statistics = added_up(plain_call(E1), plain_call(E2), plain_call(E3), plain_call(E3))
    tally = statistics.by_category["RETRY_API_REQUEST"]
    assert tally.attempts == 2 + 3 + 3 + 3
    assert tally.success_rate == 0.5
    assert tally.mean_attempts == 11 / 4
    assert (tally.retried_calls, tally.succeeded, tally.given_up) == (4, 2, 2)
    assert (tally.retries, tally.waited_s, tally.wait_s_max) == (7, 2 + 6 + 6 + 6, 4.0)
    assert tally.mean_wait_s == pytest.approx(20 / 7)


def test_spec2_every_category_has_its_own_figures() -> None:
    calls = [
        call_events([Retryable()], clock=ManualClock(START_S), category=category)
        for category in RetryCategory
    ]
    statistics = added_up(*calls)
    assert list(statistics.by_category) == [category.value for category in RetryCategory]
    single = {RetryCategory.EXECUTION_EXPIRATION, RetryCategory.REPLAY_PROCESSING}
    for category in RetryCategory:
        tally = statistics.by_category[category]
        expected = (0, 1, None) if category in single else (1, 0, 1.0)
        assert (tally.succeeded, tally.given_up, tally.success_rate) == expected


def test_spec2_the_retry_rate_per_minute() -> None:
    """The audit stream, filtered by ``retry_attempt``, per minute."""
    statistics = added_up(*[plain_call(E2) for _ in range(10)], minutes=40)
    assert statistics.events_by_type["retry_attempt"] == 20
    assert statistics.rate_per_minute(API) == 0.5
    assert statistics.rate_per_minute("RETRY_KV_GET") == 0.0


def test_spec2_a_high_retry_rate_is_alerted() -> None:
    quiet, storm = ManualClock(START_S), ManualClock(START_S + 5 * 60)
    statistics = added_up(
        plain_call(E1, quiet),
        *[plain_call(E1, ManualClock(storm.now() + n)) for n in range(12)],
        minutes=24 * 60,
    )
    assert statistics.rate_per_minute(API) < 0.01  # a quiet day does not hide it
    (alert,) = alerts(statistics, AlertThresholds(retries_per_minute=11))
    assert (alert.category, alert.retries, alert.threshold) == (API, 12, 11)
    assert alert.minute == START + timedelta(minutes=5)
    assert alerts(statistics, AlertThresholds(retries_per_minute=12)) == []
    assert alerts(statistics, AlertThresholds()) == []


def test_a_category_may_have_a_threshold_of_its_own() -> None:
    statistics = added_up(plain_call(E2))
    assert alerts(statistics, AlertThresholds(retries_per_minute=1, by_category={API: 2})) == []
    assert alerts(statistics, AlertThresholds(by_category={API: 1}))
    assert alerts(statistics, AlertThresholds(by_category={RetryCategory.KV_GET: 0})) == []


def test_a_threshold_is_a_number() -> None:
    with pytest.raises(InvalidValueError, match=r"AlertThresholds\.retries_per_minute"):
        AlertThresholds(retries_per_minute=-1)


def test_what_failed_at_once_was_not_retried() -> None:
    clock = ManualClock(START_S)
    statistics = added_up(call_events([Final()], clock=clock))
    tally = statistics.by_category[API]
    assert (tally.retried_calls, tally.given_up, tally.given_up_after_retries) == (0, 1, 0)
    assert (tally.attempts, tally.success_rate, tally.mean_attempts) == (1, None, None)
    assert (tally.mean_wait_s, tally.busiest_minute) == (None, None)


def test_an_attempt_that_was_told_to_wait_is_a_retry() -> None:
    told = RateLimited(retry_after_s=30.0)
    tally = added_up(call_events([told, told], clock=ManualClock(START_S))).by_category[API]
    assert (tally.retried_calls, tally.retries, tally.attempts, tally.succeeded) == (1, 2, 3, 1)
    assert tally.wait_s_max == 30.0
    given_up = call_events([told, Final()], clock=ManualClock(START_S))
    assert added_up(given_up).by_category[API].given_up_after_retries == 1


def test_what_is_older_is_left_out() -> None:
    early = ManualClock(START_S - 3)
    statistics = added_up(plain_call(E2, early))  # fails at -3, -1 and succeeds at +3
    assert statistics.events == 1
    assert statistics.by_category[API].retries == 0
    assert statistics.by_category[API].succeeded == 1


def test_without_a_beginning_the_first_event_is_it() -> None:
    late = ManualClock(START_S + 120)
    statistics = added_up(plain_call(E1, late), plain_call(E1), since=None)
    assert (statistics.begins, statistics.minutes) == (START, 10.0)


def test_hits_and_records_are_counted() -> None:
    recorded = used(1, "k")
    statistics = AuditStatistics(until=recorded.timestamp + timedelta(minutes=1))
    statistics.add(recorded)
    statistics.add(evolve(recorded, action=IdempotencyAction.HIT))
    statistics.add(evolve(recorded, action=IdempotencyAction.CLEAR))
    tally = statistics.by_category["RETRY_KV_PUT"]
    assert (tally.idempotency_hits, tally.idempotency_records, tally.attempts) == (1, 1, 0)


def test_kinds_without_a_category_are_counted_as_events_only() -> None:
    events = every_kind()
    statistics = AuditStatistics(until=events[-1].timestamp)
    for event in events:
        statistics.add(event)
    assert statistics.events == len(events)
    assert set(statistics.by_category) == {"RETRY_API_REQUEST", "RETRY_KV_PUT"}
    state_change = next(event for event in events if event.event_type == "state_change")
    statistics.by_category[API].add(state_change)
    assert statistics.by_category[API].attempts == 3


def test_a_series_has_equal_parts_and_loses_nothing() -> None:
    calls = [plain_call(E1, ManualClock(START_S + 60 * minute)) for minute in (0, 0, 1, 9)]
    statistics = added_up(*calls)
    by_minute = statistics.series(API, 60)
    assert by_minute.counts == (2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0)
    assert (by_minute.begins, by_minute.width_minutes) == (START, 1)
    coarse = statistics.series(API, 4)
    assert (coarse.counts, coarse.width_minutes) == ((3, 0, 0, 1), 3)


def test_a_writer_whose_clock_is_ahead_stands_at_the_end() -> None:
    statistics = added_up(plain_call(E1, ManualClock(START_S + 3600)), minutes=2)
    assert statistics.series(API, 10).counts == (0, 0, 1)
