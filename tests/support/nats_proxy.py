"""Stands between a client and nats-server, and loses what it is told to."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from functools import partial

from attrs import define, field, frozen

CHUNK_BYTES = 65_536
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


@frozen(eq=False)
class _Pair:
    client: socket.socket
    server: socket.socket

    def cut(self) -> None:
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@define(eq=False)
class NatsProxy:
    """Passes everything on, but for the losses that were asked for."""

    server_port: int
    _listener: socket.socket = field(init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _threads: list[threading.Thread] = field(factory=list, init=False)
    _pairs: list[_Pair] = field(factory=list, init=False)
    _armed: list[tuple[bytes, Loss]] = field(factory=list, init=False)
    _deaf: dict[_Pair, Loss] = field(factory=dict, init=False)
    _late: tuple[_Pair, bytes, bytes] | None = field(default=None, init=False)
    _refusals: int = field(default=0, init=False)
    losses: int = field(default=0, init=False)
    """How many there were."""
    sent_bytes: int = field(default=0, init=False)
    """What clients have sent."""

    @_listener.default
    def _listen(self) -> socket.socket:
        return socket.create_server(("127.0.0.1", 0))

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._listener.getsockname()[1]}"

    def lose(self, marker: bytes, loss: Loss, *, times: int = 1) -> None:
        """Lose the next requests in which the marker stands, or their answers."""
        with self._lock:
            self._armed += [(marker, loss)] * times

    def refuse(self, times: int) -> None:
        """Turn the next connections away."""
        with self._lock:
            self._refusals = times

    def start(self) -> None:
        self._spawn(self._accept)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for pair in self._pairs:
            pair.cut()
        for thread in self._threads:
            thread.join(timeout=10)
        for pair in self._pairs:
            pair.client.close()
            pair.server.close()

    def _spawn(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                is_refused, self._refusals = self._refusals > 0, max(self._refusals - 1, 0)
            if is_refused:
                client.close()
                continue
            pair = _Pair(client, socket.create_connection(("127.0.0.1", self.server_port)))
            self._pairs.append(pair)
            self._spawn(partial(self._pump, pair, from_client=True))
            self._spawn(partial(self._pump, pair, from_client=False))

    def _pump(self, pair: _Pair, *, from_client: bool) -> None:
        source, target = (pair.client, pair.server) if from_client else (pair.server, pair.client)
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                if self._is_passed_on(pair, data, from_client=from_client):
                    target.sendall(data)
        if self._late is None or self._late[0] is not pair:
            pair.cut()

    def _is_passed_on(self, pair: _Pair, data: bytes, *, from_client: bool) -> bool:
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

    def _is_answer_passed_on(self, pair: _Pair) -> bool:
        loss = self._deaf.get(pair)
        if loss is Loss.ANSWER:
            pair.cut()
        return loss is None


@contextmanager
def proxy_to(port: int) -> Iterator[NatsProxy]:
    """Run a proxy in front of a server."""
    proxy = NatsProxy(port)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.close()
