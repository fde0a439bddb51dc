"""Idempotency records in JetStream: answers that get lost, and servers that die."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.jetstream_records import (
    KEEP,
    LEASE,
    Connect,
    OpenStore,
    claimed,
    deleted_bucket,
    place_of,
    writes,
)
from support.nats_proxy import Loss, NatsProxy
from support.nats_server import LOGGER, NatsServer, connection_to

from tileferry.adapters.memory import ManualClock, MemoryAuditSink
from tileferry.adapters.nats import JetStreamIdempotencyStore
from tileferry.adapters.nats.record_format import encode
from tileferry.application.audit import AuditTrail, CallContext
from tileferry.application.retries.idempotency import IdempotencyManager
from tileferry.application.retries.idempotent_call import IdempotentCall, WhenBusy
from tileferry.domain.errors import (
    IdempotencyInProgressError,
    MessagingError,
    RetryError,
)
from tileferry.domain.retry import RetryCategory

# Answers that get lost


@pytest.fixture(params=Loss)
def loss(request: pytest.FixtureRequest) -> Loss:
    kind = request.param
    assert isinstance(kind, Loss)
    return kind


@pytest.fixture
def store(
    proxy: NatsProxy, connection_of: Connect, open_store: OpenStore
) -> JetStreamIdempotencyStore:
    """Open a store behind the proxy."""
    return open_store(connection_of(proxy))


def lose(proxy: NatsProxy, store: JetStreamIdempotencyStore, marker: bytes, loss: Loss) -> None:
    """Lose a request or its answer; the time limit is short only where it is to be reached."""
    store.bucket.connection.timeout_s = 1 if loss is Loss.SILENT_ANSWER else 30
    proxy.lose(marker, loss)


def test_a_claim_whose_answer_was_lost_is_made_once(
    loss: Loss, proxy: NatsProxy, store: JetStreamIdempotencyStore, retries: MemoryAuditSink
) -> None:
    lose(proxy, store, b"HPUB $KV.", loss)
    record = claimed(store)
    assert (record.epoch, record.owner) == (1, "me")
    assert store.find("k") == record
    assert (writes(store), proxy.losses, len(retries.events)) == (1, 1, 2)


def test_a_result_whose_answer_was_lost_is_recorded_once(
    loss: Loss, proxy: NatsProxy, store: JetStreamIdempotencyStore
) -> None:
    held = claimed(store)
    lose(proxy, store, b"HPUB $KV.", loss)
    done = store.complete(held, b"1", keep=KEEP)
    assert store.find("k") == done
    assert (writes(store), proxy.losses) == (2, 1)


def test_a_key_whose_clearing_was_not_answered_is_cleared_once(
    loss: Loss, proxy: NatsProxy, store: JetStreamIdempotencyStore
) -> None:
    claimed(store)
    lose(proxy, store, b"KV-Operation", loss)
    assert store.clear("k") is True
    assert (store.find("k"), writes(store), proxy.losses) == (None, 2, 1)


def test_a_write_in_doubt_does_not_take_somebody_elses_for_its_own(
    proxy: NatsProxy, store: JetStreamIdempotencyStore, connect: Connect, open_store: OpenStore
) -> None:
    """While ours is lost, somebody else changes the record."""
    theirs = open_store(connect())
    mine = encode(claimed(theirs, "them"))
    revision = writes(theirs)
    theirs.release(claimed(theirs, "them"))
    proxy.lose(b"HPUB $KV.", Loss.REQUEST)
    assert store.bucket.put(place_of("k"), mine, revision=revision) is False
    assert (writes(theirs), proxy.losses) == (2, 1)


def test_when_it_stays_unknown_the_error_says_so(
    proxy: NatsProxy, store: JetStreamIdempotencyStore
) -> None:
    proxy.lose(b"HPUB $KV.", Loss.REQUEST, times=3)
    with pytest.raises(RetryError) as raised:
        claimed(store)
    assert raised.value.__notes__ == [
        "whether it was stored is not known; look before doing it again"
    ]
    assert store.find("k") is None


# Many at once, and servers that die


def test_eight_hosts_hold_a_key_one_after_the_other(
    nats_server: NatsServer, open_store: OpenStore
) -> None:
    turns = 5

    def hold(number: int) -> list[int]:
        epochs: list[int] = []
        with connection_to(nats_server.url) as connection:
            store = open_store(connection)
            while len(epochs) < turns:
                try:
                    held = claimed(store, f"{number}")
                except IdempotencyInProgressError:
                    continue
                epochs.append(held.epoch)
                store.release(held)
        return epochs

    with ThreadPoolExecutor(8) as pool:
        held = [epoch for epochs in pool.map(hold, range(8)) for epoch in epochs]
    assert sorted(held) == list(range(1, 8 * turns + 1))


def test_records_survive_a_server_that_is_killed_after_each_answer(
    own_server: NatsServer, connection_of: Connect, open_store: OpenStore
) -> None:
    store = open_store(connection_of(own_server))
    for number in range(5):
        held = store.claim(f"{number}", fingerprint="f", owner="me", lease=LEASE)
        own_server.restart()
        done = store.complete(held, b"%d" % number, keep=KEEP)
        own_server.restart()
        assert store.find(f"{number}") == done
    assert all(store.find(f"{number}") is not None for number in range(5))


# A store that cannot answer


def manager_of(store: JetStreamIdempotencyStore, clock: ManualClock) -> IdempotencyManager:
    return IdempotencyManager(
        store=store, clock=clock, new_id=lambda: "me", audit=AuditTrail(logger=LOGGER)
    )


def falls_silent(store: JetStreamIdempotencyStore, server: NatsServer) -> None:
    server.pause()
    store.bucket.connection.timeout_s = 0.1


TROUBLES: dict[str, Callable[[JetStreamIdempotencyStore, NatsServer], object]] = {
    "killed": lambda _, server: server.kill(),
    "silent": falls_silent,
    "bucket gone": lambda store, _: deleted_bucket(store),
    "record unreadable": lambda store, _: store.bucket.put(place_of("k"), b"{", revision=0),
}


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("when_busy", WhenBusy)
def test_invariant_11_when_jetstream_cannot_answer_the_operation_does_not_run(
    trouble: str,
    *,
    when_busy: WhenBusy,
    own_server: NatsServer,
    connection_of: Connect,
    open_store: OpenStore,
    clock: ManualClock,
) -> None:
    store = open_store(connection_of(own_server))
    TROUBLES[trouble](store, own_server)
    ran: list[int] = []
    context = CallContext(category=RetryCategory.API_REQUEST, operation="test")
    call = IdempotentCall(key="k", context=context, when_busy=when_busy)
    with pytest.raises((MessagingError, RetryError)):
        manager_of(store, clock).once(lambda: ran.append(1), call)
    assert ran == []


def test_a_bucket_that_is_gone_is_not_an_empty_one(
    nats_server: NatsServer, connection_of: Connect, open_store: OpenStore
) -> None:
    store = open_store(connection_of(nats_server))
    claimed(store)
    deleted_bucket(store)
    with pytest.raises(MessagingError, match="there is no such stream"):
        store.find("k")
