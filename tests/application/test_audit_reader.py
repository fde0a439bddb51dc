"""Reading the audit log."""

from datetime import timedelta

import pytest
from attrs import evolve
from support.audit_events import (
    AT,
    create_idempotency_used,
    create_one_event_of_each_type,
    create_retry_attempted,
)
from support.listed_log import list_sequences, make_log, make_reader

from tileferry.adapters.memory import MemoryAuditSink
from tileferry.application import audit_reader
from tileferry.application.ports.progress import ItemsProcessed, ProgressEvent, Task
from tileferry.domain.audit import (
    AuditEvent,
    RetryAttempted,
)
from tileferry.domain.errors import DatabaseError, RetryError
from tileferry.domain.retry import POLICY_MATRIX, DecisionDifference, RetryAt, RetryCategory

LOST = DatabaseError(problem="the connection was lost", remedy="run again")


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_reader, "PAGE", 10)


MANY = [create_retry_attempted(n) for n in range(1, 96)]


# Entries


def test_entries_are_counted_as_they_are_read() -> None:
    log, counts = make_log(*MANY), list[int]()

    def listen(event: ProgressEvent) -> None:
        assert isinstance(event, ItemsProcessed)
        assert event.task is Task.READ_AUDIT
        counts.append(event.items)

    reader = evolve(make_reader(log), progress=listen)
    assert list(reader.iter_entries()) == log.listed
    assert counts == [10] * 9 + [5]
    counts.clear()
    assert len(list(reader.find_about("corr-7"))) == sum(counts)


def test_all_entries_are_read_in_pages() -> None:
    log = make_log(*MANY)
    assert list(make_reader(log).iter_entries()) == log.listed
    assert log.calls == 10
    assert [entry.sequence for entry in make_reader(log).iter_entries(after=90)] == [
        91,
        92,
        93,
        94,
        95,
    ]
    assert list(make_reader(make_log()).iter_entries()) == []


def test_log_of_whole_pages_ends() -> None:
    log = make_log(*MANY[:20])
    assert len(list(make_reader(log).iter_entries())) == 20


def test_design_5_16_lost_page_is_retried_as_replay_validation() -> None:
    log, sink = make_log(*MANY), MemoryAuditSink()
    reading = make_reader(log, sink).iter_entries()
    first = [next(reading) for _ in range(15)]
    log.failures.append(LOST)
    assert [*first, *reading] == log.listed
    (retried, succeeded) = sink.events
    assert isinstance(retried, RetryAttempted)
    assert retried.retry_category == RetryCategory.REPLAY_VALIDATION
    assert retried.max_attempts == POLICY_MATRIX[RetryCategory.REPLAY_VALIDATION].max_attempts
    assert succeeded.event_type == "retry_succeeded"


def test_unreachable_log_raises_retry_error_with_reason() -> None:
    log = make_log(*MANY)
    log.failures += [LOST, LOST]
    with pytest.raises(RetryError, match="the connection was lost; run again"):
        make_reader(log).verify()


def test_programming_error_is_not_retried() -> None:
    log = make_log(*MANY)
    log.failures.append(KeyError("defect"))
    with pytest.raises(KeyError):
        make_reader(log).verify()
    assert log.calls == 1


# Newest


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 50, 95, 200])
def test_newest_returns_latest_entries_oldest_first(count: int) -> None:
    expected = list(range(1, 96))[max(0, 95 - count) :]
    assert list_sequences(make_reader(make_log(*MANY)).read_newest(count)) == expected


def test_newest_of_empty_log_is_empty() -> None:
    assert list_sequences(make_reader(make_log()).read_newest(5)) == []


def test_pages_before_a_number_cover_the_log_once() -> None:
    reader = make_reader(make_log(*MANY))
    seen: list[int] = []
    before = None
    while before is None or before > 1:
        found, before = reader.read_before(before, 7, scan_max=9)
        seen = [*list_sequences(found), *seen]
    assert seen == list(range(1, len(MANY) + 1))
    assert make_reader(make_log()).read_before(None, 7, scan_max=9) == ([], 1)


def test_filtered_pages_read_a_bounded_number_of_entries() -> None:
    events = [
        create_idempotency_used(n, f"k{n}") if n in {4, 13, 14} else create_retry_attempted(n)
        for n in range(1, 21)
    ]
    reader = make_reader(make_log(*events))

    def read(before: int | None, count: int) -> tuple[list[int], int]:
        found, reached = reader.read_before(
            before, count, is_idempotency_event, holding=["idempotency"], scan_max=10
        )
        return list_sequences(found), reached

    assert read(None, 5) == ([13, 14], 11)
    assert read(11, 5) == ([4], 1)
    assert read(None, 1) == ([14], 14)
    assert read(14, 1) == ([13], 13)


def is_idempotency_event(event: AuditEvent) -> bool:
    return event.event_type == "idempotency"


def test_newest_with_filter_searches_far_back() -> None:
    events = [
        create_idempotency_used(n, f"k{n}") if n in {2, 3, 40} else create_retry_attempted(n)
        for n in range(1, 96)
    ]
    reader = make_reader(make_log(*events))
    assert list_sequences(reader.read_newest(2, is_idempotency_event)) == [3, 40]
    assert list_sequences(reader.read_newest(9, is_idempotency_event)) == [2, 3, 40]


def test_entries_without_wanted_values_are_skipped() -> None:
    bodies: list[bytes | AuditEvent] = [
        b"garbage",
        create_retry_attempted(2),
        create_idempotency_used(3, "k"),
        create_retry_attempted(4),
    ]
    reader = make_reader(make_log(*bodies))
    assert list_sequences(reader.read_newest(5, holding=["idempotency"])) == [3]
    assert list_sequences(reader.read_since(None, holding=["retry_attempt"])) == [2, 4]
    assert list_sequences(reader.read_since(None, holding=["retry_attempt", "TimeoutError"])) == [
        2,
        4,
    ]
    assert list_sequences(reader.read_since(None, holding=["retry_attemp"])) == []


def test_unreadable_entries_are_returned_without_filter() -> None:
    reader = make_reader(
        make_log(create_retry_attempted(1), b"{garbage", create_retry_attempted(3))
    )
    newest = reader.read_newest(2)
    assert [read.event is None for read in newest] == [True, False]
    assert newest[0].problem is not None
    assert "is not JSON" in newest[0].problem
    assert list_sequences(reader.read_newest(5, lambda _: True)) == [1, 3]


# Since


def hourly_events(count: int) -> list[AuditEvent]:
    """Return one event an hour."""
    return [
        evolve(create_retry_attempted(1), timestamp=AT + timedelta(hours=n)) for n in range(count)
    ]


@pytest.mark.parametrize("hours", [0, 1, 5, 60, 199, 300])
def test_start_time_is_found_by_binary_search(hours: int) -> None:
    log = make_log(*hourly_events(200))
    since = AT + timedelta(hours=hours)
    found = list(make_reader(log).read_since(since))
    times = [read.event.timestamp for read in found if read.event is not None]
    assert [time for time in times if time >= since] == [
        AT + timedelta(hours=n) for n in range(hours, 200)
    ]
    assert len(found) <= max(0, 200 - hours) + 2 * 10 + 2  # little more than asked for


def test_since_none_returns_whole_log() -> None:
    assert len(list(make_reader(make_log(*MANY)).read_since(None))) == 95


def test_clock_skew_loses_no_entries() -> None:
    ahead = [timedelta(minutes=50 * (n % 2)) for n in range(300)]  # every other writer's clock
    times = [AT + timedelta(minutes=n) + ahead[n] for n in range(300)]
    reader = make_reader(
        make_log(*[evolve(create_retry_attempted(1), timestamp=at) for at in times])
    )
    for minutes in range(60, 300, 60):
        since = AT + timedelta(minutes=minutes)
        expected = {n + 1 for n, at in enumerate(times) if at >= since}
        assert expected <= set(list_sequences(reader.read_since(since)))


def test_unreadable_entries_do_not_mislead_time_search() -> None:
    bodies: list[bytes | AuditEvent] = [*hourly_events(300)]
    for place in (*range(140, 160), 74, 75, 224, 225):
        bodies[place] = b"garbage"
    found = list_sequences(make_reader(make_log(*bodies)).read_since(AT + timedelta(hours=230)))
    assert set(range(231, 301)) <= set(found)
    bodies[100:] = [b"garbage"] * 200  # up to the end: what they hide is unknown
    found = list_sequences(make_reader(make_log(*bodies)).read_since(AT + timedelta(hours=50)))
    assert set(range(51, 301)) <= set(found)


# About


def test_about_finds_entries_by_sequence_or_subject() -> None:
    reader = make_reader(make_log(*create_one_event_of_each_type()))
    assert list_sequences(reader.find_about("4")) == [4]
    assert list_sequences(reader.find_about("corr-1")) == [1, 3, 4]
    assert list_sequences(reader.find_about("nothing")) == []
    assert list_sequences(reader.find_about("99999")) == []
    assert list_sequences(reader.find_about("9" * 5_000)) == []


def test_numeric_correlation_id_is_found() -> None:
    reader = make_reader(make_log(create_retry_attempted(1, correlation_id="20261116")))
    assert list_sequences(reader.find_about("20261116")) == [1]


def test_missing_sequence_is_not_mistaken_for_next() -> None:
    log = make_log(*(create_retry_attempted(n, correlation_id="c") for n in range(1_000, 1_010)))
    del log.listed[6]
    assert list_sequences(make_reader(log).find_about("8")) == [8]
    log.listed = [entry for entry in log.listed if b"7" not in entry.body]
    assert list_sequences(make_reader(log).find_about("7")) == []


def test_decisions_are_recomputed_and_compared() -> None:
    event = create_retry_attempted(1)
    record = event.decision_record
    assert isinstance(record.decision, RetryAt)
    forged = evolve(record, decision=evolve(record.decision, delay_s=9.5))
    lie = evolve(event, decision_record=forged, delay_seconds=9.5)
    true, false, other = make_reader(
        make_log(event, lie, create_idempotency_used(3, "k"))
    ).read_newest(3)
    assert (true.record, true.difference) == (record, None)
    assert isinstance(false.difference, DecisionDifference)
    assert (false.difference.recorded, false.difference.recomputed) == (
        forged.decision,
        record.decision,
    )
    assert (other.record, other.difference) == (None, None)


def test_late_delivered_entries_do_not_hide_newer_ones_before_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit_reader, "PAGE", 8)
    hours = [*range(40), *([3] * 6), *range(40, 60)]
    bodies = [
        evolve(create_retry_attempted(n), timestamp=AT + timedelta(hours=hour))
        for n, hour in enumerate(hours)
    ]
    for since in range(0, 60, 3):
        found = make_reader(make_log(*bodies)).read_since(AT + timedelta(hours=since))
        expected = {n + 1 for n, hour in enumerate(hours) if hour >= since}
        assert expected <= set(list_sequences(found))
