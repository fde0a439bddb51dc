"""Stands between a client and nats-server, and loses what it is told to."""

import contextlib
import socket
import time
from enum import Enum, auto

from attrs import define, field

from support.proxy import Pair, Proxy

_SERVER_S = 0.1
"""What a server needs at most to take a request in."""


class Loss(Enum):
    """What is lost of a request."""

    REQUEST = auto()
    """The server never gets it: the connection ends before."""
    ANSWER = auto()
    """The server gets it and answers; the connection ends before the answer."""
    SILENT_ANSWER = auto()
    """As before, but the connection stays: the client waits in vain."""
    LATE = auto()
    """The connection ends, and the server gets it all the same: right before the next one."""


@define(eq=False)
class NatsProxy(Proxy):
    """Passes everything on, but for the losses that were asked for."""

    server_port: int
    _armed: list[tuple[bytes, Loss]] = field(factory=list, init=False)
    _deaf: dict[Pair, Loss] = field(factory=dict, init=False)
    _late: tuple[Pair, bytes, bytes] | None = field(default=None, init=False)
    _refusals: int = field(default=0, init=False)
    losses: int = field(default=0, init=False)
    """How many there were."""
    sent_bytes: int = field(default=0, init=False)
    """What clients have sent."""

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def lose(self, marker: bytes, loss: Loss, *, times: int = 1) -> None:
        """Lose the next requests in which the marker stands, or their answers."""
        with self._lock:
            self._armed += [(marker, loss)] * times

    def refuse(self, times: int) -> None:
        """Turn the next connections away."""
        with self._lock:
            self._refusals = times

    def _connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server_port))

    def _is_refused(self) -> bool:
        with self._lock:
            refused, self._refusals = self._refusals > 0, max(self._refusals - 1, 0)
        return refused

    def _is_left_open(self, pair: Pair) -> bool:
        return self._late is not None and self._late[0] is pair

    def _is_passed_on(self, pair: Pair, data: bytes, *, from_client: bool) -> bool:
        with self._lock:
            if not from_client:
                return self._is_answer_passed_on(pair)
            self.sent_bytes += len(data)
            self._deaf.pop(pair, None)
            self._deliver_late(data)
            if not self._armed or self._armed[0][0] not in data:
                return True
            marker, loss = self._armed.pop(0)
            self.losses += 1
            if loss in {Loss.ANSWER, Loss.SILENT_ANSWER}:
                self._deaf[pair] = loss
                return True
            if loss is Loss.LATE:
                self._late = (pair, marker, data)
                with contextlib.suppress(OSError):
                    pair.client.shutdown(socket.SHUT_RDWR)
                return False
        pair.cut()
        return False

    def _deliver_late(self, data: bytes) -> None:
        if self._late is not None and self._late[1] in data:
            (pair, _, late), self._late = self._late, None
            pair.server.sendall(late)
            time.sleep(_SERVER_S)
            pair.cut()

    def _is_answer_passed_on(self, pair: Pair) -> bool:
        loss = self._deaf.get(pair)
        if loss is Loss.ANSWER:
            pair.cut()
        return loss is None


def proxy_to(port: int) -> NatsProxy:
    """Return a proxy in front of a server, which runs in a ``with``."""
    return NatsProxy(port)
