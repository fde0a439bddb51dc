"""Runs an HTTP server: binds, announces its address, and stops cleanly and quickly."""

import asyncio
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from attrs import field, frozen

from tileferry.domain.addresses import PORT_MAX, is_loopback
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import integer

_GRACE_S = 2
_BACKLOG = 2_048


@frozen(kw_only=True)
class ListenAddress:
    """The address to listen on and the certificate to use."""

    host: str = "127.0.0.1"
    port: int = field(default=0, validator=integer(0, PORT_MAX))
    tls_cert: Path | None = None
    tls_key: Path | None = None

    def __attrs_post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidValueError(
                field="--tls-cert, --tls-key",
                value=(self.tls_cert, self.tls_key),
                problem="must be given together",
                remedy="give both or neither",
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    @property
    def has_tls(self) -> bool:
        return self.tls_cert is not None


class HttpServer(uvicorn.Server):
    """A server for one application; :meth:`run` blocks until :meth:`stop` or a signal."""

    def __init__(
        self, app: Any, address: ListenAddress, announce: Callable[[str], None], **options: Any
    ) -> None:
        self._announce = announce
        super().__init__(_build_uvicorn_config(app, address, options))
        self._socket = _bind(address)
        host = f"[{address.host}]" if ":" in address.host else address.host
        scheme = "https" if address.has_tls else "http"
        self.url = f"{scheme}://{host}:{self._socket.getsockname()[1]}"

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until stopped."""
        try:
            with asyncio.Runner(loop_factory=self.config.get_loop_factory()) as runner:
                runner.run(self.serve(sockets or [self._socket]))
        finally:
            self._socket.close()
            self.release()

    def release(self) -> None:
        """Close the resources of the application; called once, after the server has stopped."""

    def stop(self) -> None:
        """Request a stop; thread-safe."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start accepting connections and announce it."""
        await super().startup(sockets)
        self._announce(self.url)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # the signature of a signal handler
        """Treat a signal as the normal way to stop, not as an error."""
        self.should_exit = True


def _bind(address: ListenAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # IPPROTO_TCP must be named, or asyncio leaves Nagle's algorithm on: 40 ms per response.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidValueError(
            field="--host, --port",
            value=f"{address.host}:{address.port}",
            problem=f"cannot listen: {error.strerror or error}",
            remedy="choose another port, or 0 for a free one",
        ) from error
    return listener


def _build_uvicorn_config(
    app: Any, address: ListenAddress, options: dict[str, Any]
) -> uvicorn.Config:
    # uvicorn's messages about broken connections are noise; our own log has the rest.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        app,
        **{
            "ws": "none",
            "interface": "asgi3",
            "lifespan": "off",
            "loop": "asyncio",
            "log_config": None,
            "log_level": "critical",
            "access_log": False,
            "server_header": False,
            "timeout_graceful_shutdown": _GRACE_S,
            "ssl_certfile": address.tls_cert,
            "ssl_keyfile": address.tls_key,
            **options,
        },
    )
    try:
        config.load()
    except OSError as error:  # includes ssl.SSLError
        raise InvalidValueError(
            field="--tls-cert, --tls-key",
            value=str(address.tls_cert),
            problem=f"cannot be used: {error.strerror or error}",
            remedy="give a PEM certificate (with its chain) and its PEM key",
        ) from error
    return config
