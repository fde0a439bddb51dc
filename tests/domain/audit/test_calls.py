"""Events put back together into the calls they came from."""

from collections.abc import Iterable
from random import Random

import pytest
from attrs import evolve
from support.audit_events import create_call_events, create_one_event_of_each_type

from tileferry.adapters.memory import ManualClock
from tileferry.domain.audit import (
    AuditEvent,
    CallCollector,
    CallFailed,
    RetryAttempted,
    RetryExhausted,
    RetrySucceeded,
    calls,
    get_policy_name,
)
from tileferry.domain.retry import (
    ErrorClass,
    Final,
    PastCall,
    RateLimited,
    Retryable,
    RetryCategory,
    RetryPolicy,
)

PLAIN = RetryPolicy(max_attempts=3, base_delay=2.0, jitter_enabled=False)
E = Retryable()


def make_events(key: str, *errors: ErrorClass, **others: str) -> list[AuditEvent]:
    return create_call_events(errors, clock=ManualClock(), key=key, policy=PLAIN, **others)  # type: ignore[arg-type]


def collect_calls(events: Iterable[AuditEvent]) -> tuple[list[PastCall], CallCollector]:
    collector = CallCollector()
    ended = [call for call in map(collector.add, events) if call is not None]
    return ended, collector


def summarize(call: PastCall) -> tuple[str, int, bool]:
    return call.records[0].failure.key, len(call.records), call.succeeded


def forget_name(event: AuditEvent) -> AuditEvent:
    """Return an event as it was written before policies were named."""
    if isinstance(event, RetrySucceeded):
        return evolve(event, policy_name=None)
    assert isinstance(event, RetryAttempted | RetryExhausted)
    policy = evolve(event.decision_record.policy, name=None)
    return evolve(event, decision_record=evolve(event.decision_record, policy=policy))


@pytest.mark.parametrize("errors", [[E], [E, E, E]])
def test_policy_name_is_the_recorded_one(errors: list[ErrorClass]) -> None:
    policy = evolve(PLAIN, name="DOWNLOAD")
    events = create_call_events(errors, clock=ManualClock(), policy=policy, operation="POST")
    assert {get_policy_name(event) for event in events} == {"DOWNLOAD"}


@pytest.mark.parametrize(
    ("category", "operation", "name"),
    [
        (RetryCategory.API_REQUEST, "GET tile 1", "DOWNLOAD"),
        (RetryCategory.API_REQUEST, "POST 3 tiles", "API_REQUEST"),
        (RetryCategory.API_VALIDATION, "Upload flight f", "UPLOAD"),
        (RetryCategory.API_VALIDATION, "Upload tile t", "API_VALIDATION"),
        (RetryCategory.KV_GET, "GET key", "KV_GET"),
        ("RETRY_UNHEARD_OF", "GET key", None),
    ],
)
def test_policy_name_of_old_entries_is_derived(
    category: str, operation: str, name: str | None
) -> None:
    for event in make_events("a", E, E):
        assert isinstance(event, RetryAttempted | RetryExhausted | RetrySucceeded)
        old = forget_name(evolve(event, retry_category=category, operation=operation))
        assert get_policy_name(old) == name


def test_events_of_no_call_have_no_policy_name() -> None:
    others = [event for event in create_one_event_of_each_type() if not hasattr(event, "operation")]
    assert others
    assert {get_policy_name(event) for event in others} == {None}


def test_call_is_returned_when_it_ends() -> None:
    ended, collector = collect_calls([*make_events("a", E, E), *make_events("b", E, E, E)])
    assert [summarize(call) for call in ended] == [("a", 2, True), ("b", 3, False)]
    assert [call.waited_s for call in ended] == [6.0, 6.0]
    assert (collector.unfinished, collector.incomplete) == (0, 0)


def test_call_failing_on_first_attempt_is_returned() -> None:
    ended, _ = collect_calls(make_events("a", Final()))
    assert [summarize(call) for call in ended] == [("a", 1, False)]


def test_rate_limit_waits_belong_to_their_call() -> None:
    told = RateLimited(retry_after_s=7.0)
    ended, _ = collect_calls(make_events("a", told, E, told, E))
    assert [summarize(call) for call in ended] == [("a", 4, True)]
    assert ended[0].waited_s == 7 + 2 + 7 + 4


def test_interleaved_calls_are_separated() -> None:
    chance = Random(5)  # noqa: S311  # any seed
    stories = {
        f"call {n}": create_call_events(
            [E] * (1 + n % 4),
            clock=ManualClock(),
            key=f"call {n}",
            policy=RetryPolicy(max_attempts=4),
            correlation_id=f"c{n % 2}",
        )
        for n in range(60)
    }
    expected = {key: len(events) for key, events in stories.items()}
    log: list[AuditEvent] = []
    while stories:
        key = chance.choice(list(stories))
        log.append(stories[key].pop(0))
        if not stories[key]:
            del stories[key]
    ended, collector = collect_calls(log)
    assert {
        call.records[0].failure.key: len(call.records) + call.succeeded for call in ended
    } == expected
    assert (collector.unfinished, collector.incomplete) == (0, 0)


def test_call_without_end_is_unfinished() -> None:
    ended, collector = collect_calls([*make_events("a", E, E)[:1], *make_events("b", E)[:1]])
    assert (ended, collector.unfinished) == ([], 2)


@pytest.mark.parametrize("again", [[E], [Final()]])
def test_restarted_key_leaves_first_call_unfinished(again: list[ErrorClass]) -> None:
    first = make_events("a", E, E)[:2]
    ended, collector = collect_calls([*first, *make_events("a", *again)])
    assert [summarize(call) for call in ended] == [("a", 1, again == [E])]
    assert collector.unfinished == 1


@pytest.mark.parametrize("errors", [[E, E], [E, E, E]])
def test_call_without_start_is_counted_as_incomplete(errors: list[ErrorClass]) -> None:
    ended, collector = collect_calls(make_events("a", *errors)[1:])
    assert (ended, collector.incomplete, collector.unfinished) == ([], 1, 0)


def test_call_with_missing_event_is_incomplete() -> None:
    first, _, *rest = make_events("a", E, E, E)
    ended, collector = collect_calls([first, *rest])
    assert (ended, collector.incomplete) == ([], 1)


def test_success_with_different_context_does_not_match_call() -> None:
    failed, _ = make_events("a", E)
    _, succeeded = make_events("b", E, operation="another")
    ended, collector = collect_calls([failed, succeeded])
    assert (ended, collector.incomplete, collector.unfinished) == ([], 1, 1)


def test_success_with_different_delay_does_not_match_call() -> None:
    failed, succeeded = make_events("a", E)
    assert isinstance(succeeded, RetrySucceeded)
    ended, collector = collect_calls([failed, evolve(succeeded, total_delay_seconds=2.5)])
    assert (ended, collector.incomplete, collector.unfinished) == ([], 1, 1)


def test_non_retry_events_end_no_call() -> None:
    others = [
        event
        for event in create_one_event_of_each_type()
        if not isinstance(event, RetryAttempted | CallFailed | RetrySucceeded)
    ]
    assert collect_calls(others)[0] == []
    assert len(others) == 5


def test_open_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "OPEN_CALLS_MAX", 5)
    collector = CallCollector()
    for n in range(20):
        collector.add(make_events(f"{n}", E)[0])
    assert collector.unfinished == 20
    assert collector._open_count == 5
    newest = collector.add(make_events("19", E)[1])
    assert newest is not None
    assert collector.unfinished == 19
