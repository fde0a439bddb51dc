"""Stores of idempotency records, each with a time that a test can make pass."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from attrs import frozen

from support.audit_events import AT
from support.nats_server import LOGGER
from support.postgres_idempotency import age_records
from tileferry.adapters.memory import ManualClock, MemoryAuditSink, MemoryIdempotencyStore
from tileferry.adapters.nats import JetStreamIdempotencyStore
from tileferry.adapters.postgres import Database, PostgresAuditLog, PostgresIdempotencyStore
from tileferry.application.ports.audit import AuditLog
from tileferry.application.ports.idempotency import IdempotencyStore
from tileferry.domain.idempotency import IdempotencyRecord

SECOND = timedelta(seconds=1)


@frozen(kw_only=True)
class IdempotencyEnv:
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


def create_memory_env(sink: MemoryAuditSink | None = None) -> IdempotencyEnv:
    clock = ManualClock(AT.timestamp())
    memory = MemoryIdempotencyStore(clock=clock, audit_sink=sink)
    return IdempotencyEnv(
        store=memory,
        pass_time=lambda passed: clock.advance(passed.total_seconds()),
        another=lambda: memory,
        log=sink,
    )


def create_postgres_env(database: Database) -> IdempotencyEnv:
    log = PostgresAuditLog(database=database)
    return IdempotencyEnv(
        store=PostgresIdempotencyStore(database=database, audit_sink=log),
        pass_time=partial(age_records, database),
        another=lambda: PostgresIdempotencyStore(database=database, audit_sink=log),
        log=log,
    )


def create_jetstream_env(request: pytest.FixtureRequest) -> IdempotencyEnv:
    connect, name = request.getfixturevalue("connect"), request.getfixturevalue("nats_name")
    clock = ManualClock(AT.timestamp())

    def opened() -> JetStreamIdempotencyStore:
        return JetStreamIdempotencyStore.open(
            connect(), clock=clock, logger=LOGGER, bucket=name, accept_weak_durability=True
        )

    return IdempotencyEnv(
        store=opened(),
        pass_time=lambda passed: clock.advance(passed.total_seconds()),
        another=opened,
    )


def claim_in_env(
    kept: IdempotencyEnv,
    key: str = "k",
    *,
    owner: str = "me",
    fingerprint: str = "f",
    store: IdempotencyStore | None = None,
) -> IdempotencyRecord:
    return (store or kept.store).claim(key, fingerprint=fingerprint, owner=owner, lease=kept.lease)


INVALID_DURATIONS: list[Any] = [timedelta(0), -SECOND, timedelta(days=4_000), 30]
