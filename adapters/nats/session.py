"""NATS address parsing, and a session that connects once."""

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
    """The servers of one cluster. Credentials are separate and never appear in its text."""

    servers: tuple[str, ...]
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    @property
    def wants_tls(self) -> bool:
        """Whether TLS is required."""
        return self.servers[0].startswith("tls:")

    def __str__(self) -> str:
        return ", ".join(self.servers)

    @classmethod
    def parse(cls, nats_url: str) -> "NatsAddress":
        """Parse a URL, or several comma-separated URLs."""
        parts = [_split(url.strip()) for url in nats_url.split(",")]
        if len({part.scheme for part in parts}) > 1:
            raise _invalid_url_error("mixes servers with and without TLS")
        logins = {(part.username, part.password) for part in parts if part.username}
        if len(logins) > 1:
            raise _invalid_url_error("has different credentials for servers of one cluster")
        user, password = logins.pop() if logins else (None, None)
        login = (
            {
                "token": _unquote_text(user)
            }  # as in other clients, a user without a password is a token
            if password is None
            else {"user": _unquote_text(user), "password": unquote(password)}
        )
        return cls(servers=tuple(map(_strip_login, parts)), **login)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # the error's text may quote a password
        parts, port = SplitResult("", "", "", "", ""), None
    if port == 0 or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
        raise _invalid_url_error("is not a NATS URL")
    if parts.scheme not in _SCHEMES:
        raise _invalid_url_error("has an unknown scheme")
    return parts


def _strip_login(parts: SplitResult) -> str:
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or DEFAULT_PORT}"


def _unquote_text(text: str | None) -> str | None:
    return None if text is None else unquote(text)


def _invalid_url_error(problem: str) -> InvalidValueError:
    # Show no part of a mistyped URL: any part may be the password.
    return InvalidValueError(
        field="nats_url",
        value="***",
        problem=problem,
        remedy="use nats://user:password@host:port, or tls:// to require TLS, with %40 for an @"
        " in the password, %3A for a colon, %2F for a slash and %2C for a comma",
    )


Result = TypeVar("Result")
_PING_S = 20
_CLOSING_S = 0.5
"""Nothing is left to send at this point; nats-py waits forever after a failed TLS handshake."""


@frozen(eq=False)
class NatsSession:
    """An open connection, with a future that completes when the connection ends."""

    client: Client
    js: JetStreamContext
    ended: "asyncio.Future[None]"

    async def await_request(self, request: "NatsRequest[Result]", *, timeout_s: float) -> Result:
        """Await a request until the timeout or the end of the connection, which nats-py ignores."""
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
        await _close_client(self.client)


NatsRequest = Callable[[NatsSession], Coroutine[Any, Any, Result]]


async def open_session(
    address: NatsAddress,
    *,
    tls: ssl.SSLContext | None,
    timeout_s: float,
    on_complaint: Callable[[Exception], Awaitable[None]],
) -> NatsSession:
    """Connect once; ``timeout_s`` applies to each server of the address."""
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
                # Tries each server twice without a pause, the minimum in nats-py; 0 would mean
                # forever.
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=timeout_s,  # type: ignore[arg-type]  # a float works
                ping_interval=_PING_S,
            )
    except BaseException:
        await _close_client(client)
        raise
    return NatsSession(client, client.jetstream(timeout=timeout_s), ended)


class _StrictClient(Client):
    """A client that requires TLS for tls://; nats-py continues in plain text without TLS."""

    def __init__(self, *, wants_tls: bool) -> None:
        super().__init__()
        self._wants_tls = wants_tls

    async def _process_info(
        self,
        info: dict[str, Any],
        initial_connection: bool = False,  # noqa: FBT001, FBT002  # as in nats-py
    ) -> None:
        # The credentials have not been sent yet.
        if initial_connection and self._wants_tls and not info.get("tls_required"):
            raise core.SecureConnWantedError
        await super()._process_info(info, initial_connection)


async def _close_client(client: Client) -> None:
    """Close a client in any state."""
    with contextlib.suppress(Exception):  # the client is discarded, so its errors do not matter
        async with asyncio.timeout(_CLOSING_S):
            await client.close()


def _consume_exception(request: "asyncio.Future[Any]") -> None:
    """Keep asyncio from logging the error of a request that is no longer awaited."""
    if not request.cancelled():
        request.exception()
