"""How response bytes are sent: whole by default, or in any of the bad ways that faults ask for."""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from attrs import define, field, frozen
from starlette.types import Receive, Send

Headers = list[tuple[str, str]]

_HOLD_S_MAX = 600.0
_TICK_S = 0.02
_CHUNK = bytes(64 * 1024)
_ENDLESS_BYTES_MAX = 1024**3
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with zero timeout: close sends RST instead of FIN


class Connections:
    """The transports of the open connections, by client address.

    ASGI hides them, and a fault that breaks a connection needs its transport.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], asyncio.Transport] = {}
        self.stopping = asyncio.Event()
        """Set when the server stops, so that no fault holds its connection any longer."""

    def add(self, client: tuple[str, int] | None, transport: asyncio.Transport) -> None:
        """Remember a connection."""
        if client is not None:
            self._open[client] = transport

    def remove(self, client: tuple[str, int] | None) -> None:
        """Forget a connection."""
        if client is not None:
            self._open.pop(client, None)

    def wire_for(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> "Wire":
        """Return the wire on which to answer a request."""
        client = scope.get("client")
        transport = self._open.get(tuple(client)) if client else None
        return Wire(receive, send, transport, self.stopping)


@frozen
class Wire:
    """The response side of one request."""

    _receive: Receive
    _send: Send
    _transport: asyncio.Transport | None
    _stopping: asyncio.Event

    async def start(self, status: int, headers: Headers) -> None:
        """Send the status and the headers."""
        raw = [(name.lower().encode("latin-1"), text.encode("latin-1")) for name, text in headers]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def send_more(self, content: bytes) -> None:
        """Send a piece of the body."""
        await self._send({"type": "http.response.body", "body": content, "more_body": True})

    async def end(self, content: bytes = b"") -> None:
        """Send the last piece."""
        await self._send({"type": "http.response.body", "body": content, "more_body": False})

    def close(self) -> None:
        """Close the connection after the sent bytes, as if the response were complete."""
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """Reset the connection."""
        if self._transport is not None:
            connection: socket.socket = self._transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()

    async def hold(self, seconds: float = _HOLD_S_MAX) -> bool:
        """Wait; return false at once when the client disconnects or the server stops."""
        waits = [
            asyncio.ensure_future(self._wait_for_disconnect()),
            asyncio.ensure_future(self._stopping.wait()),
        ]
        done, left = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in left:
            wait.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return not done

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


Delivery = Callable[[Wire, int, Headers, bytes], Awaitable[None]]
"""Sends a status, headers and a body."""


def _add_content_length(headers: Headers, length: int) -> Headers:
    return [*headers, ("Content-Length", str(length))]


async def send_whole(wire: Wire, status: int, headers: Headers, body: bytes) -> None:
    """Send a correct response."""
    await wire.start(status, _add_content_length(headers, len(body)))
    await wire.end(body)


async def reset_at_once(wire: Wire, _status: int, _headers: Headers, _body: bytes) -> None:
    """Reset the connection without sending anything."""
    wire.reset()


async def reset_inside(wire: Wire, status: int, headers: Headers, body: bytes) -> None:
    """Reset the connection in the middle of the body."""
    await wire.start(status, _add_content_length(headers, len(body)))
    await wire.send_more(body[: len(body) // 2])
    await asyncio.sleep(_TICK_S)  # a reset overtakes bytes that are still in flight
    wire.reset()


async def close_inside(wire: Wire, status: int, headers: Headers, body: bytes) -> None:
    """Close the connection cleanly after half of the declared length."""
    await wire.start(status, _add_content_length(headers, len(body)))
    await wire.send_more(body[: len(body) // 2])
    wire.close()


async def stall_inside(wire: Wire, status: int, headers: Headers, body: bytes) -> None:
    """Stop sending in the middle of the body but keep the connection open."""
    await wire.start(status, _add_content_length(headers, len(body)))
    await wire.send_more(body[: len(body) // 2])
    await wire.hold()
    wire.close()


async def stall_at_once(wire: Wire, _status: int, _headers: Headers, _body: bytes) -> None:
    """Accept the request and never answer."""
    await wire.hold()
    wire.close()


def drip(bytes_per_s: float) -> Delivery:
    """Send the body slowly."""

    async def deliver(wire: Wire, status: int, headers: Headers, body: bytes) -> None:
        await wire.start(status, _add_content_length(headers, len(body)))
        step = max(1, int(bytes_per_s * _TICK_S))
        for begin in range(0, len(body), step):
            await wire.send_more(body[begin : begin + step])
            if not await wire.hold(min(step, len(body)) / bytes_per_s):
                return
        await wire.end()

    return deliver


def flood(total: int | None) -> Delivery:
    """Send zeros: ``total`` bytes with a declared length, or endlessly without one."""

    async def deliver(wire: Wire, status: int, headers: Headers, _body: bytes) -> None:
        await wire.start(status, headers if total is None else _add_content_length(headers, total))
        left = _ENDLESS_BYTES_MAX if total is None else total
        while left > 0:
            if not await wire.hold(0.0):
                return
            await wire.send_more(_CHUNK[:left])
            left -= len(_CHUNK)
        await wire.end()

    return deliver


@frozen(kw_only=True)
class ProviderResponse:
    """A response and the way it is sent."""

    status: int = 200
    headers: Mapping[str, str] = field(factory=dict)
    body: bytes = b""
    delivery: Delivery = send_whole
    says_nothing: bool = False
    """Whether not even a status is sent."""

    async def deliver(self, wire: Wire) -> None:
        """Send the response."""
        await self.delivery(wire, self.status, list(self.headers.items()), self.body)


@define(eq=False)
class RefusalError(Exception):
    """A request that cannot be served; ``code`` is for programs, ``message`` for people."""

    status: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.message}"


def json_response(body: Mapping[str, Any], status: int = 200, **headers: str) -> ProviderResponse:
    """Build a response with one JSON object."""
    return ProviderResponse(
        status=status,
        headers={"Content-Type": "application/json", **_to_header_names(headers)},
        body=json.dumps(body).encode("ascii"),
    )


def error_response(status: int, code: str, message: str, **headers: str) -> ProviderResponse:
    """Build an error response in the provider's format."""
    return json_response({"error": code, "message": message}, status, **headers)


def _to_header_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
