"""Runs the site, and cuts off slow and oversized requests."""

import asyncio
import secrets
import socket
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attrs import evolve
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.web_safety import (
    TOKEN_CHARS_MIN,
    AccessTokens,
    AllowedHosts,
    SessionSigner,
    check_exposure,
)
from tileferry.entrypoints.config import Config
from tileferry.entrypoints.config.loader import read_key_file
from tileferry.entrypoints.http_server import HttpServer, ListenAddress
from tileferry.entrypoints.installation import Installation
from tileferry.entrypoints.web.app import WebApp
from tileferry.entrypoints.web.pages import PAGES
from tileferry.entrypoints.web.site import Site, SiteSettings

CONNECTIONS_MAX = 512
HEAD_BYTES_MAX = 32 * 1024
REQUEST_TIMEOUT_S = 15.0
"""How long a request may take to arrive."""
_KEEP_ALIVE_S = 30
_CLOSE = b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large" + _CLOSE
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout" + _CLOSE


def build_listen_address(config: Config) -> ListenAddress:
    """Return where to listen; raise if other machines could connect without a token and TLS."""
    serve = config.serve
    address = ListenAddress(
        host=serve.host, port=serve.port, tls_cert=serve.tls_cert, tls_key=serve.tls_key
    )
    check_exposure(serve.host, has_token=serve.token_file is not None, has_tls=address.has_tls)
    return address


def read_tokens(config: Config) -> AccessTokens:
    """Return the tokens of the configured files."""
    serve = config.serve
    return AccessTokens(
        operator=_read_token(serve.token_file, "serve.token_file"),
        viewer=_read_token(serve.viewer_token_file, "serve.viewer_token_file"),
    )


def _read_token(file: Path | None, field: str) -> str | None:
    if file is None:
        return None
    token = read_key_file(file, field=field)
    if len(token) < TOKEN_CHARS_MIN:
        raise InvalidValueError(
            field=field,
            value=str(file),
            problem=f"has a token of fewer than {TOKEN_CHARS_MIN} characters",
            remedy=f"run `openssl rand -hex 32 > {file}`",
        )
    return token


class WebServer(HttpServer):
    """A server for one site; :meth:`run` blocks until :meth:`stop` or a signal."""

    def __init__(
        self,
        installation: Installation,
        *,
        operator: str,
        announce: Callable[[str], None] = lambda _url: None,
        config_file: Path | None = None,
    ) -> None:
        config = installation.config
        address = build_listen_address(config)
        settings = SiteSettings(
            config=config,
            config_file=config_file,
            hosts=AllowedHosts.build(config.serve.host, config.serve.allowed_hosts),
            tokens=read_tokens(config),
            signer=SessionSigner(secrets.token_bytes(32)),
            operator=operator,
            read_only=config.serve.read_only,
            has_tls=address.has_tls,
        )
        super().__init__(
            self._dispatch,
            address,
            announce,
            http=LimitedProtocol,
            loop="asyncio" if find_spec("uvloop") is None else "uvloop",
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=_KEEP_ALIVE_S,
        )
        settings = evolve(settings, port=self._socket.getsockname()[1])
        try:
            self.site = Site(installation=installation, settings=settings, pages=PAGES)
            self.app = WebApp(self.site)
        except BaseException:
            self._socket.close()
            raise

    async def _dispatch(self, scope: object, receive: object, send: object) -> None:
        await self.app(scope, receive, send)  # type: ignore[arg-type]  # uvicorn's own types

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the live updates, which never end on their own, then shut down."""
        await self.app.feeds.stop()
        await super().shutdown(sockets)

    def release(self) -> None:
        self.app.close()


class JoinedWrites:
    """A transport that sends the head and the body of a response with one system call."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data after the callbacks that are running now."""
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)

    def close(self) -> None:
        """Send what is held, then close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        held, self._held = self._held, []
        if held and not self._transport.is_closing():
            self._transport.writelines(held)


class LimitedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, with limits on the size of a request's head and on its time.

    Without them, a client that sends a byte now and then keeps its connection forever.
    """

    _deadline: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        super().connection_made(transport)
        self.transport = JoinedWrites(transport, self.loop)  # type: ignore[assignment]  # used as one
        self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > HEAD_BYTES_MAX:
            self._cut_off(_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        if self._deadline is None:
            self._start_deadline()

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._end_deadline()
        self._in_head, self._head_bytes = True, 0
        super().on_message_complete()

    def _start_deadline(self) -> None:
        self._end_deadline()
        self._deadline = self.loop.call_later(REQUEST_TIMEOUT_S, self._cut_off, _TOO_SLOW)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cut_off(self, answer: bytes) -> None:
        self._end_deadline()
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()
