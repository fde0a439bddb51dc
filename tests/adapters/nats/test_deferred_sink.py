"""An audit sink that connects at its first event, and pauses after a failure."""

from collections.abc import Callable

import pytest
from support.audit_events import create_retry_attempted
from support.nats_server import LOGGER, NatsServer, open_connection

from tileferry.adapters.memory import ManualClock
from tileferry.adapters.nats import DeferredAuditSink, JetStreamAuditSink, NatsConnection
from tileferry.domain.errors import MessagingError, RetryError


def test_sink_opens_its_stream_at_the_first_event(
    connect: Callable[[], NatsConnection], nats_name: str
) -> None:
    opened: list[JetStreamAuditSink] = []

    def open_sink() -> JetStreamAuditSink:
        opened.append(
            JetStreamAuditSink.open(
                connect(), logger=LOGGER, stream=nats_name, subject=f"audit.{nats_name}"
            )
        )
        return opened[-1]

    sink = DeferredAuditSink(open_sink=open_sink, clock=ManualClock())
    assert opened == []
    for number in range(3):
        sink.emit([create_retry_attempted(number)])
    assert len(opened) == 1
    assert opened[0].read_head().sequence == 3


def test_unreachable_server_delays_work_once_per_pause(own_server: NatsServer) -> None:
    clock, attempts = ManualClock(), list[int]()
    connection = open_connection(own_server.url)

    def open_sink() -> JetStreamAuditSink:
        attempts.append(1)
        return JetStreamAuditSink.open(connection, logger=LOGGER)

    sink = DeferredAuditSink(open_sink=open_sink, clock=clock)
    with connection:
        own_server.stop()
        with pytest.raises((MessagingError, RetryError)):
            sink.emit([create_retry_attempted(1)])
        for _ in range(100):
            with pytest.raises(MessagingError, match=r"paused after a failure: .*cannot connect"):
                sink.emit([create_retry_attempted(1)])
        assert len(attempts) == 1
        own_server.start()
        clock.advance(60)
        sink.emit([create_retry_attempted(2)])
        assert len(attempts) == 2
