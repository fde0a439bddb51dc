"""Reading the audit log."""

import logging
from collections.abc import Iterator
from datetime import timedelta

import pytest
from attrs import define, evolve, field
from support.audit_events import AT, attempted, every_kind, used

from tileferry.adapters.memory import ManualClock, MemoryAuditSink
from tileferry.application import AuditTrail, RetryManager, audit_reading
from tileferry.application.audit_reading import AuditReader
from tileferry.domain.audit import (
    GENESIS,
    AuditEvent,
    ChainEntry,
    ChainHead,
    ChainProblem,
    RetryAttempted,
    next_entry,
)
from tileferry.domain.errors import DatabaseError, RetryError
from tileferry.domain.retry import POLICY_MATRIX, RetryAt, RetryCategory

LOST = DatabaseError(problem="the connection was lost", remedy="run again")


@define
class ListedLog:
    """A log of whatever entries it is given; the next calls may fail."""

    listed: list[ChainEntry]
    claimed: ChainHead | None = None
    failures: list[Exception] = field(factory=list)
    calls: int = 0

    def head(self) -> ChainHead:
        self._fail()
        return self.claimed or (self.listed[-1].head if self.listed else GENESIS)

    def entries(self, *, after: int = 0) -> Iterator[ChainEntry]:
        self._fail()
        return (entry for entry in self.listed if entry.sequence > after)

    def entries_about(self, subject: str) -> Iterator[ChainEntry]:
        self._fail()
        return (entry for entry in self.listed if subject.encode() in entry.body)

    def _fail(self) -> None:
        self.calls += 1
        if self.failures:
            raise self.failures.pop()


def log_of(*bodies: bytes | AuditEvent) -> ListedLog:
    entries: list[ChainEntry] = []
    for body in bodies:
        content = body if isinstance(body, bytes) else body.canonical_bytes()
        entries.append(next_entry(entries[-1].head if entries else GENESIS, content))
    return ListedLog(entries)


def reader_of(log: ListedLog, sink: MemoryAuditSink | None = None) -> AuditReader:
    clock = ManualClock()
    trail = AuditTrail(logger=logging.getLogger("test"), sinks=[sink] if sink else [])
    manager = RetryManager(clock=clock, new_id=lambda: "id", audit=trail, sleep=clock.sleep_async)
    return AuditReader(log=log, retries=manager)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_reading, "PAGE", 10)


def sequences(entries: object) -> list[int]:
    return [read.entry.sequence for read in entries]  # type: ignore[attr-defined]


MANY = [attempted(n) for n in range(1, 96)]


# Entries


def test_entries_come_page_by_page_and_all_of_them() -> None:
    log = log_of(*MANY)
    assert list(reader_of(log).entries()) == log.listed
    assert log.calls == 10
    assert [entry.sequence for entry in reader_of(log).entries(after=90)] == [91, 92, 93, 94, 95]
    assert list(reader_of(log_of()).entries()) == []


def test_a_log_of_whole_pages_ends() -> None:
    log = log_of(*MANY[:20])
    assert len(list(reader_of(log).entries())) == 20


def test_design_5_16_a_page_that_was_lost_is_read_again_as_replay_validation() -> None:
    log, sink = log_of(*MANY), MemoryAuditSink()
    reading = reader_of(log, sink).entries()
    first = [next(reading) for _ in range(15)]
    log.failures.append(LOST)
    assert [*first, *reading] == log.listed
    (retried, succeeded) = sink.events
    assert isinstance(retried, RetryAttempted)
    assert retried.retry_category == RetryCategory.REPLAY_VALIDATION
    assert retried.max_attempts == POLICY_MATRIX[RetryCategory.REPLAY_VALIDATION].max_attempts
    assert succeeded.event_type == "retry_succeeded"


def test_a_log_that_stays_away_is_given_up_with_its_reason() -> None:
    log = log_of(*MANY)
    log.failures += [LOST, LOST]
    with pytest.raises(RetryError, match="the connection was lost; run again"):
        reader_of(log).verify()


def test_a_defect_is_not_tried_again() -> None:
    log = log_of(*MANY)
    log.failures.append(KeyError("defect"))
    with pytest.raises(KeyError):
        reader_of(log).verify()
    assert log.calls == 1


# Newest


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 50, 95, 200])
def test_the_newest_entries_oldest_first(count: int) -> None:
    expected = list(range(1, 96))[max(0, 95 - count) :]
    assert sequences(reader_of(log_of(*MANY)).newest(count)) == expected


def test_the_newest_of_an_empty_log() -> None:
    assert sequences(reader_of(log_of()).newest(5)) == []


def is_use(event: AuditEvent) -> bool:
    return event.event_type == "idempotency"


def test_the_newest_that_are_wanted_may_lie_far_back() -> None:
    events = [used(n, f"k{n}") if n in {2, 3, 40} else attempted(n) for n in range(1, 96)]
    reader = reader_of(log_of(*events))
    assert sequences(reader.newest(2, is_use)) == [3, 40]
    assert sequences(reader.newest(9, is_use)) == [2, 3, 40]


def test_what_does_not_hold_a_value_is_passed_over_unread() -> None:
    bodies: list[bytes | AuditEvent] = [b"garbage", attempted(2), used(3, "k"), attempted(4)]
    reader = reader_of(log_of(*bodies))
    assert sequences(reader.newest(5, holding=["idempotency"])) == [3]
    assert sequences(reader.since(None, holding=["retry_attempt"])) == [2, 4]
    assert sequences(reader.since(None, holding=["retry_attempt", "TimeoutError"])) == [2, 4]
    assert sequences(reader.since(None, holding=["retry_attemp"])) == []


def test_who_wants_everything_sees_what_cannot_be_read() -> None:
    reader = reader_of(log_of(attempted(1), b"{garbage", attempted(3)))
    newest = reader.newest(2)
    assert [read.event is None for read in newest] == [True, False]
    assert newest[0].problem is not None
    assert "is not JSON" in newest[0].problem
    assert sequences(reader.newest(5, lambda _: True)) == [1, 3]


# Since


def at_hours(count: int) -> list[AuditEvent]:
    """Return one event an hour."""
    return [evolve(attempted(1), timestamp=AT + timedelta(hours=n)) for n in range(count)]


@pytest.mark.parametrize("hours", [0, 1, 5, 60, 199, 300])
def test_a_stretch_of_time_is_found_by_halving(hours: int) -> None:
    log = log_of(*at_hours(200))
    since = AT + timedelta(hours=hours)
    found = list(reader_of(log).since(since))
    times = [read.event.timestamp for read in found if read.event is not None]
    assert [time for time in times if time >= since] == [
        AT + timedelta(hours=n) for n in range(hours, 200)
    ]
    assert len(found) <= max(0, 200 - hours) + 2 * 10 + 2  # little more than asked for


def test_all_of_the_log() -> None:
    assert len(list(reader_of(log_of(*MANY)).since(None))) == 95


def test_clocks_that_differ_a_little_lose_nothing() -> None:
    ahead = [timedelta(minutes=50 * (n % 2)) for n in range(300)]  # every other writer's clock
    times = [AT + timedelta(minutes=n) + ahead[n] for n in range(300)]
    reader = reader_of(log_of(*[evolve(attempted(1), timestamp=at) for at in times]))
    for minutes in range(60, 300, 60):
        since = AT + timedelta(minutes=minutes)
        expected = {n + 1 for n, at in enumerate(times) if at >= since}
        assert expected <= set(sequences(reader.since(since)))


def test_what_cannot_be_read_does_not_mislead_the_search() -> None:
    bodies: list[bytes | AuditEvent] = [*at_hours(300)]
    for place in (*range(140, 160), 74, 75, 224, 225):
        bodies[place] = b"garbage"
    found = sequences(reader_of(log_of(*bodies)).since(AT + timedelta(hours=230)))
    assert set(range(231, 301)) <= set(found)


# About


def test_an_entry_by_its_number_and_entries_by_what_they_are_about() -> None:
    reader = reader_of(log_of(*every_kind()))
    assert sequences(reader.about("4")) == [4]
    assert sequences(reader.about("corr-1")) == [1, 3, 4]
    assert sequences(reader.about("nothing")) == []
    assert sequences(reader.about("99999")) == []
    assert sequences(reader.about("9" * 5_000)) == []


def test_a_correlation_id_of_digits_is_found_when_no_entry_has_that_number() -> None:
    reader = reader_of(log_of(attempted(1, correlation_id="20261116")))
    assert sequences(reader.about("20261116")) == [1]


def test_a_number_that_is_missing_in_the_log_is_not_mistaken_for_the_next() -> None:
    log = log_of(*(attempted(n, correlation_id="c") for n in range(1_000, 1_010)))
    del log.listed[6]
    assert sequences(reader_of(log).about("8")) == [8]
    log.listed = [entry for entry in log.listed if b"7" not in entry.body]
    assert sequences(reader_of(log).about("7")) == []


def test_a_decision_is_made_again() -> None:
    event = attempted(1)
    record = event.decision_record
    assert isinstance(record.decision, RetryAt)
    forged = evolve(record, decision=evolve(record.decision, delay_s=9.5))
    lie = evolve(event, decision_record=forged, delay_seconds=9.5)
    true, false, other = reader_of(log_of(event, lie, used(3, "k"))).newest(3)
    assert (true.record, true.difference) == (record, None)
    assert false.difference is not None
    assert (false.difference.recorded, false.difference.recomputed) == (
        forged.decision,
        record.decision,
    )
    assert (other.record, other.difference) == (None, None)


# Verify


def test_a_sound_log_is_intact() -> None:
    log = log_of(*MANY)
    result = reader_of(log).verify()
    assert (result.intact, result.chain.checked, result.broken_at) == (True, 95, None)
    assert result.chain.head == log.listed[-1].head
    assert reader_of(log_of()).verify().intact
    assert reader_of(log).verify(noted=log.listed[40].head).intact


@pytest.mark.parametrize("place", [0, 9, 10, 50, 94])
def test_invariant_21_the_first_broken_entry_is_named(place: int) -> None:
    log = log_of(*MANY)
    victim = log.listed[place]
    log.listed[place] = evolve(victim, body=victim.body.replace(b"TimeoutError", b"TimeoutErr0r"))
    result = reader_of(log).verify()
    assert (result.intact, result.chain.problem) == (False, ChainProblem.EDITED)
    assert (result.chain.checked, result.broken_at) == (place, place + 1)


def test_invariant_21_a_deleted_entry_is_found_by_the_one_behind_it() -> None:
    log = log_of(*MANY)
    del log.listed[30]
    result = reader_of(log).verify()
    assert (result.chain.problem, result.chain.checked) == (ChainProblem.GAP, 30)
    assert result.broken_at == 32


def test_invariant_21_a_log_cut_off_at_its_end_is_found_by_its_own_head() -> None:
    log = log_of(*MANY)
    log.claimed = log.listed[-1].head
    del log.listed[-1]
    result = reader_of(log).verify()
    assert (result.intact, result.chain.problem) == (False, ChainProblem.CUT_OFF)
    assert (result.chain.checked, result.broken_at) == (94, None)
    everything_gone = ListedLog([], claimed=log.claimed)
    assert reader_of(everything_gone).verify().chain.problem is ChainProblem.CUT_OFF


def test_invariant_21_a_log_written_anew_is_found_by_a_head_noted_elsewhere() -> None:
    noted = log_of(*MANY).listed[-1].head
    anew = log_of(*MANY[:90], *[used(n, "k") for n in range(5)])
    assert reader_of(anew).verify().intact
    result = reader_of(anew).verify(noted=noted)
    assert result.chain.problem is ChainProblem.CUT_OFF


def test_a_body_that_is_no_event_is_counted_though_the_chain_is_sound() -> None:
    bodies: list[bytes | AuditEvent] = [*MANY]
    for place in range(3, 60):
        bodies[place] = b'{"event_type":"of another version"}'
    result = reader_of(log_of(*bodies)).verify()
    assert (result.chain.intact, result.intact, result.unreadable) == (True, False, 57)
    assert sequences(result.damage) == list(range(4, 24))


def test_entries_that_are_misfiled_are_told() -> None:
    reader = evolve(reader_of(log_of(*MANY)), false_copies=lambda: iter([4, 7]))
    result = reader.verify()
    assert (result.intact, result.misfiled) == (False, [4, 7])


@define
class GrowingLog(ListedLog):
    """A log that others append to whenever its head is asked for, before and after the answer."""

    later: list[ChainEntry] = field(factory=list)

    def head(self) -> ChainHead:
        self.listed += self.later[:15]
        claimed = super().head()
        self.listed += self.later[15:]
        return claimed


def test_a_log_that_grows_meanwhile_is_intact() -> None:
    entries = log_of(*MANY).listed
    log = GrowingLog(entries[:60], later=entries[60:])
    result = reader_of(log).verify()
    assert (result.intact, result.chain.checked) == (True, 75)
    assert result.chain.head == entries[74].head


def test_invariant_21_a_break_in_what_was_appended_meanwhile_is_found() -> None:
    entries = log_of(*MANY).listed
    entries[70] = evolve(entries[70], body=b"{}")
    result = reader_of(GrowingLog(entries[:60], later=entries[60:])).verify()
    assert (result.chain.problem, result.broken_at) == (ChainProblem.EDITED, 71)


def test_invariant_21_an_entry_added_beyond_the_head_is_found() -> None:
    log = log_of(*MANY)
    log.claimed = log.listed[-2].head
    result = reader_of(log).verify()
    assert (result.intact, result.chain.problem) == (False, ChainProblem.HEAD_MOVED)


@pytest.mark.parametrize("sequence", [0, 10, 95])
def test_invariant_21_a_head_that_was_moved_is_found(sequence: int) -> None:
    log = log_of(*MANY)
    real = log.listed[sequence - 1].head if sequence else GENESIS
    for moved in (real, evolve(real, hash="f" * 64)):
        log.claimed = moved
        intact = moved == log.listed[-1].head
        expected = None if intact else ChainProblem.HEAD_MOVED
        assert reader_of(log).verify().chain.problem is expected


def test_invariant_21_an_empty_log_begins_at_its_one_beginning() -> None:
    log = ListedLog([], claimed=ChainHead(sequence=0, hash="f" * 64))
    assert reader_of(log).verify().chain.problem is ChainProblem.HEAD_MOVED
