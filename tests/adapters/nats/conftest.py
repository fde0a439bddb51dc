"""What the tests of the NATS adapter share."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.audit_events import AT
from support.nats_server import LOGGER, NatsServer, open_connection, run_nats_server
from support.proxies import NatsProxy, create_nats_proxy

from tileferry.adapters.memory import ManualClock, MemoryAuditSink
from tileferry.adapters.nats import (
    JetStreamAuditSink,
    JetStreamIdempotencyStore,
    NatsConnection,
)

OpenStore = Callable[[NatsConnection], JetStreamIdempotencyStore]
OpenSink = Callable[[NatsConnection], JetStreamAuditSink]


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[NatsServer]:
    """Run a server that a test may stop."""
    with run_nats_server(tmp_path / "server") as server:
        yield server


@pytest.fixture
def proxy(nats_server: NatsServer) -> Iterator[NatsProxy]:
    """Stand in front of the shared server."""
    with create_nats_proxy(nats_server.port) as started:
        yield started


@pytest.fixture
def retries() -> MemoryAuditSink:
    """Take the events of retries."""
    return MemoryAuditSink()


@pytest.fixture
def connect_to(retries: MemoryAuditSink) -> Iterator[Callable[..., NatsConnection]]:
    """Connect to any server or proxy; retries are told to ``retries``."""
    with ExitStack() as opened:
        yield lambda end, **options: opened.enter_context(
            open_connection(end.url, retries, **options)
        )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(AT.timestamp())


@pytest.fixture
def open_store(nats_name: str, clock: ManualClock) -> OpenStore:
    """Open the test's own bucket."""
    return lambda connection: JetStreamIdempotencyStore.open(
        connection, clock=clock, logger=LOGGER, bucket=nats_name, accept_weak_durability=True
    )


@pytest.fixture
def open_sink(nats_name: str) -> OpenSink:
    """Open the test's own stream."""
    return lambda connection: JetStreamAuditSink.open(
        connection,
        logger=LOGGER,
        stream=nats_name,
        subject=nats_name,
        accept_weak_durability=True,
    )
