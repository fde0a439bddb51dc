"""A stream read from any place on, a page at a time."""

from collections.abc import Iterator, Sequence
from functools import partial

from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from tileferry.adapters.nats.connection import NatsConnection
from tileferry.adapters.nats.session import Session
from tileferry.domain.retry import RetryCategory

PAGE_MESSAGES = 256
_CONSUMER_IDLE_S = 30.0


def read_stream(connection: NatsConnection, stream: str, *, after: int = 0) -> Iterator[Msg]:
    """Yield the messages beyond a sequence number that are there when the reading begins.

    Each page is a subscription of its own, which remembers nothing: a server that was restarted
    in between gives the next page all the same.
    """
    last = connection.call(
        RetryCategory.NATS_SUBSCRIBE,
        f"read {stream}",
        lambda: connection.ask(partial(_last_sequence, stream=stream)),
    )
    while after < last and (page := _page(connection, stream, after)):
        for message in page:
            if sequence_of(message) > last:
                return
            yield message
        after = sequence_of(page[-1])


def sequence_of(message: Msg) -> int:
    """Return the number that the stream gave a message."""
    return message.metadata.sequence.stream


def _page(connection: NatsConnection, stream: str, after: int) -> Sequence[Msg]:
    return connection.call(
        RetryCategory.NATS_SUBSCRIBE,
        f"read {stream}",
        lambda: connection.ask(partial(_fetch, stream=stream, after=after)),
    )


async def _last_sequence(session: Session, *, stream: str) -> int:
    return (await session.js.stream_info(stream)).state.last_seq


async def _fetch(session: Session, *, stream: str, after: int) -> Sequence[Msg]:
    subscription = await session.js.pull_subscribe(
        ">",
        stream=stream,
        config=ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=after + 1,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=_CONSUMER_IDLE_S,
            mem_storage=True,
            num_replicas=1,
        ),
    )
    try:
        consumer = await subscription.consumer_info()
        waiting = min(consumer.num_pending or 0, PAGE_MESSAGES)
        # Asked for what is there: a fetch for more would wait for it to come.
        messages = await subscription.fetch(waiting) if waiting else []
        await session.js.delete_consumer(stream, consumer.name)
    finally:
        await subscription.unsubscribe()
    return messages
