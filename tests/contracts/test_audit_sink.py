"""What every audit log must do: take events in, chained, and give them back."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from attrs import evolve, frozen
from support.audit_events import (
    create_idempotency_used,
    create_one_event_of_each_type,
    create_retry_attempted,
)
from support.nats_server import LOGGER

from tileferry.adapters.memory import MemoryAuditSink
from tileferry.adapters.nats import JetStreamAuditSink
from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.application.ports.audit import AuditLog, AuditSink, EventGroup, GroupSink
from tileferry.domain.audit import (
    GENESIS,
    AuditEvent,
    ChainEntry,
    event_from_json,
    verify_chain,
)
from tileferry.domain.errors import InvalidValueError


@frozen(kw_only=True)
class AuditEnv:
    """A sink, and the log that it writes."""

    sink: AuditSink
    log: AuditLog
    another: Callable[[], AuditSink]
    """Makes one more sink that writes the same log, as another process would."""


@pytest.fixture(params=["memory", "postgres", "jetstream"])
def audit_env(request: pytest.FixtureRequest) -> AuditEnv:
    if request.param == "postgres":
        return postgres_audit_env(request.getfixturevalue("database"))
    if request.param == "jetstream":
        return jetstream_audit_env(request)
    memory = MemoryAuditSink()
    return AuditEnv(sink=memory, log=memory, another=lambda: memory)


def postgres_audit_env(database: Database) -> AuditEnv:
    log = PostgresAuditLog(database=database)
    return AuditEnv(sink=log, log=log, another=lambda: PostgresAuditLog(database=database))


def jetstream_audit_env(request: pytest.FixtureRequest) -> AuditEnv:
    connect, name = request.getfixturevalue("connect"), request.getfixturevalue("nats_name")

    def opened() -> JetStreamAuditSink:
        return JetStreamAuditSink.open(
            connect(), logger=LOGGER, stream=name, subject=name, accept_weak_durability=True
        )

    sink = opened()
    return AuditEnv(sink=sink, log=sink, another=opened)


def decode_events(entries: list[ChainEntry]) -> list[AuditEvent]:
    return [event_from_json(json.loads(entry.body)) for entry in entries]


def test_sink_implements_port_and_has_name(audit_env: AuditEnv) -> None:
    assert isinstance(audit_env.sink, AuditSink)
    assert audit_env.sink.name


def test_new_log_is_empty(audit_env: AuditEnv) -> None:
    assert audit_env.log.read_head() == GENESIS
    assert list(audit_env.log.iter_entries()) == []
    assert list(audit_env.log.find_entries("corr-1")) == []


def test_spec2_events_of_every_kind_round_trip(audit_env: AuditEnv) -> None:
    events = create_one_event_of_each_type()
    audit_env.sink.emit(events)
    entries = list(audit_env.log.iter_entries())
    assert decode_events(entries) == events
    assert [entry.body for entry in entries] == [event.canonical_bytes() for event in events]


def test_invariant_21_groups_form_one_chain_from_genesis(audit_env: AuditEnv) -> None:
    first = create_one_event_of_each_type()
    audit_env.sink.emit(first)
    audit_env.sink.emit([create_retry_attempted(7)])
    audit_env.another().emit([create_retry_attempted(8), create_retry_attempted(9)])
    entries = list(audit_env.log.iter_entries())
    assert [entry.sequence for entry in entries] == list(range(1, len(first) + 4))
    report = verify_chain(entries, expected_head=audit_env.log.read_head())
    assert (report.problem, report.checked, report.head) == (None, len(entries), entries[-1].head)


def test_same_event_twice_is_two_entries(audit_env: AuditEnv) -> None:
    audit_env.sink.emit([create_retry_attempted(1), create_retry_attempted(1)])
    audit_env.sink.emit([create_retry_attempted(1)])
    assert len({entry.hash for entry in audit_env.log.iter_entries()}) == 3


def test_empty_group_changes_nothing(audit_env: AuditEnv) -> None:
    audit_env.sink.emit([])
    assert audit_env.log.read_head() == GENESIS
    audit_env.sink.emit([create_retry_attempted(1)])
    head = audit_env.log.read_head()
    audit_env.sink.emit(())
    assert audit_env.log.read_head() == head


def test_large_group_is_read_back_in_order(audit_env: AuditEnv) -> None:
    events = [create_retry_attempted(number) for number in range(1_234)]
    audit_env.sink.emit(events)
    entries = list(audit_env.log.iter_entries())
    assert [entry.body for entry in entries] == [event.canonical_bytes() for event in events]
    assert verify_chain(entries, expected_head=audit_env.log.read_head()).intact


def test_entries_can_be_read_after_any_sequence(audit_env: AuditEnv) -> None:
    audit_env.sink.emit([create_retry_attempted(number) for number in range(5)])
    whole = list(audit_env.log.iter_entries())
    for after in range(7):
        assert list(audit_env.log.iter_entries(after=after)) == whole[after:]


def test_group_is_appended_atomically(audit_env: AuditEnv) -> None:
    unwritable = evolve(create_retry_attempted(2), additional_context={"bad": float("nan")})
    with pytest.raises(InvalidValueError, match="additional_context"):
        audit_env.sink.emit([create_retry_attempted(1), unwritable, create_retry_attempted(3)])
    assert audit_env.log.read_head() == GENESIS
    audit_env.sink.emit([create_retry_attempted(4)])
    assert decode_events(list(audit_env.log.iter_entries())) == [create_retry_attempted(4)]


def test_entries_are_found_by_subject(audit_env: AuditEnv) -> None:
    first = create_one_event_of_each_type()
    audit_env.sink.emit(first)
    audit_env.sink.emit([create_retry_attempted(1), create_idempotency_used(8, "key-3")])
    found = {
        subject: [entry.sequence for entry in audit_env.log.find_entries(subject)]
        for subject in ("corr-1", "key-3", "run 7", "sat/15/1/2", "trace-1", "corr", "")
    }
    assert found == {
        "corr-1": [1, 3, 4, len(first) + 1],
        "key-3": [3, len(first) + 2],
        "run 7": [5],
        "sat/15/1/2": [6],
        "trace-1": [],
        "corr": [],
        "": [],
    }
    whole = list(audit_env.log.iter_entries())
    assert list(audit_env.log.find_entries("key-3")) == [whole[2], whole[-1]]


def test_entry_with_repeated_subject_is_returned_once(audit_env: AuditEnv) -> None:
    audit_env.sink.emit([create_idempotency_used(1, "same", correlation_id="same")])
    assert [entry.sequence for entry in audit_env.log.find_entries("same")] == [1]


ODD = ["a\x00b", "a\\0b", "a\\\\0b", "{", '"', "', (", "☁ é", "e\u0301", "x" * 20_000, " "]


def test_any_text_can_be_correlation_id_or_key(audit_env: AuditEnv) -> None:
    for number, odd in enumerate(ODD):
        audit_env.sink.emit(
            [
                create_retry_attempted(1, correlation_id=odd),
                create_idempotency_used(2, odd),
                create_retry_attempted(3),
            ]
        )
        found = [entry.sequence for entry in audit_env.log.find_entries(odd)]
        assert found == [3 * number + 1, 3 * number + 2], odd
    assert verify_chain(audit_env.log.iter_entries()).intact


def test_group_that_is_sent_again_is_stored_once(audit_env: AuditEnv) -> None:
    other = audit_env.another()
    assert isinstance(audit_env.sink, GroupSink)
    assert isinstance(other, GroupSink)
    now = datetime.now(UTC)
    groups = [
        EventGroup(group_id=f"host:1:{number}", events=[create_retry_attempted(number)] * 2)
        for number in range(4)
    ]
    for group in groups[:3]:
        audit_env.sink.emit_group(group)
    for group in groups:
        other.emit_group(evolve(group, sent_at=now))
        audit_env.sink.emit_group(evolve(group, sent_at=now))
    events = decode_events(list(audit_env.log.iter_entries()))
    assert events == [event for group in groups for event in group.events]
    assert verify_chain(audit_env.log.iter_entries()).intact


def test_invariant_19_concurrent_writers_form_one_chain_without_gaps(audit_env: AuditEnv) -> None:
    def write(number: int) -> None:
        sink = audit_env.sink if number % 2 else audit_env.another()
        for group in range(5):
            base = 1_000 * number + 10 * group
            sink.emit(
                [
                    create_retry_attempted(base),
                    create_retry_attempted(base + 1),
                    create_retry_attempted(base + 2),
                ]
            )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    entries = list(audit_env.log.iter_entries())
    assert [entry.sequence for entry in entries] == list(range(1, 121))
    assert verify_chain(entries, expected_head=audit_env.log.read_head()).intact
    groups = [
        int(event.correlation_id.split("-")[1])
        for event in decode_events(entries)
        if event.correlation_id
    ]
    together = [later - earlier for earlier, later in pairwise(groups)]
    # Entries of one group stand beside each other, and those of one writer in their order.
    assert [together[at : at + 2] for at in range(0, 120, 3)] == [[1, 1]] * 40
    for number in range(8):
        mine = [group for group in groups if group // 1_000 == number]
        assert mine == sorted(mine)
