"""Stores of idempotency records, each with a time that a test can make pass."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from attrs import frozen

from support.audit_events import AT
from support.idempotency_rows import make_older
from support.nats_server import LOGGER
from tileferry.adapters.memory import ManualClock, MemoryAuditSink, MemoryIdempotencyStore
from tileferry.adapters.nats import JetStreamIdempotencyStore
from tileferry.adapters.postgres import Database, PostgresAuditLog, PostgresIdempotencyStore
from tileferry.application.ports.audit import AuditLog
from tileferry.application.ports.idempotency import IdempotencyStore
from tileferry.domain.idempotency import IdempotencyRecord

SECOND = timedelta(seconds=1)


@frozen(kw_only=True)
class Kept:
    """A store, and how time passes for it.

    ``pass_time`` makes everything that the store holds so much older. A store whose time cannot be
    moved may sleep there, and have a short lease and keep; all tests take theirs from here.
    """

    store: IdempotencyStore
    pass_time: Callable[[timedelta], None]
    another: Callable[[], IdempotencyStore]
    """Opens the same store once more, as another process would."""
    log: AuditLog | None = None
    """Where the store's ``audit_sink`` writes, if it has one."""
    lease: timedelta = 25 * SECOND
    keep: timedelta = 55 * SECOND
    step: timedelta = 10 * SECOND
    """No sum of steps ends near a lease or a keep, so that real time may pass beside."""


def in_memory(sink: MemoryAuditSink | None = None) -> Kept:
    clock = ManualClock(AT.timestamp())
    memory = MemoryIdempotencyStore(clock=clock, audit_sink=sink)
    return Kept(
        store=memory,
        pass_time=lambda passed: clock.pass_time(passed.total_seconds()),
        another=lambda: memory,
        log=sink,
    )


def in_postgres(database: Database) -> Kept:
    log = PostgresAuditLog(database=database)
    return Kept(
        store=PostgresIdempotencyStore(database=database, audit_sink=log),
        pass_time=partial(make_older, database),
        another=lambda: PostgresIdempotencyStore(database=database, audit_sink=log),
        log=log,
    )


def in_jetstream(request: pytest.FixtureRequest) -> Kept:
    connect, name = request.getfixturevalue("connect"), request.getfixturevalue("nats_name")
    clock = ManualClock(AT.timestamp())

    def opened() -> JetStreamIdempotencyStore:
        return JetStreamIdempotencyStore.open(
            connect(), clock=clock, logger=LOGGER, bucket=name, accept_weak_durability=True
        )

    return Kept(
        store=opened(),
        pass_time=lambda passed: clock.pass_time(passed.total_seconds()),
        another=opened,
    )


def claimed(
    kept: Kept,
    key: str = "k",
    *,
    owner: str = "me",
    fingerprint: str = "f",
    store: IdempotencyStore | None = None,
) -> IdempotencyRecord:
    return (store or kept.store).claim(key, fingerprint=fingerprint, owner=owner, lease=kept.lease)


NO_DURATIONS: list[Any] = [timedelta(0), -SECOND, timedelta(days=4_000), 30]
