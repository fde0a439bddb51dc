"""A store of idempotency records in JetStream, and how its records grow old."""

from datetime import timedelta

from attrs import evolve

from support.nats_server import LOGGER, connection_to
from tileferry.adapters.nats import JetStreamIdempotencyStore
from tileferry.adapters.nats.bucket import Bucket
from tileferry.adapters.nats.record_format import decode, encode
from tileferry.adapters.system import SystemClock
from tileferry.domain.idempotency import InProgress


def store_in(url: str, bucket: str) -> JetStreamIdempotencyStore:
    """Open a bucket with a connection of its own."""
    return JetStreamIdempotencyStore.open(
        connection_to(url),
        clock=SystemClock(),
        logger=LOGGER,
        bucket=bucket,
        accept_weak_durability=True,
    )


def make_older(bucket: Bucket, passed: timedelta) -> None:
    """Bring leases so much nearer to their end: nobody moves the clocks of other processes."""
    for place, value in bucket.values():
        assert value.content is not None
        record = decode(value.content)
        if isinstance(record.state, InProgress):
            end = record.state.lease_expires_at - passed
            older = evolve(record, state=evolve(record.state, lease_expires_at=end))
            bucket.put(place, encode(older), revision=value.revision)
