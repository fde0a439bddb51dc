"""A sink with an outbox: nothing is lost, repeated or reordered while the sink is away."""

import logging
from collections.abc import Callable, Sequence
from itertools import count

import pytest
from attrs import define, field
from support.audit_events import create_retry_attempted

from tileferry.adapters.memory import ManualClock, MemoryAuditOutbox, MemoryAuditSink
from tileferry.application.audit import AuditTrail
from tileferry.application.audit_delivery import DELIVERY_S, BufferedSink, read_time
from tileferry.application.ports.audit import AuditOutbox, AuditSink, EventGroup
from tileferry.domain.audit import AuditEvent, EventsLost, LossCause
from tileferry.domain.errors import (
    AuditError,
    DatabaseError,
    InvalidStateError,
    InvalidValueError,
    StorageError,
)

LOGGER = logging.getLogger("tests.audit")
AWAY = DatabaseError(problem="restarting", remedy="wait")
FULL_DISK = StorageError(action="write to", path="x", problem="no space", remedy="free some")


@define(kw_only=True, eq=False)
class FaultySink(MemoryAuditSink):
    """A sink that fails when told to, before or after it has stored a group."""

    error: Exception | None = None
    loses_answer: bool = False
    groups: int = field(default=0, init=False)

    def emit_group(self, group: EventGroup) -> None:
        self.groups += 1
        if self.error is not None and not self.loses_answer:
            raise self.error
        super().emit_group(group)
        if self.error is not None:
            raise self.error


@define(kw_only=True, eq=False)
class PlainSink:
    """A sink that does not know groups."""

    name: str = "plain"
    is_away: bool = False
    events: list[AuditEvent] = field(factory=list, init=False)

    def emit(self, events: Sequence[AuditEvent]) -> None:
        if self.is_away:
            raise TimeoutError
        self.events.extend(events)


@define(kw_only=True, eq=False)
class FaultyOutbox(MemoryAuditOutbox):
    """An outbox on a disk that is full when told so."""

    fails_append: bool = False
    fails_loss: bool = False

    def append(self, group: EventGroup) -> bool:
        if self.fails_append:
            raise FULL_DISK
        return super().append(group)

    def record_loss(self, lost: EventsLost) -> None:
        if self.fails_loss:
            raise FULL_DISK
        super().record_loss(lost)


def buffer(sink: AuditSink, outbox: AuditOutbox, clock: ManualClock | None = None) -> BufferedSink:
    numbers = count()
    return BufferedSink(
        sink=sink,
        outbox=outbox,
        clock=clock or ManualClock(),
        new_id=lambda: f"group-{next(numbers)}",
        logger=LOGGER,
    )


def make_event(number: int) -> AuditEvent:
    return create_retry_attempted(number)


def make_events(*numbers: int) -> list[AuditEvent]:
    return [make_event(number) for number in numbers]


def test_available_sink_gets_each_event_and_the_outbox_is_looked_at_once() -> None:
    looks: list[int] = []

    class CountingOutbox(MemoryAuditOutbox):
        def deliver(
            self, send: Callable[[EventGroup], None], *, has_time: Callable[[], bool]
        ) -> bool:
            looks.append(1)
            return super().deliver(send, has_time=has_time)

    sink = FaultySink()
    buffered = buffer(sink, CountingOutbox())
    buffered.emit([])
    for number in range(5):
        buffered.emit([make_event(number)])
    assert list(sink.events) == make_events(*range(5))
    assert (len(looks), buffered.name) == (1, "memory")


@pytest.mark.parametrize("loses_answer", [False, True])
def test_events_of_an_outage_are_delivered_later_in_order_and_once(
    *, loses_answer: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sink, outbox, clock = FaultySink(loses_answer=loses_answer), MemoryAuditOutbox(), ManualClock()
    buffered = buffer(sink, outbox, clock)
    buffered.emit([make_event(0)])
    sink.error = AWAY
    for number in range(1, 6):
        buffered.emit(make_events(number, number + 100))
        clock.advance(0.6)
    assert outbox.read_status().events == 10
    sink.error = None
    clock.advance(30)
    buffered.emit([make_event(6)])
    expected = [number for n in range(1, 6) for number in (n, n + 100)]
    assert list(sink.events) == make_events(0, *expected, 6)
    assert outbox.read_status().is_empty
    kinds = [getattr(record, "kind", None) for record in caplog.records]
    assert kinds.count("audit.buffering") == 1


def test_unavailable_sink_is_called_less_and_less_often() -> None:
    sink, clock = FaultySink(error=AWAY), ManualClock()
    buffered = buffer(sink, MemoryAuditOutbox(), clock)
    for number in range(600):
        buffered.emit([make_event(number)])
        clock.advance(0.1)
    assert sink.groups == 6  # after 0, 1, 3, 7, 15 and 31 s
    assert not buffered.deliver()
    sink.error = None
    assert not buffered.deliver()
    assert buffered.deliver(at_once=True)
    assert buffered.deliver()
    assert list(sink.events) == make_events(*range(600))


def test_events_of_an_earlier_process_come_first() -> None:
    sink, outbox = FaultySink(error=AWAY), MemoryAuditOutbox()
    buffer(sink, outbox).emit([make_event(1)])
    sink.error = None
    numbers = iter(["other-0"])
    later = BufferedSink(
        sink=sink, outbox=outbox, clock=ManualClock(), new_id=lambda: next(numbers), logger=LOGGER
    )
    later.emit([make_event(2)])
    assert list(sink.events) == make_events(1, 2)


def test_long_delivery_is_continued_by_the_next_event() -> None:
    clock, outbox = ManualClock(), MemoryAuditOutbox()

    class SlowSink(FaultySink):
        def emit_group(self, group: EventGroup) -> None:
            clock.advance(DELIVERY_S / 4)
            super().emit_group(group)

    sink = SlowSink(error=AWAY)
    buffered = buffer(sink, outbox, clock)
    for number in range(10):
        buffered.emit([make_event(number)])
    sink.error = None
    clock.advance(30)
    seen: list[int] = []
    for number in range(10, 14):
        buffered.emit([make_event(number)])
        seen.append(len(sink.events))
    assert seen[0] == 4
    assert list(sink.events) == make_events(*range(14))


def test_sink_that_knows_no_groups_gets_events_later() -> None:
    sink, clock = PlainSink(is_away=True), ManualClock()
    trail = AuditTrail(logger=LOGGER, sinks=[buffer(sink, MemoryAuditOutbox(), clock)])
    trail.emit(make_event(1))
    sink.is_away = False
    trail.deliver()
    assert sink.events == []
    trail.deliver(at_once=True)
    assert sink.events == make_events(1)
    assert trail.failures == {}


def test_event_that_its_transaction_has_written_is_not_written_again() -> None:
    sink, other = MemoryAuditSink(), MemoryAuditSink()
    trail = AuditTrail(logger=LOGGER, sinks=[buffer(sink, MemoryAuditOutbox()), other])
    trail.emit(make_event(1), written_to=sink)
    trail.deliver()
    assert (list(sink.events), list(other.events)) == ([], make_events(1))


# Gaps


def find_gaps(sink: MemoryAuditSink) -> list[tuple[int, LossCause]]:
    gaps = [event for event in sink.events if isinstance(event, EventsLost)]
    assert all(gap.sink == sink.name for gap in gaps)
    return [(gap.events, gap.cause) for gap in gaps]


def test_events_beyond_a_full_outbox_become_a_gap_behind_the_kept_ones() -> None:
    sink, outbox, clock = FaultySink(error=AWAY), MemoryAuditOutbox(events_max=2), ManualClock()
    buffered = buffer(sink, outbox, clock)
    for number in (1, 2):
        buffered.emit([make_event(number)])
    for numbers in ([3, 4], [5]):
        with pytest.raises(InvalidStateError, match="the outbox of audit sink memory: is full"):
            buffered.emit(make_events(*numbers))
    lost = outbox.read_status().lost
    assert lost is not None
    assert (lost.events, lost.lost_from, lost.lost_until) == (
        3,
        make_event(3).timestamp,
        make_event(5).timestamp,
    )
    sink.error = None
    clock.advance(30)
    buffered.emit([make_event(6)])
    assert list(sink.events)[:2] == make_events(1, 2)
    assert find_gaps(sink) == [(3, LossCause.OUTBOX_FULL)]
    assert list(sink.events)[3:] == make_events(6)


@pytest.mark.parametrize("fail_closed", [False, True])
def test_full_outbox_stops_the_work_only_if_it_fails_closed(*, fail_closed: bool) -> None:
    sink = FaultySink(error=AWAY)
    buffered = buffer(sink, MemoryAuditOutbox(events_max=1))
    trail = AuditTrail(logger=LOGGER, sinks=[buffered], fail_closed=fail_closed)
    trail.emit(make_event(1))  # kept, so that it is not a failure
    if fail_closed:
        with pytest.raises(AuditError, match="the outbox of audit sink memory: is full"):
            trail.emit(make_event(2))
    else:
        trail.emit(make_event(2))
    assert trail.failures == {"memory": 1}


def test_outbox_that_cannot_be_written_becomes_a_gap() -> None:
    sink, outbox, clock = FaultySink(error=AWAY), FaultyOutbox(fails_append=True), ManualClock()
    buffered = buffer(sink, outbox, clock)
    with pytest.raises(StorageError):
        buffered.emit([make_event(1)])
    sink.error = None
    clock.advance(30)
    buffered.emit([make_event(2)])
    assert find_gaps(sink) == [(1, LossCause.OUTBOX_FAILED)]


def test_gap_that_cannot_be_recorded_is_remembered_and_recorded_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink, clock = FaultySink(error=AWAY), ManualClock()
    outbox = FaultyOutbox(fails_append=True, fails_loss=True)
    buffered = buffer(sink, outbox, clock)
    for number in (1, 2):
        with pytest.raises(StorageError):
            buffered.emit([make_event(number)])
    assert "recorded in memory only" in caplog.text
    outbox.fails_loss, sink.error = False, None
    clock.advance(30)
    buffered.emit([make_event(3)])
    assert find_gaps(sink) == [(2, LossCause.OUTBOX_FAILED)]
    assert list(sink.events)[-1] == make_event(3)


def test_event_that_the_sink_refuses_for_good_becomes_a_gap_and_blocks_nothing() -> None:
    sink, outbox, clock = FaultySink(), MemoryAuditOutbox(), ManualClock()
    buffered = buffer(sink, outbox, clock)
    sink.error = InvalidValueError(field="event", value="x", problem="is too large")
    with pytest.raises(InvalidValueError):
        buffered.emit([make_event(1)])
    sink.error = AWAY
    buffered.emit([make_event(2)])
    sink.error = InvalidValueError(field="event", value="x", problem="is too large")
    clock.advance(30)
    assert not buffered.deliver()  # it refuses the gap as well
    sink.error = None
    clock.advance(30)
    buffered.emit([make_event(3)])
    assert find_gaps(sink) == [(2, LossCause.REFUSED)]
    assert list(sink.events)[-1] == make_event(3)
    assert outbox.read_status().is_empty


def test_clock_outside_the_calendar_prevents_no_event() -> None:
    assert read_time(ManualClock(-1e18)).year == 1970
    sink = FaultySink(error=AWAY)
    buffered = buffer(sink, MemoryAuditOutbox(), ManualClock(1e18))
    buffered.emit([make_event(1)])
    sink.error = None
    assert buffered.deliver(at_once=True)
    assert list(sink.events) == make_events(1)
