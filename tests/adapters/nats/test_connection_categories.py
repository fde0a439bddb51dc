"""Each call of NATS is retried under its own category, and the audit log tells of it."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from support.audit_events import create_retry_attempted
from support.proxies import Loss, NatsProxy

from tileferry.adapters.memory import MemoryAuditSink
from tileferry.adapters.nats import (
    JetStreamAuditSink,
    JetStreamIdempotencyStore,
    NatsConnection,
)
from tileferry.domain.audit import RetryAttempted, RetryExhausted, RetrySucceeded
from tileferry.domain.errors import RetryError
from tileferry.domain.retry import POLICY_MATRIX, RetryCategory

LEASE = timedelta(seconds=30)
Opened = tuple[JetStreamIdempotencyStore, JetStreamAuditSink]
CALLS: dict[RetryCategory, tuple[str, Callable[[Opened], object]]] = {
    RetryCategory.KV_GET: ("$JS.API.STREAM.MSG.GET.KV_{name}", lambda it: it[0].find("k")),
    RetryCategory.KV_PUT: (
        "HPUB $KV.{name}",
        lambda it: it[0].claim("k", fingerprint="f", owner="me", lease=LEASE),
    ),
    RetryCategory.KV_DELETE: ("KV-Operation", lambda it: it[0].clear("there")),
    RetryCategory.NATS_PUBLISH: (
        "HPUB {name}.",
        lambda it: it[1].emit([create_retry_attempted(1)]),
    ),
    RetryCategory.NATS_SUBSCRIBE: ("CONSUMER.CREATE.{name}", lambda it: list(it[1].iter_entries())),
}
OPENINGS = {
    RetryCategory.KV_CREATE: "STREAM.CREATE.KV_{name}",
    RetryCategory.NATS_STREAM_CREATE: "STREAM.CREATE.{name}",
}


def count_losses(category: RetryCategory, *, all_of_them: bool) -> int:
    return POLICY_MATRIX[category].max_attempts if all_of_them else 1


def assert_audited(
    retries: MemoryAuditSink, category: RetryCategory, error: RetryError | None
) -> None:
    """Hold what was audited against what happened."""
    events = list(retries.events)
    assert {event.retry_category for event in events} == {category}  # type: ignore[attr-defined]
    if error is None:
        assert [type(event) for event in events] == [RetryAttempted, RetrySucceeded]
        return
    attempts = POLICY_MATRIX[category].max_attempts
    kinds = [RetryAttempted] * (attempts - 1) + [RetryExhausted]
    assert [type(event) for event in events] == kinds
    assert (error.category, error.attempts) == (category, attempts)


@pytest.mark.parametrize("all_of_them", [False, True])
@pytest.mark.parametrize("category", CALLS)
def test_spec2_a_call_is_retried_under_its_category(
    category: RetryCategory,
    *,
    all_of_them: bool,
    proxy: NatsProxy,
    connect_to: Callable[..., NatsConnection],
    open_store: Callable[[NatsConnection], JetStreamIdempotencyStore],
    open_sink: Callable[[NatsConnection], JetStreamAuditSink],
    retries: MemoryAuditSink,
    nats_name: str,
) -> None:
    marker, call = CALLS[category]
    connection = connect_to(proxy)
    opened = (open_store(connection), open_sink(connection))
    opened[0].claim("there", fingerprint="f", owner="me", lease=LEASE)
    opened[1].emit([create_retry_attempted(0)])
    times = count_losses(category, all_of_them=all_of_them)
    proxy.lose(marker.format(name=nats_name).encode(), Loss.REQUEST, times=times)
    error = None
    if all_of_them:
        with pytest.raises(RetryError) as raised:
            call(opened)
        error = raised.value
    else:
        call(opened)
    assert proxy.losses == times
    assert_audited(retries, category, error)


@pytest.mark.parametrize("all_of_them", [False, True])
@pytest.mark.parametrize("category", OPENINGS)
def test_spec2_bucket_or_stream_creation_is_retried_under_its_category(
    category: RetryCategory,
    *,
    all_of_them: bool,
    proxy: NatsProxy,
    connect_to: Callable[..., NatsConnection],
    open_store: Callable[[NatsConnection], JetStreamIdempotencyStore],
    open_sink: Callable[[NatsConnection], JetStreamAuditSink],
    retries: MemoryAuditSink,
    nats_name: str,
) -> None:
    connection = connect_to(proxy)
    times = count_losses(category, all_of_them=all_of_them)
    proxy.lose(OPENINGS[category].format(name=nats_name).encode(), Loss.REQUEST, times=times)
    make = open_store if category is RetryCategory.KV_CREATE else open_sink
    error = None
    if all_of_them:
        with pytest.raises(RetryError) as raised:
            make(connection)
        error = raised.value
    else:
        make(connection)
    assert proxy.losses == times
    assert_audited(retries, category, error)


@pytest.mark.parametrize("all_of_them", [False, True])
def test_spec2_connecting_is_retried_under_its_category(
    *,
    all_of_them: bool,
    proxy: NatsProxy,
    connect_to: Callable[..., NatsConnection],
    open_store: Callable[[NatsConnection], JetStreamIdempotencyStore],
    retries: MemoryAuditSink,
) -> None:
    category = RetryCategory.NATS_CONNECT
    proxy.refuse(count_losses(category, all_of_them=all_of_them))
    error = None
    if all_of_them:
        with pytest.raises(RetryError) as raised:
            open_store(connect_to(proxy))
        error = raised.value
    else:
        open_store(connect_to(proxy))
    assert_audited(retries, category, error)


def test_reconnecting_does_not_nest_retry_loops(
    proxy: NatsProxy,
    connect_to: Callable[..., NatsConnection],
    open_store: Callable[[NatsConnection], JetStreamIdempotencyStore],
    retries: MemoryAuditSink,
) -> None:
    """A call that loses its connection connects once an attempt, without a loop of its own."""
    store = open_store(connect_to(proxy))
    proxy.lose(b"STREAM.MSG.GET", Loss.REQUEST)
    proxy.refuse(100)
    with pytest.raises(RetryError) as raised:
        store.find("k")
    assert_audited(retries, RetryCategory.KV_GET, raised.value)
