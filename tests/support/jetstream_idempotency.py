"""A store of idempotency records in JetStream, and how its records grow old."""

from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256

from attrs import evolve
from nats.js.api import RawStreamMsg

from support.nats_server import LOGGER, open_connection
from tileferry.adapters.nats import JetStreamIdempotencyStore, NatsConnection
from tileferry.adapters.nats.bucket import Bucket
from tileferry.adapters.nats.idempotency import decode_record, encode_record
from tileferry.adapters.nats.session import NatsSession
from tileferry.adapters.system import SystemClock
from tileferry.domain.idempotency import (
    IdempotencyRecord,
    InProgress,
)


def open_jetstream_store(url: str, bucket: str) -> JetStreamIdempotencyStore:
    """Open a bucket with a connection of its own."""
    return JetStreamIdempotencyStore.open(
        open_connection(url),
        clock=SystemClock(),
        logger=LOGGER,
        bucket=bucket,
        accept_weak_durability=True,
    )


def age_jetstream_records(bucket: Bucket, passed: timedelta) -> None:
    """Bring leases so much nearer to their end: nobody moves the clocks of other processes."""
    for place, value in bucket.values():
        assert value.content is not None
        record = decode_record(value.content)
        if isinstance(record.state, InProgress):
            end = record.state.lease_expires_at - passed
            older = evolve(record, state=evolve(record.state, lease_expires_at=end))
            bucket.put(place, encode_record(older), revision=value.revision)


LEASE = timedelta(seconds=30)
KEEP = timedelta(days=1)
OpenStore = Callable[[NatsConnection], JetStreamIdempotencyStore]
Connect = Callable[..., NatsConnection]


def hash_key(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def claim_key(store: JetStreamIdempotencyStore, owner: str = "me") -> IdempotencyRecord:
    return store.claim("k", fingerprint="f", owner=owner, lease=LEASE)


def count_writes(store: JetStreamIdempotencyStore, key: str = "k") -> int:
    """Return how often a bucket of one key was written to."""
    return store.bucket.get(hash_key(key)).revision


def read_raw_message(store: JetStreamIdempotencyStore, key: str = "k") -> RawStreamMsg:
    subject = f"$KV.{store.bucket.name}.{hash_key(key)}"

    async def read(session: NatsSession) -> RawStreamMsg:
        return await session.js.get_msg(f"KV_{store.bucket.name}", subject=subject)

    return store.bucket.connection.ask(read)


def delete_bucket(store: JetStreamIdempotencyStore) -> None:
    async def delete(session: NatsSession) -> bool:
        return await session.js.delete_key_value(store.bucket.name)

    assert store.bucket.connection.ask(delete)
