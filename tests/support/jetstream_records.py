"""Idempotency records in a JetStream bucket, and what is really there."""

from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256

from nats.js.api import RawStreamMsg

from tileferry.adapters.nats import JetStreamIdempotencyStore, NatsConnection
from tileferry.adapters.nats.session import Session
from tileferry.domain.idempotency import (
    IdempotencyRecord,
)

LEASE = timedelta(seconds=30)
KEEP = timedelta(days=1)
OpenStore = Callable[[NatsConnection], JetStreamIdempotencyStore]
Connect = Callable[..., NatsConnection]


def place_of(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def claimed(store: JetStreamIdempotencyStore, owner: str = "me") -> IdempotencyRecord:
    return store.claim("k", fingerprint="f", owner=owner, lease=LEASE)


def writes(store: JetStreamIdempotencyStore, key: str = "k") -> int:
    """Return how often a bucket of one key was written to."""
    return store.bucket.get(place_of(key)).revision


def raw(store: JetStreamIdempotencyStore, key: str = "k") -> RawStreamMsg:
    subject = f"$KV.{store.bucket.name}.{place_of(key)}"

    async def read(session: Session) -> RawStreamMsg:
        return await session.js.get_msg(f"KV_{store.bucket.name}", subject=subject)

    return store.bucket.connection.ask(read)


def deleted_bucket(store: JetStreamIdempotencyStore) -> None:
    async def delete(session: Session) -> bool:
        return await session.js.delete_key_value(store.bucket.name)

    assert store.bucket.connection.ask(delete)
