"""Verifying the audit log."""

import pytest
from attrs import define, evolve, field
from support.audit_events import (
    create_events_lost,
    create_idempotency_used,
    create_retry_attempted,
)
from support.listed_log import ListedLog, list_sequences, make_log, make_reader

from tileferry.application import audit_reader
from tileferry.application.ports.audit import OutboxStatus
from tileferry.domain.audit import (
    GENESIS,
    AuditEvent,
    ChainEntry,
    ChainHead,
    ChainProblem,
)
from tileferry.domain.errors import DatabaseError

LOST = DatabaseError(problem="the connection was lost", remedy="run again")


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_reader, "PAGE", 10)


MANY = [create_retry_attempted(n) for n in range(1, 96)]


def test_valid_log_is_intact() -> None:
    log = make_log(*MANY)
    result = make_reader(log).verify()
    assert (result.intact, result.chain.checked, result.broken_at) == (True, 95, None)
    assert result.chain.head == log.listed[-1].head
    assert make_reader(make_log()).verify().intact
    assert make_reader(log).verify(noted=log.listed[40].head).intact


@pytest.mark.parametrize("place", [0, 9, 10, 50, 94])
def test_invariant_21_first_edited_entry_is_reported(place: int) -> None:
    log = make_log(*MANY)
    victim = log.listed[place]
    log.listed[place] = evolve(victim, body=victim.body.replace(b"TimeoutError", b"TimeoutErr0r"))
    result = make_reader(log).verify()
    assert (result.intact, result.chain.problem) == (False, ChainProblem.EDITED)
    assert (result.chain.checked, result.broken_at) == (place, place + 1)


def test_invariant_21_deleted_entry_is_detected_as_gap() -> None:
    log = make_log(*MANY)
    del log.listed[30]
    result = make_reader(log).verify()
    assert (result.chain.problem, result.chain.checked) == (ChainProblem.GAP, 30)
    assert result.broken_at == 32


def test_invariant_21_truncated_log_is_detected_by_its_head() -> None:
    log = make_log(*MANY)
    log.claimed = log.listed[-1].head
    del log.listed[-1]
    result = make_reader(log).verify()
    assert (result.intact, result.chain.problem) == (False, ChainProblem.CUT_OFF)
    assert (result.chain.checked, result.broken_at) == (94, None)
    everything_gone = ListedLog([], claimed=log.claimed)
    assert make_reader(everything_gone).verify().chain.problem is ChainProblem.CUT_OFF


def test_invariant_21_rewritten_log_is_detected_by_noted_head() -> None:
    noted = make_log(*MANY).listed[-1].head
    anew = make_log(*MANY[:90], *[create_idempotency_used(n, "k") for n in range(5)])
    assert make_reader(anew).verify().intact
    result = make_reader(anew).verify(noted=noted)
    assert result.chain.problem is ChainProblem.CUT_OFF


def test_unreadable_events_are_counted_in_intact_chain() -> None:
    bodies: list[bytes | AuditEvent] = [*MANY]
    for place in range(3, 60):
        bodies[place] = b'{"event_type":"of another version"}'
    result = make_reader(make_log(*bodies)).verify()
    assert (result.chain.intact, result.intact, result.unreadable) == (True, False, 57)
    assert list_sequences(result.damage) == list(range(4, 24))


def test_misfiled_entries_are_reported() -> None:
    reader = evolve(make_reader(make_log(*MANY)), false_copies=lambda: iter([4, 7]))
    result = reader.verify()
    assert (result.intact, result.misfiled) == (False, [4, 7])


@define
class GrowingLog(ListedLog):
    """A log that others append to whenever its head is asked for, before and after the answer."""

    later: list[ChainEntry] = field(factory=list)

    def read_head(self) -> ChainHead:
        self.listed += self.later[:15]
        claimed = super().read_head()
        self.listed += self.later[15:]
        return claimed


def test_log_growing_during_verify_is_intact() -> None:
    entries = make_log(*MANY).listed
    log = GrowingLog(entries[:60], later=entries[60:])
    result = make_reader(log).verify()
    assert (result.intact, result.chain.checked) == (True, 75)
    assert result.chain.head == entries[74].head


def test_invariant_21_edit_in_entries_appended_during_verify_is_detected() -> None:
    entries = make_log(*MANY).listed
    entries[70] = evolve(entries[70], body=b"{}")
    result = make_reader(GrowingLog(entries[:60], later=entries[60:])).verify()
    assert (result.chain.problem, result.broken_at) == (ChainProblem.EDITED, 71)


def test_invariant_21_entry_beyond_head_is_detected() -> None:
    log = make_log(*MANY)
    log.claimed = log.listed[-2].head
    result = make_reader(log).verify()
    assert (result.intact, result.chain.problem) == (False, ChainProblem.HEAD_MOVED)


@pytest.mark.parametrize("sequence", [0, 10, 95])
def test_invariant_21_moved_head_is_detected(sequence: int) -> None:
    log = make_log(*MANY)
    real = log.listed[sequence - 1].head if sequence else GENESIS
    for moved in (real, evolve(real, hash="f" * 64)):
        log.claimed = moved
        intact = moved == log.listed[-1].head
        expected = None if intact else ChainProblem.HEAD_MOVED
        assert make_reader(log).verify().chain.problem is expected


def test_invariant_21_empty_log_with_wrong_genesis_is_detected() -> None:
    log = ListedLog([], claimed=ChainHead(sequence=0, hash="f" * 64))
    assert make_reader(log).verify().chain.problem is ChainProblem.HEAD_MOVED


# Gaps


def test_recorded_gaps_make_an_intact_log_incomplete() -> None:
    gaps = [create_events_lost(number, events=2) for number in range(25)]
    result = make_reader(make_log(create_retry_attempted(1), *gaps)).verify()
    assert (result.intact, result.complete) == (True, False)
    assert (result.lost, result.lost_lately, len(result.gaps)) == (50, 50, 20)


def test_gaps_up_to_the_noted_head_are_listed_but_accepted() -> None:
    log = make_log(create_events_lost(1, events=2), create_retry_attempted(1))
    noted = log.listed[-1].head
    result = make_reader(log).verify(noted)
    assert (result.complete, result.lost, result.lost_lately, len(result.gaps)) == (True, 2, 0, 1)
    later = make_log(
        create_events_lost(1, events=2), create_retry_attempted(1), create_events_lost(9, events=3)
    )
    result = make_reader(later).verify(noted)
    assert (result.intact, result.complete, result.lost, result.lost_lately) == (True, False, 5, 3)


@pytest.mark.parametrize(
    ("waiting", "shown"),
    [
        (OutboxStatus(name="pg", events=2), "pg: 2 events"),
        (OutboxStatus(name="pg", events=1, damaged=4), "pg: 1 event, 4 damaged"),
        (OutboxStatus(name="pg", lost=create_events_lost(1)), "pg: 0 events, a gap of 1"),
    ],
)
def test_undelivered_events_make_a_log_incomplete(waiting: OutboxStatus, shown: str) -> None:
    reader = evolve(make_reader(make_log()), find_waiting=lambda: [waiting])
    result = reader.verify()
    assert (result.intact, result.complete, result.waiting) == (True, False, [waiting])
    assert (waiting.describe(), waiting.is_empty) == (shown, False)
    assert OutboxStatus(name="pg").is_empty
