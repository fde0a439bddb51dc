"""What is in a bucket of idempotency records, and what the bucket must promise."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.jetstream_idempotency import (
    LEASE,
    Connect,
    OpenStore,
    claim_key,
    hash_key,
    read_raw_message,
)
from support.nats_server import LOGGER

from tileferry.adapters.memory import ManualClock
from tileferry.adapters.nats import JetStreamIdempotencyStore, NatsConnection
from tileferry.adapters.nats.bucket import Bucket, BucketValue
from tileferry.adapters.nats.idempotency import decode_record, encode_record
from tileferry.adapters.nats.session import NatsSession
from tileferry.domain.errors import (
    InvalidValueError,
    MessagingError,
    ResultNotStorableError,
)
from tileferry.domain.idempotency import (
    ABANDONED_AFTER,
    Completed,
    IdempotencyRecord,
    InProgress,
    PermanentFailure,
)

# What is in a bucket


@pytest.fixture
def plain_store(connect: Connect, open_store: OpenStore) -> JetStreamIdempotencyStore:
    return open_store(connect())


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "cannot be read"),
        (b"[]", "cannot be read"),
        (b"{}", "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b'{"version": 2}', "has version 2; supported is 1"),
    ],
)
def test_unreadable_record_is_rejected_and_can_be_cleared(
    plain_store: JetStreamIdempotencyStore, content: bytes, problem: str
) -> None:
    assert plain_store.bucket.put(hash_key("k"), content, revision=0)
    with pytest.raises(MessagingError, match=f"idempotency key k {problem}"):
        claim_key(plain_store)
    with pytest.raises(MessagingError, match=f"idempotency key k {problem}"):
        plain_store.find("k")
    assert plain_store.forget_expired(limit=10) == 0
    assert plain_store.clear("k") is True
    assert claim_key(plain_store).epoch == 1


def test_record_of_another_key_is_rejected(
    plain_store: JetStreamIdempotencyStore,
) -> None:
    content = encode_record(plain_store.claim("other", fingerprint="f", owner="me", lease=LEASE))
    assert plain_store.bucket.put(hash_key("k"), content, revision=0)
    with pytest.raises(MessagingError, match="belongs to key other"):
        plain_store.find("k")


def test_oversized_result_is_rejected(
    plain_store: JetStreamIdempotencyStore,
) -> None:
    held = claim_key(plain_store)
    with pytest.raises(ResultNotStorableError, match="more than the server accepts"):
        plain_store.complete(held, bytes(1_000_000), keep=None)
    assert plain_store.find("k") == held


def test_record_ttl_is_longer_than_its_expiry(
    plain_store: JetStreamIdempotencyStore, clock: ManualClock
) -> None:
    held = claim_key(plain_store)
    abandoned_s = (LEASE + ABANDONED_AFTER).total_seconds()
    assert (read_raw_message(plain_store).headers or {})["Nats-TTL"] == f"{abandoned_s + 3_600:.0f}"
    plain_store.complete(held, b"1", keep=timedelta(seconds=90.5))
    assert (read_raw_message(plain_store).headers or {})["Nats-TTL"] == "3691"
    clock.advance(91)
    plain_store.complete(claim_key(plain_store), b"1", keep=None)
    assert "Nats-TTL" not in (read_raw_message(plain_store).headers or {})


def test_dropped_record_reads_as_never_written(
    plain_store: JetStreamIdempotencyStore,
) -> None:
    bucket = plain_store.bucket
    assert bucket.put("x", b"1", revision=0, ttl_s=1)
    assert bucket.get("x") == BucketValue(b"1", 1)
    started_s = time.monotonic()
    while bucket.get("x") != BucketValue(None, 0):
        assert time.monotonic() - started_s < 10
        time.sleep(0.05)
    assert bucket.put("x", b"2", revision=1) is False
    assert bucket.put("x", b"2", revision=0) is True


def test_record_is_json_stored_under_the_hash_of_its_key(
    plain_store: JetStreamIdempotencyStore,
) -> None:
    claim_key(plain_store)
    data = json.loads(read_raw_message(plain_store).data or b"")
    assert (data["version"], data["key"], data["state"]["kind"]) == (1, "k", "in_progress")
    assert [key for key, _ in plain_store.bucket.values()] == [hash_key("k")]


MOMENTS = st.datetimes(timezones=st.just(UTC), min_value=datetime(2000, 1, 1))  # noqa: DTZ001  # naive by contract
TEXTS = st.text(min_size=1)
STATES: st.SearchStrategy[InProgress | Completed | PermanentFailure] = st.one_of(
    st.builds(InProgress, owner=TEXTS, lease_expires_at=MOMENTS),
    st.builds(Completed, result=st.binary(), recorded_at=MOMENTS),
    st.builds(PermanentFailure, error_type=TEXTS, error_message=st.text(), recorded_at=MOMENTS),
)


@given(key=TEXTS, fingerprint=TEXTS, epoch=st.integers(1), state=STATES, expires_at=MOMENTS)
def test_records_round_trip(
    key: str, fingerprint: str, epoch: int, state: Any, expires_at: datetime
) -> None:
    record = IdempotencyRecord(
        key=key,
        fingerprint=fingerprint,
        epoch=epoch,
        state=state,
        expires_at=None if isinstance(state, InProgress) else expires_at,
    )
    assert decode_record(encode_record(record), key=key) == record


# What a bucket must promise


@pytest.fixture
def create_bucket(connect: Connect, nats_name: str) -> Callable[..., NatsConnection]:
    """Make the test's bucket with settings of its own."""

    def make(**settings: Any) -> NatsConnection:
        connection = connect()

        async def create(session: NatsSession) -> None:
            await session.js.create_key_value(bucket=nats_name, **settings)

        connection.ask(create)
        return connection

    return make


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"storage": "memory"}, "is stored in memory only"),
        ({"ttl": 3_600}, r"drops messages after 3600 s \(max_age\)"),
    ],
)
def test_bucket_that_may_lose_records_is_rejected(
    create_bucket: Callable[..., NatsConnection],
    open_store: OpenStore,
    settings: dict[str, Any],
    problem: str,
) -> None:
    with pytest.raises(MessagingError, match=problem):
        open_store(create_bucket(**settings))


@pytest.fixture
def list_warnings(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[Any]]]:
    with caplog.at_level(logging.WARNING):
        yield lambda: [record for record in caplog.records if hasattr(record, "kind")]


def test_weak_durability_is_logged_unless_accepted(
    connect: Connect, nats_name: str, list_warnings: Callable[[], list[Any]]
) -> None:
    for accepted in (False, True):
        Bucket.open(
            connect(), nats_name, replicas=1, accept_weak_durability=accepted, logger=LOGGER
        )
        (warning,) = list_warnings()
        assert (warning.levelname, warning.kind) == ("WARNING", "nats.weak_durability")
        assert (warning.stream, warning.replicas) == (f"KV_{nats_name}", 1)
        assert "a power cut can lose confirmed writes" in warning.getMessage()


def test_unavailable_replica_count_is_rejected(connect: Connect, nats_name: str) -> None:
    with pytest.raises(MessagingError, match="use one replica, or a cluster"):
        Bucket.open(connect(), nats_name, replicas=3, accept_weak_durability=False, logger=LOGGER)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "ä", ">", "x" * 65, None])
def test_invalid_bucket_name_is_rejected(connect: Connect, name: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"Bucket\.name: cannot name a stream"):
        Bucket.open(connect(), name, replicas=1, accept_weak_durability=True, logger=LOGGER)
