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
from support.jetstream_records import (
    LEASE,
    Connect,
    OpenStore,
    claimed,
    place_of,
    raw,
)
from support.nats_server import LOGGER

from tileferry.adapters.memory import ManualClock
from tileferry.adapters.nats import JetStreamIdempotencyStore, NatsConnection
from tileferry.adapters.nats.bucket import Bucket, Value
from tileferry.adapters.nats.record_format import decode, encode
from tileferry.adapters.nats.session import Session
from tileferry.domain.errors import (
    InvalidValueError,
    MessagingError,
    ResultNotStorableError,
)
from tileferry.domain.idempotency import (
    ABANDONED_AFTER,
    Completed,
    FailedForGood,
    IdempotencyRecord,
    InProgress,
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
        (b'{"version": 2}', "has form 2, and known is 1"),
    ],
)
def test_a_record_that_cannot_be_read_is_refused_and_can_be_cleared(
    plain_store: JetStreamIdempotencyStore, content: bytes, problem: str
) -> None:
    assert plain_store.bucket.put(place_of("k"), content, revision=0)
    with pytest.raises(MessagingError, match=f"idempotency key k {problem}"):
        claimed(plain_store)
    with pytest.raises(MessagingError, match=f"idempotency key k {problem}"):
        plain_store.find("k")
    assert plain_store.forget_expired(limit=10) == 0
    assert plain_store.clear("k") is True
    assert claimed(plain_store).epoch == 1


def test_another_keys_record_is_not_taken_for_this_ones(
    plain_store: JetStreamIdempotencyStore,
) -> None:
    content = encode(plain_store.claim("other", fingerprint="f", owner="me", lease=LEASE))
    assert plain_store.bucket.put(place_of("k"), content, revision=0)
    with pytest.raises(MessagingError, match="is that of key other"):
        plain_store.find("k")


def test_a_result_that_is_too_large_is_refused_by_name(
    plain_store: JetStreamIdempotencyStore,
) -> None:
    held = claimed(plain_store)
    with pytest.raises(ResultNotStorableError, match="more than this server takes"):
        plain_store.complete(held, bytes(1_000_000), keep=None)
    assert plain_store.find("k") == held


def test_the_server_is_told_to_drop_a_record_long_after_it_expired_and_never_before(
    plain_store: JetStreamIdempotencyStore, clock: ManualClock
) -> None:
    held = claimed(plain_store)
    abandoned_s = (LEASE + ABANDONED_AFTER).total_seconds()
    assert (raw(plain_store).headers or {})["Nats-TTL"] == f"{abandoned_s + 3_600:.0f}"
    plain_store.complete(held, b"1", keep=timedelta(seconds=90.5))
    assert (raw(plain_store).headers or {})["Nats-TTL"] == "3691"
    clock.pass_time(91)
    plain_store.complete(claimed(plain_store), b"1", keep=None)
    assert "Nats-TTL" not in (raw(plain_store).headers or {})


def test_what_the_server_has_dropped_is_as_good_as_never_written(
    plain_store: JetStreamIdempotencyStore,
) -> None:
    bucket = plain_store.bucket
    assert bucket.put("x", b"1", revision=0, ttl_s=1)
    assert bucket.get("x") == Value(b"1", 1)
    started_s = time.monotonic()
    while bucket.get("x") != Value(None, 0):
        assert time.monotonic() - started_s < 10
        time.sleep(0.05)
    assert bucket.put("x", b"2", revision=1) is False
    assert bucket.put("x", b"2", revision=0) is True


def test_a_record_is_plain_json_under_a_hash_of_its_key(
    plain_store: JetStreamIdempotencyStore,
) -> None:
    claimed(plain_store)
    data = json.loads(raw(plain_store).data or b"")
    assert (data["version"], data["key"], data["state"]["kind"]) == (1, "k", "in_progress")
    assert [key for key, _ in plain_store.bucket.values()] == [place_of("k")]


MOMENTS = st.datetimes(timezones=st.just(UTC), min_value=datetime(2000, 1, 1))  # noqa: DTZ001  # naive by contract
TEXTS = st.text(min_size=1)
STATES: st.SearchStrategy[InProgress | Completed | FailedForGood] = st.one_of(
    st.builds(InProgress, owner=TEXTS, lease_expires_at=MOMENTS),
    st.builds(Completed, result=st.binary(), recorded_at=MOMENTS),
    st.builds(FailedForGood, error_type=TEXTS, error_message=st.text(), recorded_at=MOMENTS),
)


@given(key=TEXTS, fingerprint=TEXTS, epoch=st.integers(1), state=STATES, expires_at=MOMENTS)
def test_any_record_is_read_as_it_was_written(
    key: str, fingerprint: str, epoch: int, state: Any, expires_at: datetime
) -> None:
    record = IdempotencyRecord(
        key=key,
        fingerprint=fingerprint,
        epoch=epoch,
        state=state,
        expires_at=None if isinstance(state, InProgress) else expires_at,
    )
    assert decode(encode(record), key=key) == record


# What a bucket must promise


@pytest.fixture
def bucket_made(connect: Connect, nats_name: str) -> Callable[..., NatsConnection]:
    """Make the test's bucket with settings of its own."""

    def make(**settings: Any) -> NatsConnection:
        connection = connect()

        async def create(session: Session) -> None:
            await session.js.create_key_value(bucket=nats_name, **settings)

        connection.ask(create)
        return connection

    return make


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"storage": "memory"}, "is kept in memory only"),
        ({"ttl": 3_600}, r"drops everything after 3600 s \(max_age\)"),
    ],
)
def test_a_bucket_that_loses_records_is_refused(
    bucket_made: Callable[..., NatsConnection],
    open_store: OpenStore,
    settings: dict[str, Any],
    problem: str,
) -> None:
    with pytest.raises(MessagingError, match=problem):
        open_store(bucket_made(**settings))


@pytest.fixture
def warnings_told(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[Any]]]:
    with caplog.at_level(logging.WARNING):
        yield lambda: [record for record in caplog.records if hasattr(record, "kind")]


def test_weak_durability_is_warned_of_unless_it_is_accepted(
    connect: Connect, nats_name: str, warnings_told: Callable[[], list[Any]]
) -> None:
    for accepted in (False, True):
        Bucket.open(
            connect(), nats_name, replicas=1, accept_weak_durability=accepted, logger=LOGGER
        )
        (warning,) = warnings_told()
        assert (warning.levelname, warning.kind) == ("WARNING", "nats.weak_durability")
        assert (warning.stream, warning.replicas) == (f"KV_{nats_name}", 1)
        assert "a power cut may undo what was confirmed" in warning.getMessage()


def test_replicas_that_the_server_cannot_give_are_a_clear_error(
    connect: Connect, nats_name: str
) -> None:
    with pytest.raises(MessagingError, match="ask for one replica, or use a cluster"):
        Bucket.open(connect(), nats_name, replicas=3, accept_weak_durability=False, logger=LOGGER)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "ä", ">", "x" * 65, None])
def test_a_name_that_cannot_be_a_bucket_is_refused(connect: Connect, name: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"Bucket\.name: cannot name a stream"):
        Bucket.open(connect(), name, replicas=1, accept_weak_durability=True, logger=LOGGER)
