"""The audit log in JetStream: one chain, whatever gets lost, dies or interferes."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
from attrs import evolve
from support.audit_events import create_one_event_of_each_type, create_retry_attempted
from support.disk_faults import UNSYNCED
from support.nats_server import LOGGER, NatsServer, create_retry_manager, open_connection
from support.proxies import Loss, NatsProxy

from tileferry.adapters.filesystem import FileAuditOutbox, find_waiting
from tileferry.adapters.memory import ManualClock, MemoryAuditSink
from tileferry.adapters.nats import DeferredAuditSink, JetStreamAuditSink, NatsConnection
from tileferry.adapters.nats.audit import GROUP_MAX
from tileferry.adapters.nats.session import NatsSession
from tileferry.adapters.nats.streams import PAGE_MESSAGES
from tileferry.application.audit import AuditTrail
from tileferry.application.audit_delivery import BufferedSink
from tileferry.application.ports.audit import EventGroup
from tileferry.domain.audit import GENESIS, ChainProblem, build_next_entry, verify_chain
from tileferry.domain.errors import InvalidValueError, MessagingError, RetryError

Connect = Callable[..., NatsConnection]
OpenSink = Callable[[NatsConnection], JetStreamAuditSink]
COMMIT = b"Nats-Batch-Commit"
"""Stands in the last message of a group."""
ALONE = b"Nats-Expected-Last-Sequence"
"""Stands in a message that comes alone."""


@pytest.fixture
def sink(proxy: NatsProxy, connect_to: Connect, open_sink: OpenSink) -> JetStreamAuditSink:
    """Open a log behind the proxy."""
    return open_sink(connect_to(proxy))


@pytest.fixture
def plain_sink(connect: Connect, open_sink: OpenSink) -> JetStreamAuditSink:
    return open_sink(connect())


def publish_raw(sink: JetStreamAuditSink, body: bytes) -> None:
    """Put a message into the stream as a stranger would."""

    async def publish(session: NatsSession) -> None:
        await session.js.publish(f"{sink.subject}.retry_attempt", body)

    sink.connection.ask(publish)


# What gets lost


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("loss", Loss)
def test_batch_with_a_lost_response_is_stored_once(
    loss: Loss,
    group: int,
    proxy: NatsProxy,
    sink: JetStreamAuditSink,
    retries: MemoryAuditSink,
) -> None:
    events = [create_retry_attempted(number) for number in range(group)]
    sink.emit([create_retry_attempted(100)])
    proxy.lose(ALONE if group == 1 else COMMIT, loss)
    sink.connection.timeout_s = 1 if loss is Loss.SILENT_ANSWER else 30
    sink.emit(events)
    sink.emit([create_retry_attempted(101)])
    bodies = [entry.body for entry in sink.iter_entries()]
    expected = [create_retry_attempted(100), *events, create_retry_attempted(101)]
    assert bodies == [event.canonical_bytes() for event in expected]
    assert verify_chain(sink.iter_entries(), expected_head=sink.read_head()).intact
    assert (proxy.losses, len(retries.events)) == (1, 2)


def test_unconfirmed_batch_is_appended_after_another_writers(
    proxy: NatsProxy, sink: JetStreamAuditSink, plain_sink: JetStreamAuditSink
) -> None:
    sink.emit([create_retry_attempted(1)])
    plain_sink.emit([create_retry_attempted(2)])
    proxy.lose(COMMIT, Loss.REQUEST)
    sink.emit([create_retry_attempted(3), create_retry_attempted(4)])
    entries = list(sink.iter_entries())
    assert [entry.body for entry in entries] == [
        create_retry_attempted(number).canonical_bytes() for number in (1, 2, 3, 4)
    ]
    assert verify_chain(entries).intact


def test_batch_over_the_server_limit_may_be_stored_in_part(
    proxy: NatsProxy, sink: JetStreamAuditSink
) -> None:
    events = [create_retry_attempted(number) for number in range(GROUP_MAX + 200)]
    head = GENESIS
    for event in events:
        head = build_next_entry(head, event.canonical_bytes()).head
    proxy.lose(head.hash.encode(), Loss.REQUEST, times=3)  # the end of the second part
    with pytest.raises(RetryError):
        sink.emit(events)
    assert sink.read_head().sequence == GROUP_MAX
    sink.emit([create_retry_attempted(1)])
    assert (
        verify_chain(sink.iter_entries(), expected_head=sink.read_head()).checked == GROUP_MAX + 1
    )


def test_batches_stay_atomic_and_confirmed_ones_survive_server_kills(
    own_server: NatsServer, connect_to: Connect, open_sink: OpenSink
) -> None:
    sink = open_sink(connect_to(own_server))
    has_ended, confirmed = Event(), set[int]()

    def write() -> int:
        number = 0
        while not has_ended.is_set():
            number += 1
            try:
                sink.emit([create_retry_attempted(number)] * 20)
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
    entries = list(sink.iter_entries())
    assert verify_chain(entries, expected_head=sink.read_head()).intact
    bodies = [entry.body for entry in entries]
    stored = [number for number in range(1, attempts + 1) if encode_event(number) in bodies]
    assert confirmed <= set(stored)
    # Each at most once, whole, and in the order of writing.
    assert bodies == [encode_event(number) for number in stored for _ in range(20)]


def encode_event(number: int) -> bytes:
    return create_retry_attempted(number).canonical_bytes()


@pytest.mark.parametrize("arrived", [True, False])
def test_group_without_an_answer_is_stored_once_when_it_is_sent_again(
    proxy: NatsProxy, sink: JetStreamAuditSink, plain_sink: JetStreamAuditSink, *, arrived: bool
) -> None:
    sink.emit([create_retry_attempted(1)])
    group = EventGroup(group_id="g", events=[create_retry_attempted(2), create_retry_attempted(3)])
    proxy.lose(COMMIT, Loss.ANSWER if arrived else Loss.REQUEST, times=9)
    with pytest.raises(RetryError):
        sink.emit_group(group)
    proxy.lose(COMMIT, Loss.REQUEST, times=0)
    sent_again = evolve(group, sent_at=datetime.now(UTC))
    for _ in range(2):
        plain_sink.emit([create_retry_attempted(4)])
        plain_sink.emit_group(sent_again)
    bodies = [entry.body for entry in plain_sink.iter_entries()]
    order = (1, 2, 3, 4, 4) if arrived else (1, 4, 2, 3, 4)
    assert bodies == [create_retry_attempted(number).canonical_bytes() for number in order]


def test_group_in_several_batches_is_completed(
    sink: JetStreamAuditSink, plain_sink: JetStreamAuditSink
) -> None:
    events = [create_retry_attempted(number) for number in range(GROUP_MAX + 2)]
    group = EventGroup(group_id="g", events=events, sent_at=datetime.now(UTC))
    sink.emit_group(evolve(group, events=events[:GROUP_MAX]))
    plain_sink.emit_group(group)
    bodies = [entry.body for entry in plain_sink.iter_entries()]
    assert bodies == [event.canonical_bytes() for event in events]


def test_group_sent_long_ago_is_looked_for_from_then_on(plain_sink: JetStreamAuditSink) -> None:
    now = datetime.now(UTC)
    for number, age_h in enumerate((0, 50, 3, 2.5, 0)):
        group = EventGroup(
            group_id=f"g{number}",
            events=[create_retry_attempted(number)],
            sent_at=now - timedelta(hours=age_h),
        )
        plain_sink.emit_group(evolve(group, sent_at=None))
        plain_sink.emit_group(group)
    assert plain_sink.read_head().sequence == 5


def test_buffered_events_of_a_killed_server_arrive_in_order_and_once(
    own_server: NatsServer, connect_to: Connect, open_sink: OpenSink, tmp_path: Path
) -> None:
    connection = connect_to(own_server)
    open_sink(connection)
    clock = ManualClock()
    sink = BufferedSink(
        sink=DeferredAuditSink(
            open_sink=lambda: open_sink(connection),
            clock=clock,
            probe=connection.check_jetstream,
        ),
        outbox=FileAuditOutbox(root=tmp_path, name="nats-1", sink="jetstream", calls=UNSYNCED),
        clock=clock,
        new_id=lambda: uuid4().hex,
        logger=LOGGER,
    )
    number = 0
    for _ in range(3):
        for is_up in (True, False):
            if not is_up:
                own_server.kill()
            for _ in range(4):
                number += 1
                sink.emit([create_retry_attempted(number)] * 2)
                clock.advance(10)
        own_server.start()
    assert find_waiting(tmp_path)[0].events > 0
    assert sink.deliver(at_once=True)
    log = open_sink(connection)
    bodies = [entry.body for entry in log.iter_entries()]
    assert bodies == [encode_event(n) for n in range(1, number + 1) for _ in range(2)]
    assert verify_chain(log.iter_entries(), expected_head=log.read_head()).intact


# Who interferes


def test_invariant_21_foreign_message_in_the_stream_is_detected(
    plain_sink: JetStreamAuditSink,
) -> None:
    plain_sink.emit([create_retry_attempted(1)])
    publish_raw(plain_sink, create_retry_attempted(2).canonical_bytes())
    plain_sink.emit([create_retry_attempted(3)])
    report = verify_chain(plain_sink.iter_entries())
    assert (report.problem, report.checked) == (ChainProblem.NOT_LINKED, 1)
    assert plain_sink.read_head().sequence == 3


def test_server_refuses_to_delete_entries(plain_sink: JetStreamAuditSink) -> None:
    plain_sink.emit(create_one_event_of_each_type())

    async def purge(session: NatsSession) -> None:
        await session.js.purge_stream(plain_sink.stream)

    async def delete(session: NatsSession) -> None:
        await session.js.delete_msg(plain_sink.stream, 2)

    for attempt in (purge, delete):
        with pytest.raises(MessagingError, match="not permitted"):
            plain_sink.connection.ask(attempt)
    assert plain_sink.read_head().sequence == len(create_one_event_of_each_type())


def test_recreated_stream_is_detected_by_the_expected_head(
    plain_sink: JetStreamAuditSink, connect: Connect, open_sink: OpenSink
) -> None:
    plain_sink.emit([create_retry_attempted(1), create_retry_attempted(2)])
    noted = plain_sink.read_head()

    async def drop(session: NatsSession) -> None:
        await session.js.delete_stream(plain_sink.stream)

    plain_sink.connection.ask(drop)
    open_sink(connect())
    plain_sink.emit([create_retry_attempted(3)])
    report = verify_chain(plain_sink.iter_entries(), expected_head=noted)
    assert (report.problem, report.checked) == (ChainProblem.CUT_OFF, 1)


def test_retries_of_audit_writes_are_not_audited_recursively(
    proxy: NatsProxy, open_sink: OpenSink
) -> None:
    retry = create_retry_manager()
    with NatsConnection.from_url(proxy.url, retry=retry) as connection:
        sink = open_sink(connection)
        trail = AuditTrail(logger=logging.getLogger("tests.audit"), sinks=[sink])
        retry.audit = trail
        proxy.lose(ALONE, Loss.REQUEST)
        trail.emit(create_retry_attempted(1))
        assert [entry.body for entry in sink.iter_entries()] == [encode_event(1)]
    assert trail.failures == {"jetstream": 2}  # the attempt, and the success after it


def test_each_event_type_has_its_own_subject(plain_sink: JetStreamAuditSink) -> None:
    plain_sink.emit(create_one_event_of_each_type())

    async def subjects(session: NatsSession) -> dict[str, int]:
        info = await session.js.stream_info(plain_sink.stream, subjects_filter=">")
        return info.state.subjects or {}

    assert plain_sink.connection.ask(subjects) == {
        f"{plain_sink.subject}.{event.event_type}": 1 for event in create_one_event_of_each_type()
    }


def test_oversized_event_is_rejected_and_later_events_are_stored(
    plain_sink: JetStreamAuditSink,
) -> None:
    large = create_retry_attempted(1, correlation_id="x" * 2_000_000)
    for events in ([large], [create_retry_attempted(1), large]):
        with pytest.raises(InvalidValueError, match="is larger than a message of the NATS server"):
            plain_sink.emit(events)
    plain_sink.emit([create_retry_attempted(2)])
    assert [entry.body for entry in plain_sink.iter_entries()] == [encode_event(2)]


def test_reading_continues_after_server_restarts(
    own_server: NatsServer, connect_to: Connect, open_sink: OpenSink
) -> None:
    sink = open_sink(connect_to(own_server))
    sink.emit([create_retry_attempted(number) for number in range(600)])
    read = []
    for entry in sink.iter_entries():
        read.append(entry)
        if entry.sequence in {10, 256, 500}:
            own_server.restart()
    assert len(read) == 600
    assert verify_chain(read, expected_head=sink.read_head()).intact


def test_reading_ends_while_another_writer_appends(plain_sink: JetStreamAuditSink) -> None:
    plain_sink.emit([create_retry_attempted(number) for number in range(PAGE_MESSAGES + 10)])
    read = []
    for entry in plain_sink.iter_entries():
        read.append(entry.sequence)
        if entry.sequence % 50 == 1:
            plain_sink.emit([create_retry_attempted(0)])
    assert read == list(range(1, PAGE_MESSAGES + 11))


# What a stream must promise


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"storage": "memory"}, "is stored in memory only"),
        ({"max_age": 60}, r"drops messages after 60 s \(max_age\)"),
        ({"max_msgs": 5}, r"drops old messages to make room \(discard\)"),
        ({"max_bytes": 5_000}, r"drops old messages to make room \(discard\)"),
        ({"retention": "workqueue"}, r"drops messages that were read \(retention\)"),
        ({"max_msgs_per_subject": 5}, r"limits the entries per subject \(max_msgs_per_subject\)"),
        ({"persist_mode": "async"}, r"confirms messages before they are written \(persist_mode\)"),
        ({"subjects": ["elsewhere.>"]}, "has other subjects than"),
        ({}, r"does not accept atomic batches \(allow_atomic; NATS 2.12 and later\)"),
    ],
)
def test_stream_that_may_lose_entries_is_rejected(
    connect: Connect,
    open_sink: OpenSink,
    nats_name: str,
    settings: dict[str, Any],
    problem: str,
) -> None:
    connection = connect()

    async def create(session: NatsSession) -> None:
        with_subjects: dict[str, Any] = {"subjects": [f"{nats_name}.>"]} | settings
        if "elsewhere.>" in with_subjects["subjects"]:
            with_subjects["subjects"] = [f"elsewhere_{nats_name}.>"]
        await session.js.add_stream(name=nats_name, **with_subjects)

    connection.ask(create)
    with pytest.raises(MessagingError, match=problem):
        open_sink(connection)


def test_weak_durability_is_logged_as_a_warning(
    connect: Connect, nats_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    JetStreamAuditSink.open(connect(), logger=LOGGER, stream=nats_name, subject=nats_name)
    kinds = [getattr(record, "kind", None) for record in caplog.records]
    assert "nats.weak_durability" in kinds


@pytest.mark.parametrize("subject", ["", "a..b", "a.>", "a b", "*", None, ".a"])
def test_invalid_subject_is_rejected(connect: Connect, subject: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"JetStreamAuditSink\.subject: cannot be"):
        JetStreamAuditSink.open(connect(), logger=LOGGER, subject=subject)


def test_subject_owned_by_another_stream_is_rejected(
    plain_sink: JetStreamAuditSink, nats_server: NatsServer
) -> None:
    with (
        open_connection(nats_server.url) as connection,
        pytest.raises(MessagingError, match="the subject belongs to another stream"),
    ):
        JetStreamAuditSink.open(
            connection, logger=LOGGER, stream=f"{plain_sink.stream}_2", subject=plain_sink.subject
        )
