"""Events put back together into the calls they came from."""

from collections.abc import Iterable
from random import Random

import pytest
from attrs import evolve
from support.audit_events import every_kind
from support.retry_histories import call_events

from tileferry.adapters.memory import ManualClock
from tileferry.domain.audit import AuditEvent, CallCollector, RetrySucceeded, calls
from tileferry.domain.retry import (
    ErrorClass,
    Final,
    PastCall,
    RateLimited,
    Retryable,
    RetryPolicy,
)

PLAIN = RetryPolicy(max_attempts=3, base_delay=2.0, jitter_enabled=False)
E = Retryable()


def events_of(key: str, *errors: ErrorClass, **others: str) -> list[AuditEvent]:
    return call_events(errors, clock=ManualClock(), key=key, policy=PLAIN, **others)  # type: ignore[arg-type]


def collected(events: Iterable[AuditEvent]) -> tuple[list[PastCall], CallCollector]:
    collector = CallCollector()
    ended = [call for call in map(collector.add, events) if call is not None]
    return ended, collector


def shape(call: PastCall) -> tuple[str, int, bool]:
    return call.records[0].failure.key, len(call.records), call.succeeded


def test_a_call_is_given_back_when_it_ends() -> None:
    ended, collector = collected([*events_of("a", E, E), *events_of("b", E, E, E)])
    assert [shape(call) for call in ended] == [("a", 2, True), ("b", 3, False)]
    assert [call.waited_s for call in ended] == [6.0, 6.0]
    assert (collector.unfinished, collector.incomplete) == (0, 0)


def test_a_call_that_failed_at_once_is_one() -> None:
    ended, _ = collected(events_of("a", Final()))
    assert [shape(call) for call in ended] == [("a", 1, False)]


def test_waits_that_were_asked_for_belong_to_their_call() -> None:
    told = RateLimited(retry_after_s=7.0)
    ended, _ = collected(events_of("a", told, E, told, E))
    assert [shape(call) for call in ended] == [("a", 4, True)]
    assert ended[0].waited_s == 7 + 2 + 7 + 4


def test_calls_that_are_mixed_are_told_apart() -> None:
    chance = Random(5)  # noqa: S311  # any seed
    stories = {
        f"call {n}": call_events(
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
    ended, collector = collected(log)
    assert {
        call.records[0].failure.key: len(call.records) + call.succeeded for call in ended
    } == expected
    assert (collector.unfinished, collector.incomplete) == (0, 0)


def test_a_call_without_an_end_is_unfinished() -> None:
    ended, collector = collected([*events_of("a", E, E)[:1], *events_of("b", E)[:1]])
    assert (ended, collector.unfinished) == ([], 2)


@pytest.mark.parametrize("again", [[E], [Final()]])
def test_a_key_that_begins_anew_has_left_its_first_call_unfinished(again: list[ErrorClass]) -> None:
    first = events_of("a", E, E)[:2]
    ended, collector = collected([*first, *events_of("a", *again)])
    assert [shape(call) for call in ended] == [("a", 1, again == [E])]
    assert collector.unfinished == 1


@pytest.mark.parametrize("errors", [[E, E], [E, E, E]])
def test_a_call_whose_beginning_is_missing_is_counted_at_its_end(errors: list[ErrorClass]) -> None:
    ended, collector = collected(events_of("a", *errors)[1:])
    assert (ended, collector.incomplete, collector.unfinished) == ([], 1, 0)


def test_a_call_with_a_hole_is_incomplete() -> None:
    first, _, *rest = events_of("a", E, E, E)
    ended, collector = collected([first, *rest])
    assert (ended, collector.incomplete) == ([], 1)


def test_a_success_of_another_context_is_not_taken_for_it() -> None:
    failed, _ = events_of("a", E)
    _, succeeded = events_of("b", E, operation="another")
    ended, collector = collected([failed, succeeded])
    assert (ended, collector.incomplete, collector.unfinished) == ([], 1, 1)


def test_a_success_that_waited_otherwise_is_not_taken_for_it() -> None:
    failed, succeeded = events_of("a", E)
    assert isinstance(succeeded, RetrySucceeded)
    ended, collector = collected([failed, evolve(succeeded, total_delay_seconds=2.5)])
    assert (ended, collector.incomplete, collector.unfinished) == ([], 1, 1)


def test_other_events_end_nothing() -> None:
    others = [event for event in every_kind() if not event.event_type.startswith("retry")]
    assert collected(others)[0] == []
    assert len(others) == 3


def test_open_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "OPEN_CALLS_MAX", 5)
    collector = CallCollector()
    for n in range(20):
        collector.add(events_of(f"{n}", E)[0])
    assert collector.unfinished == 20
    assert collector._open_count == 5
    newest = collector.add(events_of("19", E)[1])
    assert newest is not None
    assert collector.unfinished == 19
