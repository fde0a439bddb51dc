"""What the audit log says about retries, added up."""

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve
from support.audit_events import (
    API,
    create_call_events,
    create_idempotency_used,
    create_one_event_of_each_type,
)

from tileferry.adapters.memory import ManualClock
from tileferry.domain.audit import (
    AlertThresholds,
    AuditEvent,
    AuditStatistics,
    IdempotencyAction,
    IdempotencyOutcome,
    find_alerts,
)
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import Final, RateLimited, Retryable, RetryCategory, RetryPolicy

# A whole minute, so that what falls into it is plain to see.
START_S = 1_750_000_020.0
START = datetime.fromtimestamp(START_S, UTC)
PLAIN = RetryPolicy(max_attempts=3, base_delay=2.0, jitter_enabled=False)
E1, E2, E3 = [Retryable()] * 1, [Retryable()] * 2, [Retryable()] * 3


def collect_statistics(
    *calls: list[AuditEvent], minutes: float = 10, since: datetime | None = START
) -> AuditStatistics:
    statistics = AuditStatistics(since=since, until=START + timedelta(minutes=minutes))
    for events in calls:
        for event in events:
            statistics.add(event)
    return statistics


def make_call(errors: list[Retryable], clock: ManualClock | None = None) -> list[AuditEvent]:
    return create_call_events(errors, clock=clock or ManualClock(START_S), policy=PLAIN)


def test_empty_statistics() -> None:
    nothing = AuditStatistics(until=START)
    assert (nothing.events, nothing.by_category, nothing.minutes) == (0, {}, 1.0)
    assert nothing.rate_per_minute(API) == 0.0
    assert nothing.build_series(API, 10).counts == (0,)
    assert find_alerts(nothing, AlertThresholds(retries_per_minute=0)) == []


def test_spec2_retry_patterns_by_category() -> None:
    """Total attempts, success rate and average attempts, as the analysis of spec 2 asks for."""
    statistics = collect_statistics(make_call(E1), make_call(E2), make_call(E3), make_call(E3))
    tally = statistics.by_category["RETRY_API_REQUEST"]
    assert tally.attempts == 2 + 3 + 3 + 3
    assert tally.success_rate == 0.5
    assert tally.mean_attempts == 11 / 4
    assert (tally.retried_calls, tally.succeeded, tally.given_up) == (4, 2, 2)
    assert (tally.retries, tally.waited_s, tally.wait_s_max) == (7, 2 + 6 + 6 + 6, 4.0)
    assert tally.mean_wait_s == pytest.approx(20 / 7)


def test_spec2_statistics_are_kept_per_category() -> None:
    calls = [
        create_call_events([Retryable()], clock=ManualClock(START_S), category=category)
        for category in RetryCategory
    ]
    statistics = collect_statistics(*calls)
    assert list(statistics.by_category) == [category.value for category in RetryCategory]
    single = {RetryCategory.EXECUTION_EXPIRATION, RetryCategory.REPLAY_PROCESSING}
    for category in RetryCategory:
        tally = statistics.by_category[category]
        expected = (0, 1, None) if category in single else (1, 0, 1.0)
        assert (tally.succeeded, tally.given_up, tally.success_rate) == expected


def test_policies_of_one_category_are_told_apart() -> None:
    """Downloads and other requests share a category, as runs and control calls do."""
    download = evolve(PLAIN, name="DOWNLOAD")
    statistics = collect_statistics(
        make_call(E1),
        create_call_events(E2, clock=ManualClock(START_S), policy=download, key="d"),
    )
    assert statistics.by_category[API].retries == 3
    found = statistics.find_policies(API)
    assert {name: tally.retries for name, tally in found.items()} == {PLAIN.name: 1, "DOWNLOAD": 2}
    assert statistics.find_policies("RETRY_KV_GET") == {}


def test_spec2_retry_rate_per_minute() -> None:
    """The audit stream, filtered by ``retry_attempt``, per minute."""
    statistics = collect_statistics(*[make_call(E2) for _ in range(10)], minutes=40)
    assert statistics.events_by_type["retry_attempt"] == 20
    assert statistics.rate_per_minute(API) == 0.5
    assert statistics.rate_per_minute("RETRY_KV_GET") == 0.0


def test_spec2_high_retry_rate_raises_alert() -> None:
    quiet, storm = ManualClock(START_S), ManualClock(START_S + 5 * 60)
    statistics = collect_statistics(
        make_call(E1, quiet),
        *[make_call(E1, ManualClock(storm.now() + n)) for n in range(12)],
        minutes=24 * 60,
    )
    assert statistics.rate_per_minute(API) < 0.01  # a quiet day does not hide it
    (alert,) = find_alerts(statistics, AlertThresholds(retries_per_minute=11))
    assert (alert.category, alert.retries, alert.threshold) == (API, 12, 11)
    assert alert.minute == START + timedelta(minutes=5)
    assert find_alerts(statistics, AlertThresholds(retries_per_minute=12)) == []
    assert find_alerts(statistics, AlertThresholds()) == []


def test_threshold_can_be_set_per_category() -> None:
    statistics = collect_statistics(make_call(E2))
    assert (
        find_alerts(statistics, AlertThresholds(retries_per_minute=1, by_category={API: 2})) == []
    )
    assert find_alerts(statistics, AlertThresholds(by_category={API: 1}))
    assert find_alerts(statistics, AlertThresholds(by_category={RetryCategory.KV_GET: 0})) == []


def test_negative_threshold_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match=r"AlertThresholds\.retries_per_minute"):
        AlertThresholds(retries_per_minute=-1)


def test_final_failure_on_first_attempt_counts_as_not_retried() -> None:
    clock = ManualClock(START_S)
    statistics = collect_statistics(create_call_events([Final()], clock=clock))
    tally = statistics.by_category[API]
    assert (tally.retried_calls, tally.given_up, tally.given_up_after_retries) == (0, 1, 0)
    assert (tally.attempts, tally.success_rate, tally.mean_attempts) == (1, None, None)
    assert (tally.mean_wait_s, tally.busiest_minute) == (None, None)


def test_rate_limited_attempt_counts_as_retry() -> None:
    told = RateLimited(retry_after_s=30.0)
    tally = collect_statistics(
        create_call_events([told, told], clock=ManualClock(START_S))
    ).by_category[API]
    assert (tally.retried_calls, tally.retries, tally.attempts, tally.succeeded) == (1, 2, 3, 1)
    assert tally.wait_s_max == 30.0
    given_up = create_call_events([told, Final()], clock=ManualClock(START_S))
    assert collect_statistics(given_up).by_category[API].given_up_after_retries == 1


def test_events_before_since_are_excluded() -> None:
    early = ManualClock(START_S - 3)
    statistics = collect_statistics(make_call(E2, early))  # fails at -3, -1 and succeeds at +3
    assert statistics.events == 1
    assert statistics.by_category[API].retries == 0
    assert statistics.by_category[API].succeeded == 1


def test_period_starts_at_first_event_without_since() -> None:
    late = ManualClock(START_S + 120)
    statistics = collect_statistics(make_call(E1, late), make_call(E1), since=None)
    assert (statistics.begins, statistics.minutes) == (START, 10.0)


def test_idempotency_hits_and_records_are_counted() -> None:
    recorded = create_idempotency_used(1, "k")
    statistics = AuditStatistics(until=recorded.timestamp + timedelta(minutes=1))
    statistics.add(recorded)
    statistics.add(evolve(recorded, action=IdempotencyAction.HIT))
    statistics.add(evolve(recorded, action=IdempotencyAction.CLEAR))
    tally = statistics.by_category["RETRY_KV_PUT"]
    assert (tally.idempotency_hits, tally.idempotency_records, tally.attempts) == (1, 1, 0)
    statistics.add(evolve(recorded, outcome=IdempotencyOutcome.FAILURE))
    failed_hit = evolve(recorded, action=IdempotencyAction.HIT, outcome=IdempotencyOutcome.FAILURE)
    for event in (failed_hit, failed_hit, evolve(failed_hit, outcome=IdempotencyOutcome.SUCCESS)):
        statistics.add(event)
    assert (tally.idempotency_hits, tally.idempotency_failures_returned) == (4, 2)
    assert (tally.idempotency_records, tally.idempotency_failures_recorded) == (2, 1)


def test_events_without_category_count_as_events_only() -> None:
    events = create_one_event_of_each_type()
    statistics = AuditStatistics(until=events[-1].timestamp)
    for event in events:
        statistics.add(event)
    assert statistics.events == len(events)
    assert set(statistics.by_category) == {"RETRY_API_REQUEST", "RETRY_KV_PUT"}
    assert [gap.events for gap in statistics.gaps] == [3]
    state_change = next(event for event in events if event.event_type == "state_change")
    statistics.by_category[API].add(state_change)
    assert statistics.by_category[API].attempts == 4
    assert (statistics.by_category[API].given_up, statistics.by_category[API].not_retryable) == (
        2,
        1,
    )


def test_series_has_equal_buckets_and_counts_all_events() -> None:
    calls = [make_call(E1, ManualClock(START_S + 60 * minute)) for minute in (0, 0, 1, 9)]
    statistics = collect_statistics(*calls)
    by_minute = statistics.build_series(API, 60)
    assert by_minute.counts == (2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0)
    assert (by_minute.begins, by_minute.width_minutes) == (START, 1)
    coarse = statistics.build_series(API, 4)
    assert (coarse.counts, coarse.width_minutes) == ((3, 0, 0, 1), 3)


def test_events_from_future_fall_into_last_bucket() -> None:
    statistics = collect_statistics(make_call(E1, ManualClock(START_S + 3600)), minutes=2)
    assert statistics.build_series(API, 10).counts == (0, 0, 1)
