"""The audit log in JetStream: one chain, whatever gets lost, dies or interferes."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from support.audit_events import attempted, every_kind
from support.nats_proxy import Loss, NatsProxy
from support.nats_server import LOGGER, NatsServer, connection_to, manager

from tileferry.adapters.memory import MemoryAuditSink
from tileferry.adapters.nats import JetStreamAuditSink, NatsConnection
from tileferry.adapters.nats.audit import GROUP_MAX
from tileferry.adapters.nats.pages import PAGE_MESSAGES
from tileferry.adapters.nats.session import Session
from tileferry.application.audit import AuditTrail
from tileferry.domain.audit import GENESIS, ChainProblem, next_entry, verify_chain
from tileferry.domain.errors import InvalidValueError, MessagingError, RetryError

Connect = Callable[..., NatsConnection]
OpenSink = Callable[[NatsConnection], JetStreamAuditSink]
COMMIT = b"Nats-Batch-Commit"
"""Stands in the last message of a group."""
ALONE = b"Nats-Expected-Last-Sequence"
"""Stands in a message that comes alone."""


@pytest.fixture
def sink(proxy: NatsProxy, connection_of: Connect, open_sink: OpenSink) -> JetStreamAuditSink:
    """Open a log behind the proxy."""
    return open_sink(connection_of(proxy))


@pytest.fixture
def plain_sink(connect: Connect, open_sink: OpenSink) -> JetStreamAuditSink:
    return open_sink(connect())


def published(sink: JetStreamAuditSink, body: bytes) -> None:
    """Put a message into the stream as a stranger would."""

    async def publish(session: Session) -> None:
        await session.js.publish(f"{sink.subject}.retry_attempt", body)

    sink.connection.ask(publish)


# What gets lost


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("loss", Loss)
def test_a_group_whose_answer_was_lost_is_stored_once(
    loss: Loss,
    group: int,
    proxy: NatsProxy,
    sink: JetStreamAuditSink,
    retries: MemoryAuditSink,
) -> None:
    events = [attempted(number) for number in range(group)]
    sink.emit([attempted(100)])
    proxy.lose(ALONE if group == 1 else COMMIT, loss)
    sink.connection.timeout_s = 1 if loss is Loss.SILENT_ANSWER else 30
    sink.emit(events)
    sink.emit([attempted(101)])
    bodies = [entry.body for entry in sink.entries()]
    expected = [attempted(100), *events, attempted(101)]
    assert bodies == [event.canonical_bytes() for event in expected]
    assert verify_chain(sink.entries(), expected_head=sink.head()).intact
    assert (proxy.losses, len(retries.events)) == (1, 2)


def test_a_group_in_doubt_goes_behind_somebody_elses(
    proxy: NatsProxy, sink: JetStreamAuditSink, plain_sink: JetStreamAuditSink
) -> None:
    sink.emit([attempted(1)])
    plain_sink.emit([attempted(2)])
    proxy.lose(COMMIT, Loss.REQUEST)
    sink.emit([attempted(3), attempted(4)])
    entries = list(sink.entries())
    assert [entry.body for entry in entries] == [
        attempted(number).canonical_bytes() for number in (1, 2, 3, 4)
    ]
    assert verify_chain(entries).intact


def test_of_a_group_beyond_what_the_server_takes_at_once_a_part_may_be_stored(
    proxy: NatsProxy, sink: JetStreamAuditSink
) -> None:
    events = [attempted(number) for number in range(GROUP_MAX + 200)]
    head = GENESIS
    for event in events:
        head = next_entry(head, event.canonical_bytes()).head
    proxy.lose(head.hash.encode(), Loss.REQUEST, times=3)  # the end of the second part
    with pytest.raises(RetryError):
        sink.emit(events)
    assert sink.head().sequence == GROUP_MAX
    sink.emit([attempted(1)])
    assert verify_chain(sink.entries(), expected_head=sink.head()).checked == GROUP_MAX + 1


def test_groups_are_whole_and_none_is_lost_while_the_server_is_killed_again_and_again(
    own_server: NatsServer, connection_of: Connect, open_sink: OpenSink
) -> None:
    sink = open_sink(connection_of(own_server))
    has_ended, confirmed = Event(), set[int]()

    def write() -> int:
        number = 0
        while not has_ended.is_set():
            number += 1
            try:
                sink.emit([attempted(number)] * 20)
            except (MessagingError, RetryError):
                continue
            confirmed.add(number)
        return number

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        for kills in range(1, 6):
            enough = len(confirmed) + 3
            while len(confirmed) < enough:
                assert not writing.done(), writing.exception()
                time.sleep(0.005)
            own_server.restart()
            assert kills == own_server.starts - 1
        has_ended.set()
        attempts = writing.result(30)
    entries = list(sink.entries())
    assert verify_chain(entries, expected_head=sink.head()).intact
    bodies = [entry.body for entry in entries]
    stored = [number for number in range(1, attempts + 1) if bytes_of(number) in bodies]
    assert confirmed <= set(stored)
    # Each at most once, whole, and in the order of writing.
    assert bodies == [bytes_of(number) for number in stored for _ in range(20)]


def bytes_of(number: int) -> bytes:
    return attempted(number).canonical_bytes()


# Who interferes


def test_invariant_21_what_a_stranger_puts_into_the_stream_is_found(
    plain_sink: JetStreamAuditSink,
) -> None:
    plain_sink.emit([attempted(1)])
    published(plain_sink, attempted(2).canonical_bytes())
    plain_sink.emit([attempted(3)])
    report = verify_chain(plain_sink.entries())
    assert (report.problem, report.checked) == (ChainProblem.NOT_LINKED, 1)
    assert plain_sink.head().sequence == 3


def test_the_server_lets_nobody_delete_entries(plain_sink: JetStreamAuditSink) -> None:
    plain_sink.emit(every_kind())

    async def purge(session: Session) -> None:
        await session.js.purge_stream(plain_sink.stream)

    async def delete(session: Session) -> None:
        await session.js.delete_msg(plain_sink.stream, 2)

    for attempt in (purge, delete):
        with pytest.raises(MessagingError, match="not permitted"):
            plain_sink.connection.ask(attempt)
    assert plain_sink.head().sequence == len(every_kind())


def test_a_stream_that_is_made_anew_is_seen_by_whoever_noted_the_head(
    plain_sink: JetStreamAuditSink, connect: Connect, open_sink: OpenSink
) -> None:
    plain_sink.emit([attempted(1), attempted(2)])
    noted = plain_sink.head()

    async def drop(session: Session) -> None:
        await session.js.delete_stream(plain_sink.stream)

    plain_sink.connection.ask(drop)
    open_sink(connect())
    plain_sink.emit([attempted(3)])
    report = verify_chain(plain_sink.entries(), expected_head=noted)
    assert (report.problem, report.checked) == (ChainProblem.CUT_OFF, 1)


def test_the_retries_of_its_own_writing_do_not_lead_back_into_it(
    proxy: NatsProxy, open_sink: OpenSink
) -> None:
    retry = manager()
    with NatsConnection.at(proxy.url, retry=retry) as connection:
        sink = open_sink(connection)
        trail = AuditTrail(logger=logging.getLogger("tests.audit"), sinks=[sink])
        retry.audit = trail
        proxy.lose(ALONE, Loss.REQUEST)
        trail.emit(attempted(1))
        assert [entry.body for entry in sink.entries()] == [bytes_of(1)]
    assert trail.failures == {"jetstream": 2}  # the attempt, and the success after it


def test_each_kind_of_event_has_a_subject_of_its_own(plain_sink: JetStreamAuditSink) -> None:
    plain_sink.emit(every_kind())

    async def subjects(session: Session) -> dict[str, int]:
        info = await session.js.stream_info(plain_sink.stream, subjects_filter=">")
        return info.state.subjects or {}

    assert plain_sink.connection.ask(subjects) == {
        f"{plain_sink.subject}.{event.event_type}": 1 for event in every_kind()
    }


def test_an_event_that_the_server_cannot_take_is_refused_alone(
    plain_sink: JetStreamAuditSink,
) -> None:
    large = attempted(1, correlation_id="x" * 2_000_000)
    with pytest.raises(MessagingError, match="maximum payload exceeded"):
        plain_sink.emit([attempted(1), large])
    plain_sink.emit([attempted(2)])
    assert [entry.body for entry in plain_sink.entries()] == [bytes_of(2)]


def test_pages_go_on_where_a_restarted_server_left_them(
    own_server: NatsServer, connection_of: Connect, open_sink: OpenSink
) -> None:
    sink = open_sink(connection_of(own_server))
    sink.emit([attempted(number) for number in range(600)])
    read = []
    for entry in sink.entries():
        read.append(entry)
        if entry.sequence in {10, 256, 500}:
            own_server.restart()
    assert len(read) == 600
    assert verify_chain(read, expected_head=sink.head()).intact


def test_reading_ends_though_somebody_goes_on_writing(plain_sink: JetStreamAuditSink) -> None:
    plain_sink.emit([attempted(number) for number in range(PAGE_MESSAGES + 10)])
    read = []
    for entry in plain_sink.entries():
        read.append(entry.sequence)
        if entry.sequence % 50 == 1:
            plain_sink.emit([attempted(0)])
    assert read == list(range(1, PAGE_MESSAGES + 11))


# What a stream must promise


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"storage": "memory"}, "is kept in memory only"),
        ({"max_age": 60}, r"drops everything after 60 s \(max_age\)"),
        ({"max_msgs": 5}, r"drops what is old to make room \(discard\)"),
        ({"max_bytes": 5_000}, r"drops what is old to make room \(discard\)"),
        ({"retention": "workqueue"}, r"drops what somebody has read \(retention\)"),
        ({"max_msgs_per_subject": 5}, r"keeps some entries only \(max_msgs_per_subject\)"),
        ({"persist_mode": "async"}, r"confirms what is not written yet \(persist_mode\)"),
        ({"subjects": ["elsewhere.>"]}, "is for other subjects"),
        ({}, r"takes no groups \(allow_atomic; NATS 2.12 and later\)"),
    ],
)
def test_a_stream_that_loses_entries_is_refused(
    connect: Connect,
    open_sink: OpenSink,
    nats_name: str,
    settings: dict[str, Any],
    problem: str,
) -> None:
    connection = connect()

    async def create(session: Session) -> None:
        with_subjects: dict[str, Any] = {"subjects": [f"{nats_name}.>"]} | settings
        if "elsewhere.>" in with_subjects["subjects"]:
            with_subjects["subjects"] = [f"elsewhere_{nats_name}.>"]
        await session.js.add_stream(name=nats_name, **with_subjects)

    connection.ask(create)
    with pytest.raises(MessagingError, match=problem):
        open_sink(connection)


def test_weak_durability_is_warned_of(
    connect: Connect, nats_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    JetStreamAuditSink.open(connect(), logger=LOGGER, stream=nats_name, subject=nats_name)
    kinds = [getattr(record, "kind", None) for record in caplog.records]
    assert "nats.weak_durability" in kinds


@pytest.mark.parametrize("subject", ["", "a..b", "a.>", "a b", "*", None, ".a"])
def test_a_subject_that_is_none_is_refused(connect: Connect, subject: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"JetStreamAuditSink\.subject: cannot be"):
        JetStreamAuditSink.open(connect(), logger=LOGGER, subject=subject)


def test_a_subject_that_another_stream_has_is_a_clear_error(
    plain_sink: JetStreamAuditSink, nats_server: NatsServer
) -> None:
    with (
        connection_to(nats_server.url) as connection,
        pytest.raises(MessagingError, match="the subject belongs to another stream"),
    ):
        JetStreamAuditSink.open(
            connection, logger=LOGGER, stream=f"{plain_sink.stream}_2", subject=plain_sink.subject
        )
