"""Idempotency records in JetStream: answers that get lost, and servers that die."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.jetstream_idempotency import (
    KEEP,
    LEASE,
    Connect,
    OpenStore,
    claim_key,
    count_writes,
    delete_bucket,
    hash_key,
)
from support.nats_server import LOGGER, NatsServer, open_connection
from support.proxies import Loss, NatsProxy

from tileferry.adapters.memory import ManualClock, MemoryAuditSink
from tileferry.adapters.nats import JetStreamIdempotencyStore
from tileferry.adapters.nats.idempotency import encode_record
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
    proxy: NatsProxy, connect_to: Connect, open_store: OpenStore
) -> JetStreamIdempotencyStore:
    """Open a store behind the proxy."""
    return open_store(connect_to(proxy))


def lose(proxy: NatsProxy, store: JetStreamIdempotencyStore, marker: bytes, loss: Loss) -> None:
    """Lose a request or its answer; the time limit is short only where it is to be reached."""
    store.bucket.connection.timeout_s = 1 if loss is Loss.SILENT_ANSWER else 30
    proxy.lose(marker, loss)


def test_claim_with_a_lost_response_is_made_once(
    loss: Loss, proxy: NatsProxy, store: JetStreamIdempotencyStore, retries: MemoryAuditSink
) -> None:
    lose(proxy, store, b"HPUB $KV.", loss)
    record = claim_key(store)
    assert (record.epoch, record.owner) == (1, "me")
    assert store.find("k") == record
    assert (count_writes(store), proxy.losses, len(retries.events)) == (1, 1, 2)


def test_result_with_a_lost_response_is_recorded_once(
    loss: Loss, proxy: NatsProxy, store: JetStreamIdempotencyStore
) -> None:
    held = claim_key(store)
    lose(proxy, store, b"HPUB $KV.", loss)
    done = store.complete(held, b"1", keep=KEEP)
    assert store.find("k") == done
    assert (count_writes(store), proxy.losses) == (2, 1)


def test_clear_with_a_lost_response_is_made_once(
    loss: Loss, proxy: NatsProxy, store: JetStreamIdempotencyStore
) -> None:
    claim_key(store)
    lose(proxy, store, b"KV-Operation", loss)
    assert store.clear("k") is True
    assert (store.find("k"), count_writes(store), proxy.losses) == (None, 2, 1)


def test_unconfirmed_write_is_not_confused_with_another_writers(
    proxy: NatsProxy, store: JetStreamIdempotencyStore, connect: Connect, open_store: OpenStore
) -> None:
    """While ours is lost, somebody else changes the record."""
    theirs = open_store(connect())
    mine = encode_record(claim_key(theirs, "them"))
    revision = count_writes(theirs)
    theirs.release(claim_key(theirs, "them"))
    proxy.lose(b"HPUB $KV.", Loss.REQUEST)
    assert store.bucket.put(hash_key("k"), mine, revision=revision) is False
    assert (count_writes(theirs), proxy.losses) == (2, 1)


def test_error_notes_that_the_outcome_is_unknown(
    proxy: NatsProxy, store: JetStreamIdempotencyStore
) -> None:
    proxy.lose(b"HPUB $KV.", Loss.REQUEST, times=3)
    with pytest.raises(RetryError) as raised:
        claim_key(store)
    assert raised.value.__notes__ == [
        "it is unknown whether the write took effect; check before you repeat it"
    ]
    assert store.find("k") is None


# Many at once, and servers that die


def test_concurrent_hosts_hold_a_key_one_at_a_time(
    nats_server: NatsServer, open_store: OpenStore
) -> None:
    turns = 5

    def hold(number: int) -> list[int]:
        epochs: list[int] = []
        with open_connection(nats_server.url) as connection:
            store = open_store(connection)
            while len(epochs) < turns:
                try:
                    held = claim_key(store, f"{number}")
                except IdempotencyInProgressError:
                    continue
                epochs.append(held.epoch)
                store.release(held)
        return epochs

    with ThreadPoolExecutor(8) as pool:
        held = [epoch for epochs in pool.map(hold, range(8)) for epoch in epochs]
    assert sorted(held) == list(range(1, 8 * turns + 1))


def test_records_survive_a_server_kill_after_each_response(
    own_server: NatsServer, connect_to: Connect, open_store: OpenStore
) -> None:
    store = open_store(connect_to(own_server))
    for number in range(5):
        held = store.claim(f"{number}", fingerprint="f", owner="me", lease=LEASE)
        own_server.restart()
        done = store.complete(held, b"%d" % number, keep=KEEP)
        own_server.restart()
        assert store.find(f"{number}") == done
    assert all(store.find(f"{number}") is not None for number in range(5))


# A store that cannot answer


def create_manager(store: JetStreamIdempotencyStore, clock: ManualClock) -> IdempotencyManager:
    return IdempotencyManager(
        store=store, clock=clock, new_id=lambda: "me", audit=AuditTrail(logger=LOGGER)
    )


def pause_server(store: JetStreamIdempotencyStore, server: NatsServer) -> None:
    server.pause()
    store.bucket.connection.timeout_s = 0.1


TROUBLES: dict[str, Callable[[JetStreamIdempotencyStore, NatsServer], object]] = {
    "killed": lambda _, server: server.kill(),
    "silent": pause_server,
    "bucket gone": lambda store, _: delete_bucket(store),
    "record unreadable": lambda store, _: store.bucket.put(hash_key("k"), b"{", revision=0),
}


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("when_busy", WhenBusy)
def test_invariant_11_operation_does_not_run_when_jetstream_is_unavailable(
    trouble: str,
    *,
    when_busy: WhenBusy,
    own_server: NatsServer,
    connect_to: Connect,
    open_store: OpenStore,
    clock: ManualClock,
) -> None:
    store = open_store(connect_to(own_server))
    TROUBLES[trouble](store, own_server)
    ran: list[int] = []
    context = CallContext(category=RetryCategory.API_REQUEST, operation="test")
    call = IdempotentCall(key="k", context=context, when_busy=when_busy, result_type=int)
    with pytest.raises((MessagingError, RetryError)):
        create_manager(store, clock).run_once(lambda: ran.append(1), call)
    assert ran == []


def test_deleted_bucket_raises_instead_of_reading_as_empty(
    nats_server: NatsServer, connect_to: Connect, open_store: OpenStore
) -> None:
    store = open_store(connect_to(nats_server))
    claim_key(store)
    delete_bucket(store)
    with pytest.raises(MessagingError, match="the stream does not exist"):
        store.find("k")
