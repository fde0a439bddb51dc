"""The asynchronous side: one connection of nats-py while it lasts.

nats-py would reconnect by itself, for ever, and keep what was published in the meantime to send it
later. Here a lost connection is an error at once, and the product's retry engine decides.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from attrs import frozen
from nats import errors as core
from nats.aio.client import Client
from nats.js import JetStreamContext

from tileferry.adapters.nats.address import NatsAddress

Result = TypeVar("Result")
_PING_S = 20
_CLOSING_S = 0.5
"""Nothing is left to be sent by then; nats-py waits for ever after a TLS handshake that failed."""


@frozen(eq=False)
class Session:
    """A connection, and what is told when it ends."""

    client: Client
    js: JetStreamContext
    ended: "asyncio.Future[None]"

    async def answer(self, request: "Request[Result]", *, timeout_s: float) -> Result:
        """Await a request, but no longer than the connection: nats-py would wait in vain."""
        asking = asyncio.ensure_future(request(self))
        asking.add_done_callback(_read_its_error)
        either: set[asyncio.Future[Any]] = {asking, self.ended}
        try:
            await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            raise core.ConnectionClosedError if self.ended.done() else core.TimeoutError
        finally:
            asking.cancel()

    async def close(self) -> None:
        """End it."""
        await _closed(self.client)


Request = Callable[[Session], Coroutine[Any, Any, Result]]


async def open_session(
    address: NatsAddress,
    *,
    tls: ssl.SSLContext | None,
    timeout_s: float,
    on_complaint: Callable[[Exception], Awaitable[None]],
) -> Session:
    """Connect once; each server of the address has its time."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def note_the_end() -> None:
        if not ended.done():
            ended.set_result(None)

    client = _StrictClient(wants_tls=address.wants_tls)
    try:
        async with asyncio.timeout(timeout_s * len(address.servers)):
            await client.connect(
                list(address.servers),
                name="tileferry",
                user=address.user,
                password=address.password,
                token=address.token,
                tls=tls,
                error_cb=on_complaint,
                closed_cb=note_the_end,
                allow_reconnect=False,
                # Each server is tried twice without a pause, which is the least that nats-py
                # can be told; 0 would mean for ever.
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=timeout_s,  # type: ignore[arg-type]  # a float will do
                ping_interval=_PING_S,
            )
    except BaseException:
        await _closed(client)
        raise
    return Session(client, client.jetstream(timeout=timeout_s), ended)


class _StrictClient(Client):
    """A client for which tls:// means TLS; nats-py would go on without, if none is offered."""

    def __init__(self, *, wants_tls: bool) -> None:
        super().__init__()
        self._wants_tls = wants_tls

    async def _process_info(
        self,
        info: dict[str, Any],
        initial_connection: bool = False,  # noqa: FBT001, FBT002  # as in nats-py
    ) -> None:
        # The credentials have not been sent by now.
        if initial_connection and self._wants_tls and not info.get("tls_required"):
            raise core.SecureConnWantedError
        await super()._process_info(info, initial_connection)


async def _closed(client: Client) -> None:
    """Close a client, whatever state it is in."""
    with contextlib.suppress(Exception):  # it is given up: nothing that it says matters now
        async with asyncio.timeout(_CLOSING_S):
            await client.close()


def _read_its_error(request: "asyncio.Future[Any]") -> None:
    """Keep asyncio from complaining of a request that failed when nobody waited any more."""
    if not request.cancelled():
        request.exception()
