"""What every audit log must do: take events in, chained, and give them back."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from attrs import evolve, frozen
from support.audit_events import attempted, every_kind, used
from support.nats_server import LOGGER

from tileferry.adapters.memory import MemoryAuditSink
from tileferry.adapters.nats import JetStreamAuditSink
from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.application.ports.audit import AuditLog, AuditSink
from tileferry.domain.audit import (
    GENESIS,
    AuditEvent,
    ChainEntry,
    event_from_json,
    verify_chain,
)
from tileferry.domain.errors import InvalidValueError


@frozen(kw_only=True)
class Kept:
    """A sink, and the log that it writes."""

    sink: AuditSink
    log: AuditLog
    another: Callable[[], AuditSink]
    """Makes one more sink that writes the same log, as another process would."""


@pytest.fixture(params=["memory", "postgres", "jetstream"])
def kept(request: pytest.FixtureRequest) -> Kept:
    if request.param == "postgres":
        return kept_in_postgres(request.getfixturevalue("database"))
    if request.param == "jetstream":
        return kept_in_jetstream(request)
    memory = MemoryAuditSink()
    return Kept(sink=memory, log=memory, another=lambda: memory)


def kept_in_postgres(database: Database) -> Kept:
    log = PostgresAuditLog(database=database)
    return Kept(sink=log, log=log, another=lambda: PostgresAuditLog(database=database))


def kept_in_jetstream(request: pytest.FixtureRequest) -> Kept:
    connect, name = request.getfixturevalue("connect"), request.getfixturevalue("nats_name")

    def opened() -> JetStreamAuditSink:
        return JetStreamAuditSink.open(
            connect(), logger=LOGGER, stream=name, subject=name, accept_weak_durability=True
        )

    sink = opened()
    return Kept(sink=sink, log=sink, another=opened)


def events_in(entries: list[ChainEntry]) -> list[AuditEvent]:
    return [event_from_json(json.loads(entry.body)) for entry in entries]


def test_it_is_a_sink_with_a_name(kept: Kept) -> None:
    assert isinstance(kept.sink, AuditSink)
    assert kept.sink.name


def test_a_new_log_is_empty(kept: Kept) -> None:
    assert kept.log.head() == GENESIS
    assert list(kept.log.entries()) == []
    assert list(kept.log.entries_about("corr-1")) == []


def test_spec2_events_of_every_kind_come_back_as_they_were_emitted(kept: Kept) -> None:
    events = every_kind()
    kept.sink.emit(events)
    entries = list(kept.log.entries())
    assert events_in(entries) == events
    assert [entry.body for entry in entries] == [event.canonical_bytes() for event in events]


def test_invariant_21_groups_form_one_chain_from_the_beginning(kept: Kept) -> None:
    kept.sink.emit(every_kind())
    kept.sink.emit([attempted(7)])
    kept.another().emit([attempted(8), attempted(9)])
    entries = list(kept.log.entries())
    assert [entry.sequence for entry in entries] == list(range(1, 10))
    report = verify_chain(entries, expected_head=kept.log.head())
    assert (report.problem, report.checked, report.head) == (None, 9, entries[-1].head)


def test_the_same_event_twice_is_two_entries(kept: Kept) -> None:
    kept.sink.emit([attempted(1), attempted(1)])
    kept.sink.emit([attempted(1)])
    assert len({entry.hash for entry in kept.log.entries()}) == 3


def test_a_group_of_none_changes_nothing(kept: Kept) -> None:
    kept.sink.emit([])
    assert kept.log.head() == GENESIS
    kept.sink.emit([attempted(1)])
    head = kept.log.head()
    kept.sink.emit(())
    assert kept.log.head() == head


def test_a_large_group_is_read_back_whole_and_in_order(kept: Kept) -> None:
    events = [attempted(number) for number in range(1_234)]
    kept.sink.emit(events)
    entries = list(kept.log.entries())
    assert [entry.body for entry in entries] == [event.canonical_bytes() for event in events]
    assert verify_chain(entries, expected_head=kept.log.head()).intact


def test_reading_begins_after_any_entry(kept: Kept) -> None:
    kept.sink.emit([attempted(number) for number in range(5)])
    whole = list(kept.log.entries())
    for after in range(7):
        assert list(kept.log.entries(after=after)) == whole[after:]


def test_all_or_none_of_a_group_is_taken(kept: Kept) -> None:
    unwritable = evolve(attempted(2), additional_context={"bad": float("nan")})
    with pytest.raises(InvalidValueError, match="additional_context"):
        kept.sink.emit([attempted(1), unwritable, attempted(3)])
    assert kept.log.head() == GENESIS
    kept.sink.emit([attempted(4)])
    assert events_in(list(kept.log.entries())) == [attempted(4)]


def test_entries_are_found_by_what_they_tell_of(kept: Kept) -> None:
    kept.sink.emit(every_kind())
    kept.sink.emit([attempted(1), used(8, "key-3")])
    found = {
        subject: [entry.sequence for entry in kept.log.entries_about(subject)]
        for subject in ("corr-1", "key-3", "run 7", "sat/15/1/2", "trace-1", "corr", "")
    }
    assert found == {
        "corr-1": [1, 3, 4, 7],
        "key-3": [3, 8],
        "run 7": [5],
        "sat/15/1/2": [6],
        "trace-1": [],
        "corr": [],
        "": [],
    }
    whole = list(kept.log.entries())
    assert list(kept.log.entries_about("key-3")) == [whole[2], whole[7]]


def test_an_entry_that_tells_of_a_thing_twice_is_given_once(kept: Kept) -> None:
    kept.sink.emit([used(1, "same", correlation_id="same")])
    assert [entry.sequence for entry in kept.log.entries_about("same")] == [1]


ODD = ["a\x00b", "a\\0b", "a\\\\0b", "{", '"', "', (", "☁ é", "e\u0301", "x" * 20_000, " "]


def test_anything_may_be_a_correlation_id_or_a_key(kept: Kept) -> None:
    for number, odd in enumerate(ODD):
        kept.sink.emit([attempted(1, correlation_id=odd), used(2, odd), attempted(3)])
        found = [entry.sequence for entry in kept.log.entries_about(odd)]
        assert found == [3 * number + 1, 3 * number + 2], odd
    assert verify_chain(kept.log.entries()).intact


def test_invariant_19_many_writers_make_one_chain_without_gaps(kept: Kept) -> None:
    def write(number: int) -> None:
        sink = kept.sink if number % 2 else kept.another()
        for group in range(5):
            base = 1_000 * number + 10 * group
            sink.emit([attempted(base), attempted(base + 1), attempted(base + 2)])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    entries = list(kept.log.entries())
    assert [entry.sequence for entry in entries] == list(range(1, 121))
    assert verify_chain(entries, expected_head=kept.log.head()).intact
    groups = [
        int(event.correlation_id.split("-")[1])
        for event in events_in(entries)
        if event.correlation_id
    ]
    together = [later - earlier for earlier, later in pairwise(groups)]
    # Entries of one group stand beside each other, and those of one writer in their order.
    assert [together[at : at + 2] for at in range(0, 120, 3)] == [[1, 1]] * 40
    for number in range(8):
        mine = [group for group in groups if group // 1_000 == number]
        assert mine == sorted(mine)
