"""What every outbox of audit events must do: keep groups, deliver them in order, record gaps."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from attrs import evolve, frozen
from support.audit_events import (
    create_events_lost,
    create_one_event_of_each_type,
    create_retry_attempted,
    event_time,
)
from support.disk_faults import UNSYNCED

from tileferry.adapters.filesystem import FileAuditOutbox
from tileferry.adapters.memory import MemoryAuditOutbox
from tileferry.application.ports.audit import AuditOutbox, EventGroup
from tileferry.domain.audit import EventsLost


@frozen(kw_only=True)
class OutboxEnv:
    outbox: AuditOutbox
    another: Callable[[], AuditOutbox]
    """Opens the same outbox, as another process would."""
    small: AuditOutbox
    """An outbox with room for two small groups."""


@pytest.fixture(params=["memory", "file"])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> OutboxEnv:
    if request.param == "memory":
        memory = MemoryAuditOutbox()
        return OutboxEnv(
            outbox=memory, another=lambda: memory, small=MemoryAuditOutbox(events_max=2)
        )

    def create(root: str, bytes_max: int) -> FileAuditOutbox:
        return FileAuditOutbox(
            root=tmp_path / root,
            name="postgres-1",
            sink="postgres",
            bytes_max=bytes_max,
            segment_bytes=3_000,
            calls=UNSYNCED,
        )

    return OutboxEnv(
        outbox=create("large", 10**6),
        another=lambda: create("large", 10**6),
        small=create("small", 2_500),
    )


def make_group(number: int, events: int = 1) -> EventGroup:
    return EventGroup(
        group_id=f"group-{number}",
        events=[create_retry_attempted(number)] * events,
        sent_at=event_time(number),
    )


def take_all(outbox: AuditOutbox) -> list[EventGroup]:
    found: list[EventGroup] = []
    assert outbox.deliver(found.append, has_time=lambda: True)
    return found


def test_new_outbox_is_empty(env: OutboxEnv) -> None:
    assert env.outbox.read_status().is_empty
    assert take_all(env.outbox) == []


def test_groups_are_delivered_in_order_and_once(env: OutboxEnv) -> None:
    groups = [make_group(number, events=number % 3 + 1) for number in range(12)]
    for group in groups:
        assert env.outbox.append(group)
    assert env.another().read_status().events == sum(len(group.events) for group in groups)
    assert take_all(env.another()) == groups
    assert take_all(env.outbox) == []
    assert env.outbox.read_status().is_empty


def test_events_of_every_kind_round_trip(env: OutboxEnv) -> None:
    group = evolve(make_group(1), events=create_one_event_of_each_type())
    env.outbox.append(group)
    assert take_all(env.outbox) == [group]


def test_failed_group_stays_first_and_later_ones_go_behind_it(env: OutboxEnv) -> None:
    sent: list[str] = []

    def send(group: EventGroup) -> None:
        if group.group_id == "group-1" and len(sent) < 2:
            sent.append("failed")
            raise TimeoutError
        sent.append(group.group_id)

    for number in range(3):
        env.outbox.append(make_group(number))
    for _ in range(2):
        try:
            env.outbox.deliver(send, has_time=lambda: True)
        except TimeoutError:
            env.outbox.append(make_group(3))
    env.another().deliver(send, has_time=lambda: True)
    assert sent == ["group-0", "failed", "group-1", "group-2", "group-3"]


def test_delivery_stops_when_the_time_is_over_and_continues_later(env: OutboxEnv) -> None:
    groups = [make_group(number) for number in range(7)]
    for group in groups:
        env.outbox.append(group)
    sent: list[EventGroup] = []
    left = iter([True] * 4)
    assert not env.outbox.deliver(sent.append, has_time=lambda: next(left, False))
    assert sent == groups[:4]
    assert env.outbox.read_status().events == 3
    assert take_all(env.another()) == groups[4:]


def test_full_outbox_takes_no_group_until_it_is_delivered(env: OutboxEnv) -> None:
    taken = [env.small.append(make_group(number)) for number in range(4)]
    assert taken == [True, True, False, False]
    assert [group.group_id for group in take_all(env.small)] == ["group-0", "group-1"]
    assert env.small.append(make_group(5))


def test_gap_is_merged_and_delivered_after_the_groups(env: OutboxEnv) -> None:
    env.outbox.record_loss(create_events_lost(1, events=2))
    env.outbox.append(make_group(1))
    env.another().record_loss(create_events_lost(5, events=3))
    status = env.outbox.read_status()
    assert (status.events, status.is_empty) == (1, False)
    assert "1 event, a gap of 5" in status.describe()
    first, second = take_all(env.outbox)
    assert first == make_group(1)
    (lost,) = second.events
    assert isinstance(lost, EventsLost)
    assert (lost.events, lost.lost_from, lost.lost_until) == (5, event_time(1), event_time(5))
    assert take_all(env.outbox) == []
    env.outbox.record_loss(create_events_lost(6, events=1))
    assert take_all(env.outbox)[0].group_id != second.group_id


def test_gap_that_could_not_be_sent_is_kept(env: OutboxEnv) -> None:
    env.outbox.record_loss(create_events_lost(1, events=2))

    def send(_: EventGroup) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        env.outbox.deliver(send, has_time=lambda: True)
    (group,) = take_all(env.another())
    assert group.events == [create_events_lost(1, events=2)]


def test_losses_during_the_delivery_of_the_gap_are_the_next_gap(env: OutboxEnv) -> None:
    env.outbox.record_loss(create_events_lost(1, events=2))
    sent: list[int] = []

    def send(group: EventGroup) -> None:
        (lost,) = group.events
        assert isinstance(lost, EventsLost)
        if not sent:
            env.another().record_loss(create_events_lost(2, events=5))
        sent.append(lost.events)

    while not env.outbox.read_status().is_empty:
        env.outbox.deliver(send, has_time=lambda: True)
    assert sent == [2, 5]


def test_one_delivers_at_a_time_and_others_may_append_meanwhile(env: OutboxEnv) -> None:
    env.outbox.append(make_group(1))
    sent: list[str] = []
    is_sending, may_go_on = Event(), Event()

    def send(group: EventGroup) -> None:
        sent.append(group.group_id)
        is_sending.set()
        assert may_go_on.wait(10)

    with ThreadPoolExecutor(1) as pool:
        delivery = pool.submit(env.outbox.deliver, send, has_time=lambda: True)
        assert is_sending.wait(10)
        other = env.another()
        assert not other.deliver(lambda _: pytest.fail("delivered twice"), has_time=lambda: True)
        assert other.append(make_group(2))
        may_go_on.set()
        assert delivery.result(10)
    assert sent == ["group-1", "group-2"]


def test_concurrent_writers_and_deliverers_lose_and_repeat_nothing(env: OutboxEnv) -> None:
    sent: list[str] = []

    def work(writer: int) -> None:
        outbox = env.another()
        for number in range(10):
            assert outbox.append(make_group(100 * writer + number))
            outbox.deliver(lambda group: sent.append(group.group_id), has_time=lambda: True)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    take_left = take_all(env.outbox)
    numbers = [int(name.split("-")[1]) for name in sent] + [
        int(group.group_id.split("-")[1]) for group in take_left
    ]
    assert sorted(numbers) == [100 * writer + n for writer in range(4) for n in range(10)]
    for writer in range(4):
        mine = [number for number in numbers if number // 100 == writer]
        assert mine == sorted(mine)
