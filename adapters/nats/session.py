"""Where NATS is, and with what we log in there."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from attrs import field, frozen
from nats import errors as core
from nats.aio.client import Client
from nats.js import JetStreamContext

from tileferry.domain.errors import InvalidValueError

DEFAULT_PORT = 4222
_SCHEMES = frozenset({"nats", "tls"})


@frozen(kw_only=True)
class NatsAddress:
    """Servers of one cluster. The credentials stand apart, where nothing that is shown has them."""

    servers: tuple[str, ...]
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    @property
    def wants_tls(self) -> bool:
        """Whether nothing may be said in the clear."""
        return self.servers[0].startswith("tls:")

    def __str__(self) -> str:
        return ", ".join(self.servers)

    @classmethod
    def parse(cls, nats_url: str) -> "NatsAddress":
        """Read an address, or several with commas between, as they are written in a setting."""
        parts = [_split(url.strip()) for url in nats_url.split(",")]
        if len({part.scheme for part in parts}) > 1:
            raise _invalid_url_error("names servers with TLS and servers without it")
        logins = {(part.username, part.password) for part in parts if part.username}
        if len(logins) > 1:
            raise _invalid_url_error("names servers of one cluster with different credentials")
        user, password = logins.pop() if logins else (None, None)
        login = (
            {
                "token": _unquote_text(user)
            }  # a name without a password is a token, as in other clients
            if password is None
            else {"user": _unquote_text(user), "password": unquote(password)}
        )
        return cls(servers=tuple(map(_strip_login, parts)), **login)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # its text quotes what may be a password
        parts, port = SplitResult("", "", "", "", ""), None
    if port == 0 or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
        raise _invalid_url_error("is not an address of a NATS server")
    if parts.scheme not in _SCHEMES:
        raise _invalid_url_error("has a scheme that is not known here")
    return parts


def _strip_login(parts: SplitResult) -> str:
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or DEFAULT_PORT}"


def _unquote_text(text: str | None) -> str | None:
    return None if text is None else unquote(text)


def _invalid_url_error(problem: str) -> InvalidValueError:
    # In a mistyped address anything may be the password, so none of it is shown.
    return InvalidValueError(
        field="nats_url",
        value="***",
        problem=problem,
        remedy="use nats://user:password@host:port, or tls:// to insist on TLS, with %40 for an @"
        " in the password, %3A for a colon, %2F for a slash and %2C for a comma",
    )


Result = TypeVar("Result")
_PING_S = 20
_CLOSING_S = 0.5
"""Nothing is left to be sent by then; nats-py waits for ever after a TLS handshake that failed."""


@frozen(eq=False)
class NatsSession:
    """A connection, and what is told when it ends."""

    client: Client
    js: JetStreamContext
    ended: "asyncio.Future[None]"

    async def await_request(self, request: "NatsRequest[Result]", *, timeout_s: float) -> Result:
        """Await a request, but no longer than the connection: nats-py would wait in vain."""
        asking = asyncio.ensure_future(request(self))
        asking.add_done_callback(_consume_exception)
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
        await _close_client(self.client)


NatsRequest = Callable[[NatsSession], Coroutine[Any, Any, Result]]


async def open_session(
    address: NatsAddress,
    *,
    tls: ssl.SSLContext | None,
    timeout_s: float,
    on_complaint: Callable[[Exception], Awaitable[None]],
) -> NatsSession:
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
        await _close_client(client)
        raise
    return NatsSession(client, client.jetstream(timeout=timeout_s), ended)


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


async def _close_client(client: Client) -> None:
    """Close a client, whatever state it is in."""
    with contextlib.suppress(Exception):  # it is given up: nothing that it says matters now
        async with asyncio.timeout(_CLOSING_S):
            await client.close()


def _consume_exception(request: "asyncio.Future[Any]") -> None:
    """Keep asyncio from complaining of a request that failed when nobody waited any more."""
    if not request.cancelled():
        request.exception()
