"""JetStream streams: name checks, durability checks, paged reads and guarded writes."""

import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import datetime
from functools import partial
from logging import Logger
from typing import TYPE_CHECKING, Any

from attrs import define, field
from nats.aio.msg import Msg
from nats.js import errors as js
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    PersistMode,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)

from tileferry.adapters.nats.connection import NatsConnection
from tileferry.adapters.nats.errors import NO_STREAM
from tileferry.adapters.nats.session import NatsSession
from tileferry.domain.errors import InvalidValueError, MessagingError, RetryError
from tileferry.domain.retry import RetryCategory
from tileferry.domain.validation import format_field_name

if TYPE_CHECKING:
    from attrs import Attribute


REPLICAS_ENOUGH = 3
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_SUBJECT = re.compile(r"[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,7}", re.ASCII)


def validate_stream_name(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    """Raise unless the value can name a stream or bucket, which makes it part of a subject."""
    if not (isinstance(value, str) and _NAME.fullmatch(value)):
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem="cannot name a stream or a bucket",
            remedy="use 1 to 64 of A-Z a-z 0-9 _ -",
        )


def validate_subject(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    """Raise unless the value can be a subject prefix."""
    if not (isinstance(value, str) and _SUBJECT.fullmatch(value)):
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem="cannot be a subject",
            remedy="use up to 8 names of A-Z a-z 0-9 _ - separated by dots",
        )


async def find_or_create_stream(
    session: NatsSession, name: str, make: Callable[[], Coroutine[Any, Any, object]]
) -> StreamConfig:
    """Return a stream's settings; an existing stream may differ from the requested ones."""
    try:
        return (await session.js.stream_info(name)).config
    except js.NotFoundError as error:
        if error.err_code != NO_STREAM:
            raise
    await make()
    return (await session.js.stream_info(name)).config


def check_durability(
    config: StreamConfig, *, what: str, accept_weak_durability: bool, logger: Logger
) -> None:
    """Raise if a stream can lose confirmed messages; warn if a power cut can."""
    for problem in _find_durability_problems(config):
        raise unsuitable_stream_error(what, problem)
    replicas = config.num_replicas or 1
    if replicas < REPLICAS_ENOUGH and not accept_weak_durability:
        logger.warning(
            "%s has %d replica(s), and by default a NATS server syncs to disk only every two "
            "minutes: a power cut can lose confirmed writes; use %d replicas, or set "
            "sync_interval: always on the server and accept_weak_durability=True here",
            what,
            replicas,
            REPLICAS_ENOUGH,
            extra={"kind": "nats.weak_durability", "stream": config.name, "replicas": replicas},
        )


def unsuitable_stream_error(what: str, problem: str) -> MessagingError:
    """Return the error for a stream with unsuitable settings."""
    return MessagingError(
        problem=f"{what} {problem}", remedy="use another name, or change its settings"
    )


def _find_durability_problems(config: StreamConfig) -> Iterator[str]:
    if config.storage == StorageType.MEMORY:
        yield "is stored in memory only"
    if config.persist_mode == PersistMode.ASYNC:
        yield "confirms messages before they are written (persist_mode)"
    if config.max_age:
        yield f"drops messages after {config.max_age:g} s (max_age)"
    if config.retention != RetentionPolicy.LIMITS:
        yield "drops messages that were read (retention)"
    limits = (config.max_msgs or -1, config.max_bytes or -1)
    if config.discard != DiscardPolicy.NEW and max(limits) > 0:
        yield "drops old messages to make room (discard)"
    if config.sealed or config.mirror is not None:
        yield "is read-only"


PAGE_MESSAGES = 256
_CONSUMER_IDLE_S = 30.0


def read_stream(connection: NatsConnection, stream: str, *, after: int = 0) -> Iterator[Msg]:
    """Yield the messages after a sequence number that exist when the read starts.

    Each page uses its own temporary consumer, so reading survives a server restart.
    """
    last = connection.call(
        RetryCategory.NATS_SUBSCRIBE,
        f"read {stream}",
        lambda: connection.ask(partial(_fetch_last_sequence, stream=stream)),
    )
    while after < last and (page := _read_page(connection, stream, after)):
        for message in page:
            if get_sequence(message) > last:
                return
            yield message
        after = get_sequence(page[-1])


def get_sequence(message: Msg) -> int:
    """Return the sequence number of a message in its stream."""
    return message.metadata.sequence.stream


def _read_page(connection: NatsConnection, stream: str, after: int) -> Sequence[Msg]:
    return connection.call(
        RetryCategory.NATS_SUBSCRIBE,
        f"read {stream}",
        lambda: connection.ask(partial(_fetch, stream=stream, after=after)),
    )


async def _fetch_last_sequence(session: NatsSession, *, stream: str) -> int:
    return (await session.js.stream_info(stream)).state.last_seq


def find_position(connection: NatsConnection, stream: str, since: datetime) -> int:
    """Return the sequence number before the first message since a moment, by the server's clock."""
    start = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_TIME, opt_start_time=since)
    last, first = connection.call(
        RetryCategory.NATS_SUBSCRIBE,
        f"read {stream}",
        lambda: (
            connection.ask(partial(_fetch_last_sequence, stream=stream)),
            connection.ask(partial(_fetch_from, stream=stream, start=start, messages_max=1)),
        ),
    )
    return get_sequence(first[0]) - 1 if first else last


async def _fetch(session: NatsSession, *, stream: str, after: int) -> Sequence[Msg]:
    start = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=after + 1)
    return await _fetch_from(session, stream=stream, start=start, messages_max=PAGE_MESSAGES)


async def _fetch_from(
    session: NatsSession, *, stream: str, start: ConsumerConfig, messages_max: int
) -> Sequence[Msg]:
    subscription = await session.js.pull_subscribe(
        ">",
        stream=stream,
        config=start.evolve(
            ack_policy=AckPolicy.NONE,
            inactive_threshold=_CONSUMER_IDLE_S,
            mem_storage=True,
            num_replicas=1,
        ),
    )
    try:
        consumer = await subscription.consumer_info()
        waiting = min(consumer.num_pending or 0, messages_max)
        # Request only what is available: a larger fetch would wait for new messages.
        messages = await subscription.fetch(waiting) if waiting else []
        await session.js.delete_consumer(stream, consumer.name)
    finally:
        await subscription.unsubscribe()
    return messages


CONFLICTS_MAX = 1_000
"""Maximum number of lost races. In each one another writer succeeds, so they end long before."""


@define(kw_only=True)
class GuardedWrite:
    """A write whose answer may be lost.

    Repeating it is safe: it names the same expected state, so the server refuses it if the first
    write arrived, however late. After a refusal, ``landed`` finds out whether the first write did.
    """

    connection: NatsConnection
    write: Callable[[], bool]
    """Writes; returns ``False`` if the state has changed."""
    landed: Callable[[], bool]
    """Returns whether the stored state is the one written."""
    _is_in_doubt: bool = field(default=False, init=False)

    def execute(self, category: RetryCategory, operation: str) -> bool:
        """Write; return whether the write took effect. ``False`` means another writer was first."""
        try:
            return self.connection.call(category, operation, self._attempt)
        except (MessagingError, RetryError) as error:
            if self._is_in_doubt:
                error.add_note(
                    "it is unknown whether the write took effect; check before you repeat it"
                )
            raise

    def _attempt(self) -> bool:
        try:
            is_taken = self.write()
        except MessagingError:
            self._is_in_doubt = True
            raise
        return is_taken or (self._is_in_doubt and self.landed())


def too_many_conflicts(subject: str) -> MessagingError:
    """Return the error for a writer that lost every race."""
    return MessagingError(
        problem=f"{subject} was changed by other writers {CONFLICTS_MAX} times in a row",
        remedy="use fewer writers, or check what else writes to it",
    )
